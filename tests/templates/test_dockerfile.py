"""A Dockerfile as people write them, with the command line: built, served, and cached."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from support.turns import turn
from support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

APP = Path(__file__).parent / "app"


@pytest.fixture
def app(tmp_path):
    return Path(shutil.copytree(APP, tmp_path / "app"))


def build(server, *words, folder, timeout=500, ok=True):
    begun = time.monotonic()
    done = server.cli("template", "build", *words, str(folder), timeout=timeout)
    text = done.stdout.decode() + done.stderr.decode()
    assert (done.returncode == 0) is ok, text[-4000:]
    return text, time.monotonic() - begun


def rows(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if word in line]


@pytest.mark.registries
def test_a_real_dockerfile_builds_serves_and_builds_again_from_the_cache(registries, server, made, answers, app):
    assert len((APP / "Dockerfile").read_text().splitlines()) >= 60
    first, took = build(server, "-t", "orders", "--build-arg", "RELEASE=7", folder=app)
    sandbox = made.create(template="orders", timeout=300)
    told = json.loads(answers(sandbox, 8080))
    assert told == {"twice": 42, "release": "7", "user": 10001, "signed": "2.2.0", "folder": "/srv/orders"}
    out = sandbox.commands.run(
        "whoami; cat /etc/orders-release; stat -c '%U:%G %a' /srv/orders/entrypoint.sh; command -v gcc || echo no-gcc"
    ).stdout
    assert out.splitlines() == ["app", "built as root, release 7", "app:app 555", "no-gcc"]
    sandbox.kill()

    with turn.alone_for_a_moment():
        second, again = build(server, "-t", "orders", "--build-arg", "RELEASE=7", folder=app)
    assert again < took / 10, f"first {took:.1f} s, again {again:.1f} s"
    assert rows(second, "CACHED") and not rows(second, "[stdout]"), second

    # A changed source: its COPY and what follows, nothing before it and nothing in the other stage.
    source = app / "orders" / "__main__.py"
    source.write_text(source.read_text().replace("fast.twice(21)", "fast.twice(4)"))
    third, _ = build(server, "-t", "orders", "--build-arg", "RELEASE=7", folder=app)
    assert len(rows(third, "CACHED")) >= 8, third
    ran = [line for line in third.splitlines() if "CACHED" not in line]
    assert not any("apt-get install" in line or "pip install" in line for line in ran), third
    sandbox = made.create(template="orders", timeout=300)
    assert json.loads(answers(sandbox, 8080))["twice"] == 8
    print(f"\nDockerfile: {took:.1f} s, again {again:.2f} s")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("FROM ubuntu:22.04\nRUN --mount=type=ssh true\n", 2, "mount"),
        ("FROM ubuntu:22.04\nFETCH x y\n", 2, "FETCH"),
        ("RUN true\n", 1, "FROM"),
        ("FROM ubuntu:22.04\nCOPY only-one\n", 2, "COPY"),
        ("FROM ubuntu:22.04\n\nRUN <<EOF\nnever ends\n", 3, "EOF"),
    ],
)
def test_what_is_not_supported_fails_before_anything_is_built(server, tmp_path, text, line, reason):
    (tmp_path / "Dockerfile").write_text(text)
    with server.api() as api:
        before = len(api.get("/templates").json())
        out, _ = build(server, "-t", "refused", folder=tmp_path, ok=False, timeout=60)
        assert str(line) in out and reason in out, out
        assert len(api.get("/templates").json()) == before


def test_a_failing_step_is_told_with_its_line(server, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:22.04\nRUN true\n\n# fails:\nRUN echo said-this; exit 4\n")
    out, _ = build(server, "-t", "failing", folder=tmp_path, ok=False, timeout=120)
    assert "said-this" in out and "exit status 4" in out and "5" in out, out


def test_stages_copy_from_each_other_from_images_and_by_number(server, run_in, tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "FROM ubuntu:22.04 AS one\n"
        "RUN mkdir -p /out/deep && echo one > /out/deep/file && ln -s deep/file /out/link && chmod 750 /out/deep\n"
        "FROM one AS two\n"
        "RUN echo two >> /out/deep/file\n"
        "FROM ubuntu:22.04\n"
        "COPY --from=two /out /copied\n"
        "COPY --from=0 /out/deep/file /first\n"
        "COPY --from=python:3.11 /usr/bin/git /git-of-the-image\n"
    )
    build(server, "-t", "stages", folder=tmp_path, timeout=200)
    out = run_in("stages", "cat /copied/deep/file /first; readlink /copied/link; stat -c %a /copied/deep; test -x /git-of-the-image && echo git", user="root")
    assert out.split() == ["one", "two", "one", "deep/file", "750", "git"]


def test_a_target_and_arguments_choose_what_is_built(server, run_in, tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "ARG TAG=no-such-tag\nFROM ubuntu:${TAG} AS first\nARG WORD=default\nRUN echo $WORD > /word\n"
        "FROM first AS second\nRUN exit 1\n"
    )
    words = ["--target", "first", "--build-arg", "TAG=22.04", "--build-arg", "WORD=given"]
    build(server, "-t", "chosen", *words, folder=tmp_path, timeout=120)
    assert run_in("chosen", "cat /word") == "given\n"


def test_ignored_files_do_not_reach_the_server(server, run_in, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:22.04\nCOPY . /all/\n")
    (tmp_path / ".dockerignore").write_text("secret*\n!secret-but-not\n")
    for name in ("secret", "secret-but-not", "open"):
        (tmp_path / name).write_text(name)
    build(server, "-t", "ignoring", folder=tmp_path, timeout=120)
    names = run_in("ignoring", "ls /all").split()
    assert "secret" not in names and {"open", "secret-but-not"} <= set(names)


def test_an_interrupted_build_is_cancelled(server, tmp_path):
    import signal

    from support.server import binary, clean_environment

    (tmp_path / "Dockerfile").write_text("FROM ubuntu:22.04\nRUN echo going; sleep 300\n")
    building = subprocess.Popen(
        [str(binary()), "template", "build", "-t", "interrupted", str(tmp_path)],
        env=clean_environment() | server.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        with server.api() as api:

            def running():
                found = [each for each in api.get("/templates").json() if "interrupted" in each["aliases"]]
                return found and found[0]

            template = eventually(running, within=60)
            status = f"/templates/{template['templateID']}/builds/{template['buildID']}/status"
            eventually(lambda: "going" in api.get(status).text, within=60)
            building.send_signal(signal.SIGINT)
            assert building.wait(30) == 130
            eventually(lambda: api.get(status).json()["status"] == "error", within=30)
    finally:
        if building.poll() is None:
            building.kill()
            building.wait(10)
        building.stdout.close()
