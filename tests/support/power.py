"""A disk whose power can be cut: copies of it as they are at one moment.

The data folder lies on an ext4 in a file. What the kernel has not written into that file is lost with
the power, so a copy of the file is what a machine would find that comes up again.
"""

import os
import re
import signal
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from support.small_disk import run
from support.waiting import eventually

# A create waits for no disk. What it promises is on record within this time, and so is its end.
ON_RECORD_WITHIN = 2.0
STILL_WITHIN = 20.0
# Namespaces of other programs may have a copy of the mount for a while.
RELEASED_WITHIN = 90.0


class NeverAtRest(Exception):
    """No copy of the disk was one moment."""


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
        # Deleted files give their space back, so that copies stay small; and the kernel does not write
        # empty tables for minutes, in which there would be no moment at rest.
        run("mount", "-o", "loop,discard,noinit_itable", str(image or self.image), str(self.path))
        self._mounted = image or self.image

    def unmount(self) -> None:
        if self._mounted is None:
            return
        end = time.monotonic() + RELEASED_WITHIN
        while True:
            try:
                run("umount", str(self.path))
                break
            except RuntimeError as error:  # the last sandbox's disk is let go of in the kernel's own time
                if time.monotonic() > end:
                    raise RuntimeError(f"{error}; it is held by {self.holders() or 'nobody that can be found'}") from error
                time.sleep(0.05)
        self._mounted = None

    def holders(self) -> list[str]:
        """Mounts, loop devices and processes on this disk."""
        inside = f"{self.path}/"
        found = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if inside in line]
        for place in [*Path("/sys/block").glob("loop*/loop/backing_file"), *Path("/proc").glob("[0-9]*/cmdline")]:
            try:
                if os.fsencode(inside) in (text := place.read_bytes()):
                    found.append(f"{place}: {text.decode(errors='replace')[:200]}")
            except OSError:  # gone now
                pass
        return found

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

    def copy(self, to: Path, within: float = STILL_WITHIN) -> None:
        """As it is now, nothing flushed for it. One moment: if the kernel writes meanwhile, again."""
        end = time.monotonic() + within
        while True:
            before = self.writes()
            if before[1] == "0":
                run("cp", "--sparse=always", str(self.image), str(to))
                if self.writes() == before:
                    return
            if time.monotonic() > end:
                to.unlink(missing_ok=True)
                raise NeverAtRest(f"the kernel wrote to {self.path} all the time for {within:.0f} s")
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
    """The server stands still in the middle of whatever it does, all of it when the block begins."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: stands(pid), within=5, every=0.001, what=f"process {pid} stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stands(pid: int) -> bool:
    """No thread of it does anything more. One that waits for the disk (D) may: for it the power goes in
    the middle of a sync."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        states = [(tasks / each / "stat").read_text().rpartition(")")[2].split()[0] for each in os.listdir(tasks)]
    except (FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile: look again
        return False
    return all(each in "TtD" for each in states)


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
