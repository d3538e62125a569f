"""The .deb: a tree of files, a control file, and dpkg-deb."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

from formats.program import DESCRIPTION, NEEDS, PACKAGING, PROJECT, SUMMARY, Program

SCRIPTS = ("postinst", "prerm", "postrm")


def build(program: Program, root: Path, out: Path) -> Path:
    place(program.path, root / "usr/bin/soulbox", 0o755)
    place(PACKAGING / "soulbox.service", root / "usr/lib/systemd/system/soulbox.service")
    place(PACKAGING / "debian/soulbox.default", root / "etc/default/soulbox")
    place(PROJECT / "LICENSE", root / "usr/share/doc/soulbox/copyright")
    program.write_documents(root / "usr/share")
    for page in (root / "usr/share/man/man1").iterdir():
        # The same bytes for the same page.
        page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755)
        for name in files:
            path = Path(folder) / name
            os.chmod(path, 0o755 if path.parent.name == "bin" else 0o644)

    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(fields(program, size(root)))
    (control / "conffiles").write_text("/etc/default/soulbox\n")
    for script in SCRIPTS:
        place(PACKAGING / "debian" / script, control / script, 0o755)
    made = out / f"soulbox_{program.version}_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, made],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return made


def fields(program: Program, size: int) -> str:
    major, minor = program.glibc
    depends = [f"libc6 (>= {major}.{minor})", "libgcc-s1", *NEEDS]
    text = "\n".join(f" {line}" for line in DESCRIPTION.splitlines())
    return f"""\
Package: soulbox
Version: {program.version}
Architecture: amd64
Maintainer: SoulBox contributors
Installed-Size: {size}
Depends: {", ".join(depends)}
Recommends: ca-certificates, mmdebstrap
Suggests: bubblewrap
Section: admin
Priority: optional
Description: {SUMMARY}
{text}
"""


def place(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def size(root: Path) -> int:
    """In KiB."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
