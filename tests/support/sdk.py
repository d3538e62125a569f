"""The Python clients with one face."""

from __future__ import annotations

from typing import Any

from e2b import AsyncSandbox, Sandbox

from support.blocking import Blocking, Loop


class Sdk:
    """`Sandbox` or `AsyncSandbox`, bound to one server; remembers what it made."""

    def __init__(self, kind: str, options: dict[str, str], loop: Loop | None) -> None:
        self.kind = kind
        self.options = options
        self._cls: Any = Sandbox if kind == "sync" else Blocking(AsyncSandbox, loop)
        self._made: list[str] = []

    def create(self, **kwargs: Any) -> Any:
        sandbox = self._cls.create(**(self.options | kwargs))
        self._made.append(sandbox.sandbox_id)
        return sandbox

    def connect(self, sandbox_id: str, **kwargs: Any) -> Any:
        return self._cls.connect(sandbox_id, **(self.options | kwargs))

    def list(self, **kwargs: Any) -> Any:
        return self._cls.list(**(self.options | kwargs))

    def list_all(self, **kwargs: Any) -> list[Any]:
        pages = self.list(**kwargs)
        items = []
        while pages.has_next:
            items += pages.next_items()
        return items

    def kill(self, sandbox_id: str, **kwargs: Any) -> bool:
        return self._cls.kill(sandbox_id, **(self.options | kwargs))

    def get_info(self, sandbox_id: str, **kwargs: Any) -> Any:
        return self._cls.get_info(sandbox_id, **(self.options | kwargs))

    def set_timeout(self, sandbox_id: str, timeout: int, **kwargs: Any) -> None:
        self._cls.set_timeout(sandbox_id, timeout, **(self.options | kwargs))

    def finish(self) -> None:
        for sandbox_id in self._made:
            try:
                self.kill(sandbox_id)
            except Exception:  # the test's own failure is the one to show
                pass
