"""A disk that does not answer while a server starts: it leaves soon when it is told to."""

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox

from support.server import Server
from support.small_disk import small_disk
from support.waiting import eventually

FREEZE, THAW = 0xC0045877, 0xC0045878  # of linux/fs.h
# What follows is the trial, which takes milliseconds: some attempts are too late.
BEFORE_THE_TRIAL, AFTER_IT = "all sandboxes together are bounded", "a trial sandbox was started"
ATTEMPTS = 5
# A start that hangs used to be waited for, for a minute.
LEAVES_WITHIN = 30

pytestmark = pytest.mark.timeout(240)


class Disk:
    def __init__(self, path: Path) -> None:
        self._folder = os.open(path, os.O_RDONLY)

    @contextmanager
    def frozen(self):
        fcntl.ioctl(self._folder, FREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(self._folder, THAW, 0)

    def close(self) -> None:
        os.close(self._folder)


def test_a_stop_during_a_trial_that_hangs_ends_soon_and_the_next_start_clears_up(tmp_path_factory):
    with small_disk(tmp_path_factory.mktemp("soulbox-frozen"), 3000) as small:
        server, disk = Server(small.path / "data"), Disk(small.path)
        # On the frozen disk nobody could write it.
        server.log = small.path.parent / "server.log"
        try:
            assert any(leaves_soon(server, disk) for _ in range(ATTEMPTS)), "no trial was met: nothing was tested"
            server.start()
            assert os.listdir(server.data / "sandboxes") == []
            Sandbox.create(timeout=60, **server.sdk).kill()
        finally:
            server.finish()
            disk.close()


def leaves_soon(server: Server, disk: Disk) -> bool:
    """`False`: the trial was over before the disk was frozen."""
    server.log.write_bytes(b"")
    process = server.spawn()
    end = time.monotonic() + 60
    while BEFORE_THE_TRIAL not in server.log.read_text():
        assert process.poll() is None and time.monotonic() < end, server.log_tail()
    with disk.frozen():
        met = AFTER_IT not in server.log.read_text()
        process.terminate()
        if met:
            # A thread that waits for the disk keeps the process there; the server has done its part.
            eventually(lambda: "stopped before the start was complete" in server.log.read_text(), within=LEAVES_WITHIN)
    process.wait(30)
    return met
