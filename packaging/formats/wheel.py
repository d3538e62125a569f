"""The wheel: a zip with the program among its scripts, so that pip puts it on the PATH."""

import base64
import hashlib
import zipfile
from pathlib import Path

from formats.program import DESCRIPTION, LICENSE, PROJECT, SUMMARY, Program

# The first moment that a zip knows: the same files make the same wheel.
EPOCH = (1980, 1, 1, 0, 0, 0)


def build(program: Program, _scratch: Path, out: Path) -> Path:
    major, minor = program.glibc
    # For every Python: nothing of it is Python.
    tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
    name = f"soulbox-{program.version}"
    info = f"{name}.dist-info"
    files = {
        f"{name}.data/scripts/soulbox": (program.path.read_bytes(), 0o755),
        f"{info}/METADATA": (metadata(program).encode(), 0o644),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: soulbox packaging\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
            0o644,
        ),
        f"{info}/licenses/LICENSE": ((PROJECT / "LICENSE").read_bytes(), 0o644),
    }
    made = out / f"{name}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        record = ""
        for path, (content, mode) in files.items():
            add(wheel, path, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        add(wheel, f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644)
    return made


def add(wheel: zipfile.ZipFile, path: str, content: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(path, EPOCH)
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)


def metadata(program: Program) -> str:
    return f"""\
Metadata-Version: 2.4
Name: soulbox
Version: {program.version}
Summary: {SUMMARY}
License-Expression: {LICENSE}
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/plain

{DESCRIPTION}

The wheel carries the server and its command line: `sudo "$(command -v soulbox)" serve`.
The server needs Linux on x86-64, root, and the programs nft and mkfs.ext4.
"""
