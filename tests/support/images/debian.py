"""A small Debian as one layer, made with mmdebstrap and kept for later runs."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.images.layer import GZIP, Layer
from support.images.packages import need

# What an ordinary image of a distribution has: neither sudo, curl, `ss` nor Python.
BARE = ["bash", "passwd"]
# With what a build would otherwise have to install first.
READY = [*BARE, "ca-certificates", "curl", "iproute2", "procps", "sudo"]
# What an image to develop in has.
FULL = [
    "ca-certificates", "curl", "git", "iproute2", "procps", "sudo", "python3", "python3-pip", "python3-venv",
    "python-is-python3",
]  # fmt: skip

OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "soulbox-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def debian(packages: list[str]) -> Layer:
    """From the machine's package sources; programs inside trust what the machine trusts."""
    certificates = sorted(OWN_CERTIFICATES.glob("*.crt")) if "ca-certificates" in packages else []
    recipe = json.dumps([1, packages, [each.read_text() for each in certificates]])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    content, facts = cache() / f"debian-{key}.tar.gz", cache() / f"debian-{key}.json"
    if not facts.exists():
        make(packages, certificates, content, facts)
    told = json.loads(facts.read_text())
    return Layer(content, told["digest"], told["size"], told["diff_id"], GZIP)


def make(packages: list[str], certificates: list[Path], content: Path, facts: Path) -> None:
    need(mmdebstrap="mmdebstrap")
    scratch = Path(tempfile.mkdtemp(prefix="making-", dir=content.parent))
    try:
        command = [
            "mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={','.join(packages)}",
            "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        ]  # fmt: skip
        for each in certificates:
            command.append(f"--customize-hook=copy-in {each} {OWN_CERTIFICATES}")
        if certificates:
            command.append("--customize-hook=chroot \"$1\" update-ca-certificates")
        tar = scratch / "root.tar"
        done = subprocess.run([*command, "bookworm", str(tar)], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"mmdebstrap failed: {done.stderr[-3000:]}")
        write_compressed(tar, scratch / "root.tar.gz", scratch / "facts.json")
        # The facts last: a half-made one is made again.
        (scratch / "root.tar.gz").rename(content)
        (scratch / "facts.json").rename(facts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_compressed(tar: Path, content: Path, facts: Path) -> None:
    plain = hashlib.sha256()
    with open(tar, "rb") as source, gzip.GzipFile(content, "wb", compresslevel=1, mtime=0) as packed:
        while chunk := source.read(1 << 20):
            plain.update(chunk)
            packed.write(chunk)
    with open(content, "rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    told = {"digest": f"sha256:{digest}", "size": content.stat().st_size, "diff_id": f"sha256:{plain.hexdigest()}"}
    facts.write_text(json.dumps(told))
