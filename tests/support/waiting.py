"""Waiting for a thing to become true, instead of sleeping and hoping."""

import time
from typing import Callable, TypeVar

T = TypeVar("T")


def eventually(
    probe: Callable[[], T], within: float = 15.0, every: float = 0.05, what: str = ""
) -> T:
    """Calls `probe` until it returns something true, and returns that.

    An AssertionError inside counts as "not yet"; the last one is raised when the time is over.
    """
    end = time.monotonic() + within
    last: object = None
    while True:
        try:
            last = probe()
            if last:
                return last
            failure: BaseException | None = None
        except AssertionError as error:
            failure = error
        if time.monotonic() >= end:
            if failure is not None:
                raise failure
            raise AssertionError(f"not within {within} s: {what or probe}; last answer: {last!r}")
        time.sleep(every)
