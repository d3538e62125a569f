"""Two lanes of suites share the machine: most tests run beside another one, some only alone.

`./test` names a folder in SOULBOX_TEST_TURNS; without it there is one lane and nothing to wait for.
A test holds its turn from its set-up to its end. Whoever wants to be alone also keeps new ones from
beginning, so that it need not wait for a moment in which the other lane happens to pause.
"""

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator

# The longest that one test may take, and some.
LONGEST = 1500.0


class Turn:
    def __init__(self) -> None:
        folder = os.environ.get("SOULBOX_TEST_TURNS")
        self._folder = Path(folder) if folder else None
        self._held: IO[bytes] | None = None
        self.is_alone = self._folder is None

    def take(self, alone: bool) -> None:
        if self._folder is None:
            return
        assert self._held is None, "this process has its turn already"
        machine = open(self._folder / "machine", "ab")
        with open(self._folder / "gate", "ab") as gate:
            _lock(gate, fcntl.LOCK_EX)
            _lock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._held, self.is_alone = machine, alone

    def give_up(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held, self.is_alone = None, False

    @contextmanager
    def taken(self, alone: bool = False) -> Iterator[None]:
        self.take(alone)
        try:
            yield
        finally:
            self.give_up()

    @contextmanager
    def alone_for_a_moment(self) -> Iterator[None]:
        """In a test that shares the machine otherwise, for the part that is measured."""
        self.give_up()
        self.take(alone=True)
        try:
            yield
        finally:
            self.give_up()
            self.take(alone=False)


def _lock(file: IO[bytes], kind: int) -> None:
    end = time.monotonic() + LONGEST
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise RuntimeError(f"the other lane did not give way within {LONGEST:.0f} s") from None
        time.sleep(0.02)


turn = Turn()
