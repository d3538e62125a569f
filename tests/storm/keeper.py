"""The server of a storm: killed at any moment, and started again at once."""

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import AsyncIterator

from storm import wire
from storm.tally import Tally
from support.power import stopped
from support.server import Server

# From the kill to the first sign of tracked_one, with a thousand sandboxes to take up: what takes longer
# counts as stuck, but a server that tracked is waited for until the bound, and the storm goes on.
SLOW_FROM = 60.0
BACK_WITHIN = 180.0
# The server's default, in MiB.
MEMORY_EACH = 512


def machine_memory() -> int:
    """In MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


class Unusable(Exception):
    """There can be no storm on this server: it does not work in fair weather."""


class Keeper:
    def __init__(self, server: Server) -> None:
        self.server = server
        # Counts the kills: a request that began in another epoch may have been cut by one.
        self.epoch = 0
        self.up = asyncio.Event()
        # Seconds by which starts were slow, all together: no client is to blame for them.
        self.lateness = 0.0
        self._turn = asyncio.Lock()

    @property
    def port(self) -> int:
        return self.server.http_port

    async def is_up(self) -> None:
        async with asyncio.timeout(2 * BACK_WITHIN + 30):
            # Killed again before we came to run: wait again.
            while not self.up.is_set():
                await self.up.wait()

    async def start_first(self) -> None:
        """Unlike later: a server that ends now would end again."""
        self.server.environment = {"SOULBOX_WARM": "0"}
        try:
            process = self.server.spawn()
        except (OSError, RuntimeError) as error:
            raise Unusable(f"the server cannot start: {error}") from error
        end = time.monotonic() + BACK_WITHIN
        while time.monotonic() < end:
            if process.poll() is not None:
                raise Unusable(f"the server ended with {process.returncode} instead of starting: {self.complaint()}")
            if await self._answers():
                return
        raise Unusable(f"the server did not answer within {BACK_WITHIN:.0f} s: {self.complaint()}")

    def complaint(self) -> str:
        """The line of its log that says best what is wrong."""
        lines = [each for each in self.server.log_tail(15).splitlines() if each.strip()]
        errors = [each for each in lines if each.startswith("error:")]
        return (errors or lines or ["it said nothing"])[-1]

    async def start(self, tally: Tally, warm: int = 0, room: int | None = None) -> None:
        """`room`: for how many sandboxes there is memory."""
        self.server.environment = {"SOULBOX_WARM": str(warm)}
        if room is not None:
            factor = room * MEMORY_EACH / machine_memory()
            self.server.environment |= {"SOULBOX_OVERCOMMIT_MEMORY": f"{factor:.3f}", "SOULBOX_ADMISSION_WAIT": "1s"}
        async with self._turn:
            await self._start(tally, time.monotonic())

    async def stop(self) -> None:
        """Politely."""
        async with self._turn:
            self.epoch += 1
            self.up.clear()
            await asyncio.to_thread(self.server.terminate)

    async def kill(self, tally: Tally, again: float | None = None, polite: bool = False) -> None:
        """With `again`, a second time so many seconds later, while it takes up its sandboxes."""
        async with self._turn:
            self.epoch += 1
            self.up.clear()
            began = time.monotonic()
            if polite:
                await asyncio.to_thread(self.server.terminate)
                began = time.monotonic()
            else:
                await self._kill(tally)
            if again is not None:
                self.server.spawn()
                await asyncio.sleep(again)
                await self._kill(tally)
            await self._start(tally, began)
            tally.recoveries.append(time.monotonic() - began)

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[None]:
        """The server is there, and does nothing. Who waits for an answer waits longer."""
        async with self._turn:
            with stopped(self.server.pid):
                yield

    async def _kill(self, tally: Tally) -> None:
        tally.server_kills += 1
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.server.process.wait, 30)

    async def _start(self, tally: Tally, began: float) -> None:
        process = self.server.spawn()
        while (took := time.monotonic() - began) < BACK_WITHIN:
            if process.poll() is not None:
                tally.problem("stuck", f"the server ended with {process.returncode}:\n{self.server.log_tail(15)}")
                process = self.server.spawn()
            if await self._answers():
                if took > SLOW_FROM:
                    tally.slow_starts += 1
                    tally.problem("stuck", f"the server was back only after {took:.0f} s")
                    self.lateness += took - SLOW_FROM
                return
        tally.problem("stuck", f"the server was not back within {BACK_WITHIN:.0f} s:\n{self.server.log_tail(15)}")
        raise RuntimeError("the server does not come back: the storm cannot go on")

    async def _answers(self) -> bool:
        try:
            if (await wire.call(self.port, "GET", "/health", within=5)).status < 300:
                self.up.set()
                return True
        except (wire.Cut, wire.Late):
            pass
        await asyncio.sleep(0.02)
        return False
