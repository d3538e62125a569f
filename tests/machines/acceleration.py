"""Whether KVM really runs a guest here. Its device may open and every guest hang."""

import functools
import subprocess
from pathlib import Path

from machines.image import Image

EMULATED = ["-accel", "tcg,thread=multi", "-cpu", "max"]
NATIVE = ["-accel", "kvm", "-cpu", "host"]
TRIED_WITHIN = 20.0


@functools.cache
def acceleration(image: Image) -> tuple[str, ...]:
    """Options for QEMU."""
    return tuple(NATIVE if _boots_with_kvm(image) else EMULATED)


def _boots_with_kvm(image: Image) -> bool:
    if not Path("/dev/kvm").exists():
        return False
    try:
        # The first program ends at once, so that the kernel gives up and QEMU with it.
        tried = subprocess.run(
            ["qemu-system-x86_64", *NATIVE, "-m", "512", "-nographic", "-no-reboot", "-nic", "none",
             "-kernel", str(image.kernel), "-initrd", str(image.initrd),
             "-append", "console=ttyS0 panic=-1 rdinit=/bin/true"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIED_WITHIN,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError):
        return False
    return tried.returncode == 0 and b"Run /bin/true as init process" in tried.stdout
