"""Runs one probe in one mode, and reads what it tells."""

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ecosystem.entry import FEATURES, Entry
from ecosystem.environments import Environment
from support.server import PROJECT, Server, binary, clean_environment

HOOKS = Path(__file__).resolve().parent / "hooks"
LOCALHOST = PROJECT / "tests" / "e2e-js" / "localhost.cjs"

NOT_OURS = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "NODE_OPTIONS")


@dataclass
class Cell:
    # ok, failed, or not offered
    state: str
    reason: str = ""


@dataclass
class Outcome:
    cells: dict[str, Cell] = field(default_factory=dict)
    seconds: float = 0.0
    # What it said beside the features, for whoever looks into a failure.
    said: str = ""

    def count(self, state: str) -> int:
        return sum(1 for each in self.cells.values() if each.state == state)


def all_cells(state: str, reason: str) -> Outcome:
    return Outcome({feature: Cell(state, reason) for feature in FEATURES})


def variables(server: Server, mode: str) -> dict[str, str]:
    """As after `. DIR/env` or `. DIR/env.tls`, and names that resolve."""
    keep = {name: value for name, value in clean_environment().items() if name not in NOT_OURS}
    return keep | (server.env if mode == "plain" else server.env_tls) | {
        "ECOSYSTEM_MODE": mode,
        "ECOSYSTEM_SOULBOX": str(binary()),
        # For the programs that a probe runs with the server's own command line.
        "ECOSYSTEM_DATA": str(server.data),
        "PYTHONPATH": str(HOOKS),
        "NODE_OPTIONS": f"--require {LOCALHOST}",
    }  # fmt: skip


def probe(entry: Entry, environment: Environment, server: Server, mode: str) -> Outcome:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soulbox-ecosystem-") as folder:
        told, late = run(environment, variables(server, mode), Path(folder), entry.seconds)
    outcome = read(told, late)
    outcome.seconds = time.monotonic() - begin
    for feature, cell in outcome.cells.items():
        if cell.state == "failed" and (reason := entry.explain(mode, feature, cell.reason)):
            outcome.cells[feature] = Cell("not offered", reason)
    # A probe that failed has left its sandboxes, and the next one counts on none.
    server.remove_all_sandboxes()
    return outcome


def run(environment: Environment, variables: dict[str, str], folder: Path, seconds: float) -> tuple[str, str]:
    """What it told, and why it did not tell all."""
    variables |= {
        "PATH": f"{environment.programs}:{os.environ['PATH']}",
        # Some keep settings and caches there: not those of whoever runs this.
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        # Compiled once, and not into the project.
        "PYTHONPYCACHEPREFIX": str(environment.folder / "compiled"),
    }
    process = subprocess.Popen(
        environment.command(),
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=seconds)
        return told, f"the probe ended with {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        told, _ = process.communicate()
        return told, f"the probe has not ended within {seconds:.0f} s"


def read(told: str, late: str) -> Outcome:
    outcome, said = Outcome(), []
    for line in told.splitlines():
        if line.startswith('{"feature"'):
            cell = json.loads(line)
            outcome.cells[cell["feature"]] = Cell(cell["state"], cell["reason"])
        else:
            said.append(line)
    outcome.said = "\n".join(said)
    missing = late or "the probe says nothing of it"
    if late and said:
        missing += f": {said[-1].strip()[:200]}"
    for feature in FEATURES:
        outcome.cells.setdefault(feature, Cell("failed", missing))
    return outcome
