"""A disk whose power can be cut: copies of it as they are at one moment.

The data folder lies on an ext4 in a file. What the kernel has not written into that file is lost with
the power, so a copy of the file is what a machine would find that comes up again.
"""

import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from support.small_disk import run

STILL_WITHIN = 20.0
# Namespaces of other programs may have a copy of the mount for a while.
RELEASED_WITHIN = 90.0


class PowerDisk:
    def __init__(self, folder: Path, mib: int) -> None:
        self.image, self.path = folder / "disk.img", folder / "disk"
        self.path.mkdir(parents=True)
        with open(self.image, "wb") as file:
            file.truncate(mib << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self._mounted: Path | None = None

    def mount(self, image: Path | None = None) -> None:
        """Also a copy comes here: paths in the data folder stay as they were."""
        assert self._mounted is None
        # Deleted files give their space back, so that copies stay small.
        run("mount", "-o", "loop,discard", str(image or self.image), str(self.path))
        self._mounted = image or self.image

    def unmount(self) -> None:
        if self._mounted is None:
            return
        end = time.monotonic() + RELEASED_WITHIN
        while True:
            try:
                run("umount", str(self.path))
                break
            except RuntimeError:  # the last sandbox's disk is let go of in the kernel's own time
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self._mounted = None

    @property
    def device(self) -> str:
        found = subprocess.run(
            ["findmnt", "-n", "-o", "SOURCE", str(self.path)], capture_output=True, text=True, check=True
        )
        return Path(found.stdout.strip()).name

    def writes(self) -> tuple[tuple[str, ...], str]:
        """What was written to the device so far, and how much is under way."""
        words = Path(f"/sys/block/{self.device}/stat").read_text().split()
        return tuple(words[4:8] + words[11:]), words[8]

    def copy(self, to: Path) -> None:
        """As it is now, nothing flushed for it. One moment: if the kernel writes meanwhile, again."""
        end = time.monotonic() + STILL_WITHIN
        while True:
            before = self.writes()
            if before[1] == "0":
                run("cp", "--sparse=always", str(self.image), str(to))
                if self.writes() == before:
                    return
            assert time.monotonic() < end, "the disk did not come to rest"
            time.sleep(0.01)

    @contextmanager
    def mounted(self, image: Path | None = None) -> Iterator[Path]:
        self.mount(image)
        try:
            yield self.path
        finally:
            self.unmount()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The server stands still in the middle of whatever it does."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def play_reboot(data: Path) -> None:
    """To a server on this folder the machine was started anew since: its records name another boot, and
    its files are older than this one."""
    boot, other = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(uuid.uuid4())
    before = time.time() - float(Path("/proc/uptime").read_text().split()[0]) - 60
    for folder in (data / "sandboxes").iterdir():
        for file in folder.glob("*.json"):
            text = file.read_text(errors="replace")
            if boot in text:
                file.write_text(re.sub(re.escape(boot), other, text))
            os.utime(file, (before, before))


def disks(data: Path) -> dict[str, Path]:
    """Writable disks of sandboxes, wherever they are kept, by the name of their folder."""
    return {file.parent.name: file for file in data.rglob("disk.img") if "snapshots" not in file.parts}


def drop(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
