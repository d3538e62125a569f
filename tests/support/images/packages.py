"""Installs the Debian packages that the suites need and the machine does not have."""

import os
import shutil
import subprocess


def need(**program_of_package: str) -> None:
    """`need(zstd="zstd")`: package, as a keyword with _ for -, and the program it brings."""
    missing = [
        package.replace("_", "-")
        for package, program in program_of_package.items()
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    if not missing:
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # Another session on the machine may hold the lock for a while.
    install = ["apt-get", "-o", "DPkg::Lock::Timeout=120", "install", "-yq", "--no-install-recommends", *missing]
    for before in (None, ["apt-get", "update", "-q"]):
        if before:
            subprocess.run(before, capture_output=True, timeout=180)
        done = subprocess.run(install, capture_output=True, text=True, env=environment, timeout=300)
        if done.returncode == 0:
            return
    raise RuntimeError(f"could not install {missing}: {done.stderr[-2000:]}")
