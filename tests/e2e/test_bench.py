"""`soulbox bench`: everything is measured, nothing fails, nothing is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from html.parser import HTMLParser

import pytest

from support.census import Census
from support.server import binary, clean_environment
from support.waiting import eventually

GROUPS = [
    "create-sequential",
    "create-staggered",
    "create-burst",
    "exec",
    "throughput",
    "pty",
    "files-small",
    "files-large",
    "run-code",
    "pause",
    "fork-many",
    "density",
    "scale",
]


def command(scratch, *words):
    return [str(binary()), "bench", "--scratch", str(scratch), *words]


def bench(scratch, *words, env=None, timeout=120):
    return subprocess.run(
        command(scratch, *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=clean_environment() | (env or {}),
    )


def measured(row):
    return not (row["remark"] or "").startswith("skipped: ")


@pytest.fixture
def quick(tmp_path):
    """The folder of a run that has to be empty at its end."""
    return tmp_path


@pytest.mark.alone
def test_a_quick_run_measures_everything_and_leaves_nothing(server, quick):
    before = Census.settled(server)
    results, page = quick / "bench.json", quick / "bench.html"
    place = quick / "place"
    place.mkdir()
    done = bench(place, "--quick", "--docker", "use", "--json", str(results), "--html", str(page))
    assert done.returncode == 0, done.stderr

    report = json.loads(results.read_text())
    assert [each["id"] for each in report["groups"]] == GROUPS
    rows = {(group["id"], row["name"]): row for group in report["groups"] for row in group["rows"]}
    for (group, name), row in rows.items():
        if not measured(row):
            # An alternative that this machine does not have, or the interpreter's template.
            assert not name.startswith("soulbox"), (group, row)
            assert len(row["remark"]) > len("skipped: "), (group, row)
        elif row["summary"] is not None:
            assert row["summary"]["failures"] == 0, (group, row)
            assert row["summary"]["count"] == len(row["times"]) > 0, (group, row)
            assert row["summary"]["least"] > 0
        else:
            assert row["figures"], (group, row)
    for name in ("soulbox, warm", "soulbox, cold"):
        for group in ("create-sequential", "create-staggered", "create-burst"):
            assert measured(rows[group, name])
    memory = {each["name"]: each["value"] for each in rows["density", "memory per sandbox"]["figures"]}
    assert memory["the largest of these"] > 0
    answered = {each["name"]: each["value"] for each in rows["density", "exec in each of them"]["figures"]}
    assert answered["answered an exec"] == answered["sandboxes alive"] > 0
    # Three rounds break no promise about times; that everything answers is judged all the same.
    for each in report["verdicts"]:
        answers = "answer" in each["promise"]
        assert each["kept"] is (True if answers else None), each
    assert "BROKEN" not in done.stdout and "too few rounds" in done.stdout
    run = report["run"]
    assert run["command"].startswith("soulbox bench") and "--quick" in run["command"]
    assert (run["rounds"], run["quick"], run["unit"]) == (3, True, "ms")
    for shown in (done.stdout, page.read_text()):
        assert "These figures only show that it works: it was a quick run" in shown

    for group in report["groups"]:
        assert f"[{group['id']}]" in done.stdout
    assert "create: one by one" in done.stderr
    assert ("not optimised" in done.stderr) == (not report["optimised"])
    Page().feed(page.read_text())

    assert os.listdir(place) == []
    Census.returns_to(before, server)


class Page(HTMLParser):
    """Refuses whatever would load something."""

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "iframe", "img"), tag
        for name, value in attrs:
            assert not re.match(r"(https?:)?//", value or "") or name.startswith("xmlns"), (tag, name, value)


def test_a_running_server_is_measured_without_touching_what_it_has(server, box, quick):
    results = quick / "bench.json"
    done = bench(
        quick, "create", "exec", "density", "--quick", "--no-compare", "--running", "--json", str(results),
        env=server.env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {
        (group["id"], row["name"]): row
        for group in json.loads(results.read_text())["groups"]
        for row in group["rows"]
    }
    assert rows["exec", "soulbox exec"]["summary"]["failures"] == 0
    assert not measured(rows["create-sequential", "soulbox, cold"])
    assert not measured(rows["density", "memory per sandbox"])
    with server.api() as api:
        assert {each["sandboxID"] for each in api.get("/v2/sandboxes").json()} == {box.sandbox_id}


@pytest.mark.alone
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_run_ends_all_that_it_started(server, quick, how):
    before = Census.settled(server)
    place = quick / "place"
    place.mkdir()
    run = subprocess.Popen(
        command(place, "scale", "--no-compare", "--rounds", "1", "--sandboxes", "2000"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    )
    try:
        eventually(lambda: len(list(place.glob("*/server-*/sandboxes/*/running.json"))) > 12, within=60)
        run.send_signal(how)
        code = run.wait(60)
    finally:
        run.kill()
        run.wait(10)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    eventually(lambda: not list(place.glob("*/server-*")), within=60, what="the servers' folders are gone")
    Census.returns_to(before, server)
    if how == signal.SIGINT:
        assert os.listdir(place) == []


def test_suites_are_listed_and_mistakes_explained(quick):
    listed = bench(quick, "--list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "create", "exec", "throughput", "pty", "files", "run_code", "pause", "density", "scale",
    ]  # fmt: skip
    unknown = bench(quick, "creat")
    assert unknown.returncode == 2 and "create, exec, throughput" in unknown.stderr
    for option in ("--json", "--html"):
        nowhere = bench(quick, "exec", option, "/no/such/folder/x")
        assert nowhere.returncode == 1 and "/no/such/folder" in nowhere.stderr
    many = bench(quick, "density", "--sandboxes", "100000")
    assert many.returncode == 2 and "4000" in many.stderr
    assert os.listdir(quick) == []


def test_who_is_not_root_is_told_at_once():
    with tempfile.TemporaryDirectory() as place:
        # Where it was built, others may not look.
        os.chmod(place, 0o755)
        program = shutil.copy(binary(), place)
        done = subprocess.run(
            [program, "bench", "exec"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            user="nobody",
            env=clean_environment(),
        )
    assert done.returncode == 1
    assert "needs root" in done.stderr and "sudo soulbox bench" in done.stderr
