"""A machine that nobody has set up: this one, in mount and network namespaces of its own. What is written to
/etc, /usr/local and /var/lib stays in it; its network is a loopback alone."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

OVERLAID = ("/etc", "/usr/local", "/var/lib")

SETUP = """
set -e
ip link set lo up
mount -t tmpfs tmpfs "$1"
for folder in {folders}; do
    name=$(echo "$folder" | tr / _)
    mkdir -p "$1/$name/upper" "$1/$name/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1/$name/upper,workdir=$1/$name/work" "$folder"
done
mkdir "$1/home"
echo ready
exec cat
"""

# Every path below, with its kind, mode, owner and content.
LIST = """
import hashlib, json, os, stat, sys
found = {}
for top in sys.argv[1:]:
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            what = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]
            if stat.S_ISLNK(status.st_mode):
                what.append(os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                what.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
            found[path] = what
json.dump(found, sys.stdout)
"""


class FreshMachine:
    def __init__(self, holder: subprocess.Popen, folder: Path) -> None:
        self.holder = holder
        self.home = folder / "home"

    @property
    def enter(self) -> list[str]:
        """What to put in front of a command that is to run there."""
        return ["nsenter", "--target", str(self.holder.pid), "--mount", "--net", "--"]

    @property
    def environment(self) -> dict[str, str]:
        """A new user's."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}

    def run(self, *command: str, env: dict[str, str] | None = None, timeout: float = 60, **options):
        return subprocess.run(
            [*self.enter, *command],
            env=self.environment | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && rm -f "$1" && printf %s "$2" > "$1"', "-", path, text, check=True)

    def read(self, path: str) -> str:
        return self.run("cat", path, check=True).stdout

    def everything(self) -> dict[str, list]:
        listed = self.run(sys.executable, "-c", LIST, *OVERLAID, check=True).stdout
        return json.loads(listed)


@contextmanager
def fresh_machine(folder: Path):
    folder.mkdir()
    script = SETUP.format(folders=" ".join(OVERLAID))
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script, "-", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "ready\n"
        yield FreshMachine(holder, folder)
    finally:
        # Its last process: the namespaces go with it.
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()
