"""A small file system of its own, so that a test can fill it."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from support.waiting import eventually

CHUNK = 1 << 20


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def free(self) -> int:
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Takes all the space but `leave` bytes; nothing gives way to it."""
        with open(self._filler, "ab", buffering=0) as filler:
            step = 64 * CHUNK
            while step >= 1024:
                want = min(step, self.free() - leave)
                try:
                    if want <= 0:
                        break
                    os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, want)
                except OSError:
                    step //= 2
            os.fsync(filler.fileno())
            if not leave:
                # What the file system had kept back for its own bookkeeping.
                try:
                    while True:
                        filler.write(b"x" * 1024)
                except OSError:
                    pass

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)
        os.sync()


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[SmallDisk]:
    image, mount = folder / "small.img", folder / "small"
    mount.mkdir(parents=True)
    with open(image, "wb") as file:
        file.truncate(mib << 20)
    run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    run("mount", "-o", "loop", str(image), str(mount))
    try:
        yield SmallDisk(mount)
    finally:
        # The loop device goes with the mount. The kernel ends what sandboxes had mounted on it a
        # moment after their processes.
        eventually(lambda: unmounted(mount), within=30, what="nothing uses the small disk any more")
        image.unlink()


def unmounted(mount: Path) -> bool:
    done = subprocess.run(["umount", str(mount)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and "busy" not in done.stderr:
        raise RuntimeError(f"umount {mount}: {done.stderr.strip()}")
    return done.returncode == 0


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
