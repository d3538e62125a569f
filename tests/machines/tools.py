"""The programs that machines are made and booted with. `run` installs them; here they are looked for."""

import re
import shutil
import subprocess

from machines.recipe import Recipe

TO_BOOT = ("qemu-system-x86_64", "qemu-img", "ssh", "ssh-keygen")
TO_BUILD = ("mmdebstrap", "mke2fs", "chroot")


def why_not(recipe: Recipe) -> str | None:
    """Why this machine cannot be booted here, if so."""
    missing = [each for each in (*TO_BOOT, *TO_BUILD) if shutil.which(each) is None]
    if missing:
        return f"not installed, and apt could not help: {', '.join(missing)}"
    found = qemu_version()
    if found < recipe.qemu:
        return f"{recipe.name}'s kernel needs QEMU {recipe.qemu} or newer without KVM, and this is {found}"
    return None


def qemu_version() -> int:
    said = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, timeout=30).stdout
    found = re.search(r"version (\d+)", said)
    return int(found.group(1)) if found else 0
