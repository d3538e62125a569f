"""An environment for each entry, made when it is first wanted and kept in the cache."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ecosystem.entry import Entry

INSTALL_WITHIN = 400.0
PROBES = Path(__file__).resolve().parent / "probes"


class CannotInstall(Exception):
    """With the reason for the table."""


class Environment:
    def __init__(self, cache: Path, entry: Entry) -> None:
        self.entry = entry
        self.folder = cache / entry.slug
        self._complete = self.folder / "installed.json"

    @property
    def is_there(self) -> bool:
        """Complete, and of the same packages."""
        return self._complete.exists() and json.loads(self._complete.read_text()) == list(self.entry.packages)

    def make(self) -> None:
        if self.is_there:
            return
        self.remove()
        self.folder.mkdir(parents=True)
        (self._make_python if self.entry.is_python else self._make_node)()
        self._complete.write_text(json.dumps(self.entry.packages))

    def _make_python(self) -> None:
        python = find_python(self.entry.needs_python)
        install([python, "-m", "venv", str(self.folder / "venv")], self.folder)
        pip = [str(self.python), "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
        install([*pip, *self.entry.packages], self.folder)

    def _make_node(self) -> None:
        (self.folder / "package.json").write_text(json.dumps({"name": "probe", "private": True, "type": "module"}))
        # npm has Node itself, for packages that want a newer one than this machine's.
        newer = (f"node@{self.entry.needs_node}",) if node_version() < self.entry.needs_node else ()
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        install([*npm, *self.entry.packages, *newer], self.folder)

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def command(self) -> list[str]:
        """What runs the probe. Node looks for packages beside a program, so the probes are copied there."""
        if self.entry.is_python:
            return [str(self.python), str(PROBES / self.entry.probe)]
        for each in PROBES.glob("*.mjs"):
            shutil.copy(each, self.folder)
        own = self.folder / "node_modules" / "node" / "bin" / "node"
        return [str(own) if own.exists() else "node", str(self.folder / self.entry.probe)]

    @property
    def programs(self) -> Path:
        """Where the packages' own programs are."""
        return self.python.parent if self.entry.is_python else self.folder / "node_modules" / ".bin"

    def sdk_version(self) -> str:
        """Of the `e2b` that came with the packages, or nothing."""
        if not self.entry.is_python:
            found = self.folder / "node_modules" / "e2b" / "package.json"
            return json.loads(found.read_text())["version"] if found.exists() else ""
        found = list(self.folder.glob("venv/lib/python3*/site-packages/e2b-*.dist-info"))
        return found[0].name.removeprefix("e2b-").removesuffix(".dist-info") if found else ""

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def install(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_WITHIN)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"`{command[0]}` has not ended within {INSTALL_WITHIN:.0f} s") from None
    if done.returncode != 0:
        raise CannotInstall(" ".join((done.stderr or done.stdout).split())[-300:])


def find_python(wanted: tuple[int, int]) -> str:
    """This one, or another of this machine that is new enough."""
    if sys.version_info[:2] >= wanted:
        return sys.executable
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for minor in range(wanted[1], wanted[1] + 4):
        for each in (f"python3.{minor}", *map(str, sorted(home.glob(f"versions/3.{minor}.*/bin/python3")))):
            if shutil.which(each) and subprocess.run([each, "-c", "import venv"], capture_output=True).returncode == 0:
                return each
    raise CannotInstall(f"needs Python {wanted[0]}.{wanted[1]} or newer, which is not on this machine")


def node_version() -> int:
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30)
    return int(told.stdout.lstrip("v").partition(".")[0])
