"""Builds a machine's disk and keeps it: kernel, initrd and a file system, without SoulBox.

As a program: `image.py NAME…` builds what is missing, and shows how far it is.
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from machines import recipe as recipes  # noqa: E402
from machines.recipe import MACHINES, Recipe  # noqa: E402
from machines.sources import mirror, proxies  # noqa: E402

CACHE = Path(os.environ.get("SOULBOX_MACHINES_CACHE", "/var/cache/soulbox-machines"))
SIZE = "12G"  # sparse
BUILD_WITHIN = 1800.0

Say = Callable[[str], None]


class BuildFailed(Exception):
    pass


@dataclass(frozen=True)
class Image:
    recipe: Recipe
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"

    @property
    def key(self) -> Path:
        """With which ssh gets in. It opens nothing but machines of this cache."""
        return self.folder / "key"


def ready(recipe: Recipe, say: Say = print) -> Image:
    """The cached image, or a new one."""
    image = Image(recipe, CACHE / recipe.key)
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{recipe.name}.lock", "w") as lock:
        # Two builds at a time would only be slower; the second finds what the first has made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.folder.exists():
            _sweep(recipe)
            _build(recipe, image.folder, say)
    return image


def _sweep(recipe: Recipe) -> None:
    """Images of earlier recipes, and what a killed build has left."""
    for old in CACHE.glob(f"{recipe.name}-*"):
        shutil.rmtree(old, ignore_errors=True)


def _build(recipe: Recipe, target: Path, say: Say) -> None:
    began = time.monotonic()

    def step(what: str) -> None:
        say(f"{recipe.name}: {time.monotonic() - began:4.0f} s  {what}")

    work = Path(tempfile.mkdtemp(prefix=f"{recipe.name}-new-", dir=CACHE))
    try:
        made, root = work / "made", work / "root"
        made.mkdir()
        log = work / "log"
        step(f"packages of {recipe.suite} (one to three minutes)")
        _bootstrap(recipe, root, log)
        step("the Python client")
        _fetch_client(recipe, work, root / "opt" / "wheels", log)
        step("users, network, initrd")
        _configure(root, made, log)
        step("the disk")
        _run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(root), str(made / "disk.img"), SIZE], log)
        step("done")
        os.rename(made, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _bootstrap(recipe: Recipe, root: Path, log: Path) -> None:
    source = mirror()
    excluded = [f"--dpkgopt=path-exclude={each}" for each in recipes.LEFT_OUT]
    options = [f"--aptopt={each}" for each in proxies()]
    _run(
        ["mmdebstrap", "--variant=apt", f"--include={','.join(recipes.PACKAGES)}", f"--keyring={source.keyring}",
         *excluded, *options, recipe.suite, str(root), source.uri],
        log,
    )  # fmt: skip


def _fetch_client(recipe: Recipe, work: Path, wheels: Path, log: Path) -> None:
    wheels.mkdir(parents=True)
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        # A system's own Python mostly comes without.
        _run([python, "-m", "venv", str(work / "venv")], log)
        python = str(work / "venv" / "bin" / "python")
    _run(
        [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:",
         "--python-version", recipe.python, "-d", str(wheels), recipe.e2b],
        log,
    )  # fmt: skip


def _configure(root: Path, made: Path, log: Path) -> None:
    for name, content in recipes.FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content)
    # Some of them look into /proc, whose mount ends with the command, also with one that is killed.
    inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" sh -ec "$1"'
    for command in recipes.COMMANDS:
        _run(["unshare", "--mount", "sh", "-ec", inside, str(root), command], log)
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made / "key")], log)
    public = (made / "key.pub").read_text()
    for home, owner in (("root", 0), ("home/dev", 1000)):
        folder = root / home / ".ssh"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        (folder / "authorized_keys").write_text(public)
        for path in (folder, folder / "authorized_keys"):
            os.chown(path, owner, owner)
    for name, found in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        newest = max((root / "boot").glob(found))
        shutil.copy(newest, made / name)


def _run(command: list[str], log: Path) -> None:
    environment = os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, timeout=BUILD_WITHIN
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise BuildFailed(f"{command[0]} failed with {done.returncode}:\n{tail}")


def main() -> int:
    for name in sys.argv[1:]:
        try:
            image = ready(MACHINES[name], lambda line: print(line, file=sys.stderr, flush=True))
        except Exception as error:  # whatever it is, there is no image, and the reason is what is asked for
            print(f"{name}: no image: {error}", file=sys.stderr)
            return 3
        print(image.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
