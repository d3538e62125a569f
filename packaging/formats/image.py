"""What a container image is built from, in one folder: `docker build FOLDER`."""

import shutil
from pathlib import Path

from formats import deb
from formats.program import PACKAGING, Program


def build(program: Program, scratch: Path, out: Path) -> Path:
    made = out / "image"
    made.mkdir(exist_ok=True)
    shutil.copy(PACKAGING / "image/Dockerfile", made)
    shutil.copy(PACKAGING / "image/entrypoint", made)
    package = deb.build(program, scratch / "tree", scratch)
    shutil.move(package, made / "soulbox.deb")
    return made
