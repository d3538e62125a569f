"""The package for npm: the program, and a few lines of JavaScript that become it."""

import json
import shutil
import tarfile
from pathlib import Path

from formats.program import DESCRIPTION, LICENSE, PACKAGING, PROJECT, SUMMARY, Program


def build(program: Program, root: Path, out: Path) -> Path:
    shutil.copyfile(program.path, root / "soulbox")
    shutil.copyfile(PACKAGING / "npm/cli.js", root / "cli.js")
    shutil.copyfile(PROJECT / "LICENSE", root / "LICENSE")
    major, minor = program.glibc
    (root / "package.json").write_text(json.dumps(manifest(program), indent=2) + "\n")
    (root / "README.md").write_text(
        f"# SoulBox\n\n{DESCRIPTION}\n\n"
        "`npx soulbox --help`, and `sudo npx soulbox serve` to serve. It needs Linux on x86-64 with glibc "
        f"{major}.{minor} or newer, and for the server root, nft and mkfs.ext4.\n"
    )
    made = out / f"soulbox-{program.version}.tgz"
    with tarfile.open(made, "w:gz", compresslevel=1) as archive:
        for name in ("package.json", "README.md", "LICENSE", "cli.js", "soulbox"):
            entry = archive.gettarinfo(root / name, f"package/{name}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if name in ("cli.js", "soulbox") else 0o644
            with open(root / name, "rb") as content:
                archive.addfile(entry, content)
    return made


def manifest(program: Program) -> dict:
    return {
        "name": "soulbox",
        "version": program.version,
        "description": SUMMARY,
        "license": LICENSE,
        "bin": {"soulbox": "cli.js"},
        "files": ["cli.js", "soulbox"],
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": ["glibc"],
        "engines": {"node": ">=18"},
    }
