"""What `examples/` shows runs as it stands there, says what it should, and leaves nothing."""

import os
import re
import shutil
from pathlib import Path

import pytest

from support.examples import EXAMPLES, STARTERS, assert_printed, run_example, shown_by
from support.reboot import lose_memory

NEEDS_A_TEMPLATE = ["code_interpreter.py", "plot_data.py"]  # tests/interpreter/test_example.py
TUTORIALS = ["agent_builds_a_project.py", "class_of_submissions.py", "pause_today.py"]
RUN_HERE = ["first_steps.py", "pause_snapshot_fork.py", "execute_batch.sh", "streaming.mjs", *TUTORIALS]
RUNS_INSIDE = ["judge.py"]


@pytest.fixture
def leaves_nothing(server):
    def there():
        with server.api() as api:
            sandboxes = {each["sandboxID"] for each in api.get("/v2/sandboxes?state=running,paused").json()}
            return sandboxes | {each["snapshotID"] for each in api.get("/snapshots").json()}

    before = there()
    yield
    assert there() - before == set()


@pytest.fixture
def run(server, leaves_nothing, tmp_path):
    return lambda name, **options: run_example(EXAMPLES / name, server, tmp_path, **options)


def test_every_example_is_tried_somewhere_and_told_of():
    programs = {each.name for each in EXAMPLES.iterdir() if each.suffix in STARTERS}
    assert programs == {*RUN_HERE, *NEEDS_A_TEMPLATE, *RUNS_INSIDE}
    table = (EXAMPLES / "README.md").read_text()
    assert programs == set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", table, re.MULTILINE))


@pytest.mark.parametrize("name", [*RUN_HERE, *NEEDS_A_TEMPLATE])
def test_an_example_says_at_its_top_how_to_run_it(name):
    head = "\n".join((EXAMPLES / name).read_text().splitlines()[:14])
    assert f"examples/{name}" in head and "/var/lib/soulbox/env" in head


def test_first_steps(run):
    sandbox, *rest = run("first_steps.py")
    assert re.fullmatch(r"sandbox: i[a-z0-9]+", sandbox)
    counted = [each.removeprefix("counted: ") for each in rest if each.startswith("counted: ")]
    assert "".join(re.findall(r"\d", "".join(counted))) == "123"
    assert [each for each in rest if not each.startswith("counted: ")] == [
        "said: hello from user | exit code: 0",
        "failed: oops | exit code: 3",
        "files: ['today.txt']",
        "lines: 3",
        "killed: True",
    ]


def test_pause_snapshot_fork(run):
    assert run("pause_snapshot_fork.py") == [
        "after the pause: half done | process still there: True",
        "from the snapshot: half done | the source: all done",
        "forks: ['copy 0', 'copy 1'] | the source: all done",
    ]


def test_execute_batch(run):
    assert run("execute_batch.sh") == [
        "0: python, exit code 0: 42",
        "1: bash, exit code 0: hello world",
        "2: python, exit code 1: no",
        "3: sh, timed out: ",
        "4: refused: unknown_language",
    ]


def test_streaming_with_node(server, leaves_nothing, tmp_path):
    packages = Path(os.environ.get("SOULBOX_TEST_JS", "/nowhere")) / "node_modules"
    if not (packages / "e2b").is_dir():
        pytest.skip("the npm package e2b is not installed: `./test js e2e` does it, or SOULBOX_TEST_JS names its folder")
    # Node looks for packages beside the program.
    (tmp_path / "node_modules").symlink_to(packages)
    program = shutil.copy(EXAMPLES / "streaming.mjs", tmp_path)
    lines = run_example(Path(program), server, tmp_path)
    # On a busy machine two pieces may come as one.
    assert [each.removeprefix("out: ") for each in lines] == [
        "line 1",
        "line 2",
        "line 3",
        "err: warning",
        "exit code 7 after: partial",
        "sorted: apple fig pear",
        "killed: true",
    ]


@pytest.mark.timeout(200)
def test_the_tutorial_an_agent_builds_a_project(run):
    (shown,) = shown_by("agent-builds-a-project")
    assert_printed(run("agent_builds_a_project.py", within=180), shown)


@pytest.mark.timeout(320)
def test_the_tutorial_a_class_of_submissions(run):
    (shown,) = shown_by("class-of-submissions")
    assert_printed(run("class_of_submissions.py", within=300), shown)


def counted(line: str) -> tuple[str, int]:
    """The process, and how many primes it has found."""
    found = re.fullmatch(r"process (\d+): (\d+) primes, the last is \d+", line)
    return found[1], int(found[2])


@pytest.mark.timeout(300)
def test_the_tutorial_pause_today(own_server, tmp_path):
    server = own_server().start()

    def run(*words: str) -> list[str]:
        return run_example(EXAMPLES / "pause_today.py", server, tmp_path, *words)

    first, second, third = shown_by("pause-today")
    today = run("today")
    assert_printed(today, first)
    sandbox = today[-1].removeprefix("paused: ")
    server.kill9()
    server.start()

    tomorrow = run("tomorrow", sandbox)
    assert_printed(tomorrow, second)
    process, count = counted(tomorrow[0])
    assert process == counted(today[0])[0] and count > counted(today[0])[1]
    with server.api() as api:
        assert api.get("/snapshots").json() == []
        assert api.get(f"/sandboxes/{sandbox}").json()["state"] == "paused"

    after = run("after-reboot", sandbox)
    assert_printed(after, third)
    assert counted(after[-1])[1] >= count, "it began from nothing, not from its file"
    with server.api() as api:
        assert api.get("/v2/sandboxes?state=running,paused").json() == []


@pytest.mark.timeout(300)
def test_the_tutorial_pause_today_when_the_machine_was_restarted(own_server, tmp_path):
    server = own_server().start()
    today = run_example(EXAMPLES / "pause_today.py", server, tmp_path, "today")
    sandbox = today[-1].removeprefix("paused: ")
    server.kill9()
    lose_memory(sandbox)
    server.start()
    after = run_example(EXAMPLES / "pause_today.py", server, tmp_path, "after-reboot", sandbox)
    assert_printed(after, shown_by("pause-today")[-1])
    assert counted(after[-1])[1] > counted(today[0])[1]
