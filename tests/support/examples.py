"""The programs in `examples/`, run as their readers would."""

import subprocess
import sys
from pathlib import Path

from support.server import PROJECT, Server, clean_environment

EXAMPLES = PROJECT / "examples"
STARTERS = {".py": [sys.executable], ".mjs": ["node"], ".sh": ["bash"]}


def run_example(program: Path, server: Server, folder: Path, within: float = 90) -> list[str]:
    """The lines that it printed; it must succeed and complain about nothing."""
    ran = subprocess.run(
        [*STARTERS[program.suffix], program],
        cwd=folder,
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    return ran.stdout.splitlines()
