"""A storm that is told to stop ends in order: its sandboxes, its server, its folder."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Sequence

from storm.keeper import BACK_WITHIN
from support.power import PowerDisk
from support.server import Server

# A create that was cut by the stop may still become a sandbox after all others have ended.
LOOKS = 3


class Stop:
    """The first of these signals cancels the storm; those that follow wait for its end with us."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._cancel = lambda: None
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, self._heard)

    def _heard(self, number: int, _frame) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            print(f"storm: {self.signal.name}, ending the sandboxes and the server", flush=True)
            self._cancel()

    def cancels_this_task(self) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def cancel() -> None:
            # Afterwards everything is being taken away already.
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        self._cancel = cancel
        if self.signal is not None:
            task.cancel()


def end_all(server: Server) -> None:
    """Also if the server lies killed and its sandboxes go on."""
    for _ in range(LOOKS):
        server.finish()
        if server.process is None or not sandboxes_of(server):
            return
        server.start(within=BACK_WITHIN)
    server.finish()


def sandboxes_of(server: Server) -> list[Path]:
    folder = server.data / "sandboxes"
    return list(folder.iterdir()) if folder.exists() else []


def leave_nothing(server: Server | None, disk: PowerDisk | None, scratch: Path, keep: Sequence[Path] = ()) -> None:
    """But what is to be kept of the folder."""
    try:
        if server is not None:
            end_all(server)
        if disk is not None:
            disk.unmount()
    except (RuntimeError, AssertionError, OSError) as error:
        where = server.data if server else scratch
        print(f"storm: sandboxes may be left; `soulbox serve --data-dir {where}` finds them: {error}", flush=True)
        return
    for each in [each for each in scratch.iterdir() if each not in keep]:
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink()
    if not keep:
        scratch.rmdir()
