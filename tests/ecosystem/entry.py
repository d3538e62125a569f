"""One row of the matrix: a package at a version, and the probe that drives it."""

import re
from dataclasses import dataclass

FEATURES = ("create", "commands", "failing command", "files", "PTY", "ports", "connect", "pause", "kill", "run code")
MODES = ("plain", "domain")


@dataclass(frozen=True)
class Limit:
    """Why a client cannot do what its probe tries, where that is the client's or E2B's own doing."""

    mode: str
    feature: str
    # A part of the failure that it explains: another failure is none of its business.
    failure: str
    reason: str


@dataclass(frozen=True)
class Entry:
    # What pip or npm installs; the first is the one that the row is named after.
    packages: tuple[str, ...]
    # A file in probes/: `.py` runs in a virtual environment, `.mjs` in a folder with node_modules.
    probe: str
    # Built in the server before: built-in templates, by name.
    templates: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    needs_python: tuple[int, int] = (3, 10)
    needs_node: int = 20
    # Of one run of the probe.
    seconds: float = 180.0
    # The registry has no newer one, where it was asked.
    is_newest: bool = False

    @property
    def is_python(self) -> bool:
        return self.probe.endswith(".py")

    @property
    def registry(self) -> str:
        return "PyPI" if self.is_python else "npm"

    @property
    def package(self) -> str:
        """Its name alone, without extras and version."""
        return re.match(r"@?[^@=<>~\[]+", self.packages[0]).group()

    @property
    def version(self) -> str:
        return re.split(r"==|(?<=.)@", self.packages[0])[-1]

    @property
    def name(self) -> str:
        return f"{self.registry} {self.package} {self.version}"

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")

    def explain(self, mode: str, feature: str, failure: str) -> str | None:
        """The reason for a failure that is not the server's."""
        for each in self.limits:
            if (each.mode, each.feature) == (mode, feature) and each.failure in failure:
                return each.reason
        return None
