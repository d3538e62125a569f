"""Lets one test drive both Python clients: awaits what the asynchronous one returns."""

import asyncio
import functools
import inspect
import threading
from typing import Any

# Longer than any single call of the suites may take; each has a bound of its own below it.
LONGEST_CALL = 110


class Loop:
    """An event loop on its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any, timeout: float = LONGEST_CALL) -> Any:
        async def awaited() -> Any:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(awaited(), self.loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)


class Blocking:
    """Wraps an object of the asynchronous client: its methods return results, not awaitables."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return _wrap(value, self._loop)

        @functools.wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Called on the loop's thread: the client makes tasks and locks of that loop.
            async def calling() -> Any:
                result = value(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

            return _wrap(self._loop.run(calling()), self._loop)

        return call


def _wrap(value: Any, loop: Loop) -> Any:
    module = type(value).__module__
    if module.startswith(("e2b.sandbox_async", "e2b.volume", "e2b.template_async")):
        return Blocking(value, loop)
    return value
