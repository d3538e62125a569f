"""The program that is packaged, and what it says of itself."""

import re
import subprocess
from functools import cached_property
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGING = PROJECT / "packaging"
SUMMARY = "Sandboxes for code that you do not trust, on your own machine"
DESCRIPTION = """\
SoulBox runs code that you do not trust: a sandbox cloud for coding agents,
apps, classrooms and CI in one program. It speaks E2B's protocol, so the
unmodified e2b packages from PyPI and npm work against it. It needs no
Docker, no KVM and no database server."""
LICENSE = "Apache-2.0"
# What it calls at run time, by Debian's names: nft, mkfs.ext4 and e2fsck.
NEEDS = ("nftables", "e2fsprogs")


class Program:
    def __init__(self, path: Path, version: str | None = None) -> None:
        self.path = path
        self.version = version or self._said()
        if not re.fullmatch(r"\d+\.\d+\.\d+(\+[0-9a-z.]+)?", self.version):
            raise SystemExit(f"not a version: {self.version}")

    def _said(self) -> str:
        """`soulbox 0.1.0 (envd protocol …)`"""
        return self.run("version").split()[1]

    def run(self, *words: str) -> str:
        return subprocess.run([self.path, *words], check=True, capture_output=True, text=True, timeout=60).stdout

    @cached_property
    def glibc(self) -> tuple[int, int]:
        """The first version of the C library that has every symbol that it uses."""
        symbols = subprocess.run(["objdump", "-T", self.path], check=True, capture_output=True, text=True).stdout
        found = {(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)}
        if not found:
            raise SystemExit("it uses no symbol of glibc: which C library is it linked with?")
        return max(found)

    def write_documents(self, share: Path) -> None:
        """Man pages and completions, below a `share` folder."""
        self.run("man", str(share / "man/man1"))
        for shell, place in (
            ("bash", "bash-completion/completions/soulbox"),
            ("zsh", "zsh/vendor-completions/_soulbox"),
            ("fish", "fish/vendor_completions.d/soulbox.fish"),
        ):
            path = share / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.run("completions", shell))
