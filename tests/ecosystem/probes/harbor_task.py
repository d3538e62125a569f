"""Harbor: a whole task of Terminal-Bench's kind with the oracle agent, so no model is asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

from e2b import Sandbox
from harbor.environments.definition import environment_content_hash

from features import equal, feature, main, no_call

SETTINGS = """\
version = "1.0"
[metadata]
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 60.0
[environment]
build_timeout_sec = 120.0
"""
SOLUTION = "#!/bin/bash\necho hello > /root/out.txt\n"
WRONG = "#!/bin/bash\necho other > /root/out.txt\nexit 3\n"
TEST = """\
#!/bin/bash
mkdir -p /logs/verifier
grep -q hello /root/out.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
jobs: dict[str, Path] = {}


def task(name: str, solution: str) -> Path:
    folder = Path(name)
    for part, text in {
        "task.toml": SETTINGS,
        "instruction.md": "write hello to /root/out.txt\n",
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /root\n",
        "solution/solve.sh": solution,
        "tests/test.sh": TEST,
    }.items():
        path = folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return folder


def make_template(folder: Path) -> None:
    """Of the name that Harbor looks for: it builds nothing then, and no public registry is asked."""
    digest = environment_content_hash(folder / "environment", docker_image=None)[:12]
    line = '. "$ECOSYSTEM_DATA/env" && exec "$ECOSYSTEM_SOULBOX" template from-host -t "$0"'
    subprocess.run(["sh", "-c", line, f"{folder.name}__{digest}"], check=True, stdout=subprocess.DEVNULL)


def run(folder: Path) -> dict:
    """Its result, as Harbor wrote it."""
    make_template(folder)
    jobs[folder.name] = Path(f"jobs-{folder.name}")
    command = ["harbor", "run", "-p", str(folder), "-a", "oracle", "-e", "e2b", "-o", str(jobs[folder.name])]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"CI": "1"})
    print(done.stdout, file=sys.stderr)
    assert done.returncode == 0, done.stdout[-300:]
    (result,) = [each for each in jobs[folder.name].glob("*/*/result.json")]
    return json.loads(result.read_text())


@feature("create")
def create() -> None:
    result = run(task("right", SOLUTION))
    equal((result["verifier_result"]["rewards"], result.get("exception_info")), ({"reward": 1.0}, None))


@feature("commands")
def commands() -> None:
    """The oracle's script, as root."""
    (log,) = jobs["right"].glob("*/*/agent/oracle.txt")
    equal(log.read_text(), "")


@feature("failing command")
def failing_command() -> None:
    result = run(task("wrong", WRONG))
    equal(result["verifier_result"]["rewards"], {"reward": 0.0})


@feature("files")
def files() -> None:
    """Solution and tests went up, the reward came down."""
    (reward,) = jobs["right"].glob("*/*/verifier/reward.txt")
    equal(reward.read_text(), "1\n")


@feature("kill")
def kill() -> None:
    pages, left = Sandbox.list(), []
    while pages.has_next:
        left += pages.next_items()
    equal(left, [])


no_call("PTY", "ports", "connect", "pause", "run code")
main()
