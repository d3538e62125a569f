"""A fresh root file system: Debian's smallest, with what the package depends on and nothing else.

Commands run in it as in a machine of its own: mounts, processes and the root are separate, the network
and the kernel are this machine's. Everything in it ends with the first process.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from machines.sources import mirror, proxies
from support.waiting import eventually

SUITE = "bookworm"
BUILD_WITHIN = 600.0
COMMAND_WITHIN = 180.0
# Databases and logs of the package manager itself.
KEPT_BY_DPKG = ("var/lib/dpkg/", "var/lib/apt/", "var/log/", "var/cache/", "etc/ld.so.cache")
# As a container's first process: it takes over what others leave, until it is killed.
FIRST = """
set -e
mount --make-rprivate /
if [ -n "$2" ]; then
    # As an image's layers are, with a volume for the data.
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$0"
    mkdir -p "$0/var/lib/soulbox"
    mount --bind "$2/volume" "$0/var/lib/soulbox"
else
    mount --bind "$0" "$0"
fi
mount --rbind /dev "$0/dev"
mount --rbind /sys "$0/sys"
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/run"
mount -t tmpfs tmpfs "$0/tmp"
cd "$0"
pivot_root . mnt
umount -l /mnt
echo ready
exec bash -c 'while :; do sleep 3600 & wait -n; done' > /dev/null < /dev/null
"""


def why_not() -> str | None:
    missing = [each for each in ("mmdebstrap", "unshare", "nsenter", "dpkg-deb") if shutil.which(each) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def make(folder: Path, packages: list[str], log: Path) -> Path:
    source = mirror()
    command = [
        "mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", f"--keyring={source.keyring}",
        *(f"--aptopt={each}" for each in proxies()),
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "locale", "info")),
        SUITE, str(folder), source.uri,
    ]  # fmt: skip
    with open(log, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=BUILD_WITHIN)
    assert done.returncode == 0, log.read_text(errors="replace")[-3000:]
    return folder


class Root:
    """`with Root(folder) as root`. With `layers`, what is in it is that of a container: `folder` is never
    written to, `layers` has what was changed, and a volume."""

    def __init__(self, folder: Path, layers: Path | None = None) -> None:
        self.folder = folder
        self.layers = layers
        self._holder: subprocess.Popen | None = None
        self._pid = 0

    def __enter__(self) -> "Root":
        words = [str(self.folder), "", ""]
        if self.layers is not None:
            for name in ("upper", "work", "volume", "merged"):
                (self.layers / name).mkdir(exist_ok=True)
            words = [str(self.layers / "merged"), str(self.folder), str(self.layers)]
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", FIRST, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != b"ready\n":
            raise AssertionError(self._holder.stderr.read().decode())
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self._pid = int(eventually(lambda: children.read_text().split())[0])
        return self

    def __exit__(self, *_) -> None:
        assert self._holder is not None
        self._holder.kill()
        self._holder.wait(30)
        # The kernel takes all of it away, after the last process.
        eventually(lambda: not Path(f"/proc/{self._pid}/root").exists(), within=30, what="the root's processes end")
        self._holder.stdout.close()
        self._holder.stderr.close()

    def command(self, *words: str) -> list[str]:
        return [
            "nsenter", f"--target={self._pid}", "--mount", "--pid", "--root", "--wd",
            "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
            "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *words,
        ]  # fmt: skip

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_WITHIN
        )
        assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, log: Path, *words: str) -> subprocess.Popen:
        with open(log, "ab") as out:
            return subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def take_in(self, file: Path) -> str:
        target = f"/root/{file.name}"
        with open(file, "rb") as content:
            subprocess.run(self.command("sh", "-c", 'cat > "$0"', target), stdin=content, check=True, timeout=COMMAND_WITHIN)
        return target

    def files(self) -> set[str]:
        """Everything that has a name, but what the package manager itself keeps."""
        found = set()
        for top, folders, names in os.walk(self.folder):
            folder = os.path.relpath(top, self.folder)
            for name in folders + names:
                path = os.path.normpath(os.path.join(folder, name))
                if not path.startswith(KEPT_BY_DPKG):
                    found.add(path)
        return found

    def mounts(self) -> list[str]:
        lines = Path(f"/proc/{self._pid}/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines]


def depends(package: Path) -> list[str]:
    field = subprocess.run(["dpkg-deb", "-f", package, "Depends"], check=True, capture_output=True, text=True).stdout
    return [re.split(r"[ (|]", each.strip())[0] for each in field.split(",")]
