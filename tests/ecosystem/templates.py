"""The built-in templates that probes need, built once."""

from typing import Callable

from ecosystem.entry import Entry
from support.server import Server

BUILD_WITHIN = 1500.0


class Templates:
    def __init__(self, server: Server, say: Callable[..., None]) -> None:
        self._server = server
        self._say = say
        self._found: dict[str, str] = {}

    def missing(self, entry: Entry) -> str:
        """Why one of them is not there, or nothing."""
        for name in entry.templates:
            if name not in self._found:
                self._found[name] = self._build(name)
            if self._found[name]:
                return self._found[name]
        return ""

    def _build(self, name: str) -> str:
        # One that is built already is answered at once.
        self._say(f"    building the template {name}: this takes minutes the first time")
        built = self._server.cli("template", "build", "--builtin", name, timeout=BUILD_WITHIN)
        if built.returncode == 0:
            return ""
        told = " ".join(built.stderr.decode(errors="replace").split()).removeprefix("error: ").partition(" hint:")[0]
        return f"this server has no template `{name}`, which E2B has for everybody: {told[-300:]}"
