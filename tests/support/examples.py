"""The programs in `examples/`, run as their readers would, and the tutorials that show them."""

import re
import subprocess
import sys
from pathlib import Path

from docs.pages import page

from support.server import PROJECT, Server, clean_environment

EXAMPLES = PROJECT / "examples"
STARTERS = {".py": [sys.executable], ".mjs": ["node"], ".sh": ["bash"]}


def run_example(program: Path, server: Server, folder: Path, *words: str, within: float = 90) -> list[str]:
    """The lines that it printed; it must succeed and complain about nothing."""
    ran = subprocess.run(
        [*STARTERS[program.suffix], program, *words],
        cwd=folder,
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    return ran.stdout.splitlines()


def shown_by(tutorial: str) -> list[list[str]]:
    """The lines that a tutorial says are printed, for each run of its program; the same in every language."""
    english, chinese = (
        [each.text.splitlines() for each in page(PROJECT / folder / f"{tutorial}.md").blocks if each.title == "output"]
        for folder in ("docs/tutorials", "docs/zh/tutorials")
    )
    assert english and english == chinese
    return english


def assert_printed(lines: list[str], shown: list[str]) -> None:
    """What was printed is what is shown, where `…` stands for what differs from run to run."""
    patterns = [".+".join(map(re.escape, each.split("…"))) for each in shown]
    assert len(lines) == len(shown), lines
    differ = [(line, each) for line, each, pattern in zip(lines, shown, patterns) if not re.fullmatch(pattern, line)]
    assert differ == []
