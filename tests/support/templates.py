"""The Python clients' template builders with one face."""

from __future__ import annotations

import inspect
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from e2b import AsyncTemplate, Template

from support.blocking import Loop
from support.waiting import eventually

LONGEST_BUILD = 300


@dataclass
class Log:
    entries: list[Any] = field(default_factory=list)

    def __call__(self, entry: Any) -> None:
        self.entries.append(entry)

    @property
    def lines(self) -> list[str]:
        return [each.message for each in self.entries]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cached(self) -> list[str]:
        """The steps that were not run again."""
        return [each for each in self.lines if each.startswith("CACHED")]

    @property
    def ran(self) -> list[str]:
        """The steps that were run."""
        return [each for each in self.lines if re.match(r"\[builder \d+/\d+\] [A-Z]+ ", each)]


class Templates:
    """`Template` or `AsyncTemplate`, bound to one server; removes at the end what it built."""

    def __init__(self, kind: str, server: Any, loop: Loop | None, options: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._server = server
        self._options = options or {"api_key": server.key, "api_url": server.url}
        self._loop = loop
        self._class: Any = Template if kind == "sync" else AsyncTemplate
        self._built: set[str] = set()

    def new(self, **kwargs: Any) -> Any:
        return self._class(**kwargs)

    def name(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        self._built.add(name)
        return name

    def build(self, template: Any, name: str | None = None, **kwargs: Any) -> tuple[Any, Log]:
        log = kwargs.pop("log", None) or Log()
        name = name or self.name()
        self._built.add(name.partition(":")[0])
        info = self._call("build", template, name, on_build_logs=log, **kwargs)
        return info, log

    def start(self, template: Any, name: str | None = None, **kwargs: Any) -> Any:
        name = name or self.name()
        self._built.add(name.partition(":")[0])
        return self._call("build_in_background", template, name, **kwargs)

    def status(self, info: Any, **kwargs: Any) -> Any:
        return self._call("get_build_status", info, **kwargs)

    def finished(self, info: Any, within: float = 120) -> Any:
        """The status when it is no longer building."""

        def ended() -> Any:
            status = self.status(info)
            return status if status.status in ("ready", "error") else None

        return eventually(ended, within=within, every=0.2, what=f"build {info.build_id} ends")

    def log(self, info: Any) -> Log:
        """All that was said so far; a page has at most a hundred lines."""
        log = Log()
        while page := self.status(info, logs_offset=len(log.entries)).log_entries:
            log.entries += page
        return log

    def __getattr__(self, method: str) -> Any:
        # exists, assign_tags, remove_tags, get_tags
        return lambda *args, **kwargs: self._call(method, *args, **kwargs)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        async def calling() -> Any:
            result = getattr(self._class, method)(*args, **self._options, **kwargs)
            return await result if inspect.isawaitable(result) else result

        if self.kind == "sync":
            return getattr(self._class, method)(*args, **self._options, **kwargs)
        assert self._loop is not None
        return self._loop.run(calling(), LONGEST_BUILD)

    def finish(self) -> None:
        with self._server.api(self._options["api_key"]) as api:
            for name in self._built:
                api.delete(f"/templates/{name}")
