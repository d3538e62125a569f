"""What `examples/` shows runs as it stands there, says what it should, and leaves nothing."""

import os
import re
import shutil
from pathlib import Path

import pytest

from support.examples import EXAMPLES, STARTERS, run_example

NEEDS_A_TEMPLATE = "code_interpreter.py"  # tests/interpreter/test_example.py
RUN_HERE = ["first_steps.py", "pause_snapshot_fork.py", "execute_batch.sh", "streaming.mjs"]


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
    return lambda name: run_example(EXAMPLES / name, server, tmp_path)


def test_every_example_is_tried_somewhere_and_told_of():
    programs = {each.name for each in EXAMPLES.iterdir() if each.suffix in STARTERS}
    assert programs == {*RUN_HERE, NEEDS_A_TEMPLATE}
    table = (EXAMPLES / "README.md").read_text()
    assert programs == set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", table, re.MULTILINE))


@pytest.mark.parametrize("name", [*RUN_HERE, NEEDS_A_TEMPLATE])
def test_an_example_says_at_its_top_how_to_run_it(name):
    head = "\n".join((EXAMPLES / name).read_text().splitlines()[:12])
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
