"""Layers: tar archives with any entries at all, also ones that no tool would write."""

import gzip
import hashlib
import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
PLAIN = "application/vnd.oci.image.layer.v1.tar"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Layer:
    """Compressed content, in memory or in a file, and what it is when it is unpacked."""

    content: bytes | Path
    digest: str
    size: int
    diff_id: str
    media_type: str = GZIP

    @property
    def descriptor(self) -> dict:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


def layer(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], media_type: str = GZIP) -> Layer:
    return pack(archive(*entries), media_type)


def archive(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info, body = entry if isinstance(entry, tuple) else (entry, b"")
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def pack(tar: bytes, media_type: str = GZIP) -> Layer:
    if media_type == GZIP:
        content = gzip.compress(tar, 6, mtime=0)
    elif media_type == ZSTD:
        content = subprocess.run(["zstd", "-q", "-c"], input=tar, capture_output=True, check=True, timeout=60).stdout
    else:
        content = tar
    return Layer(content, digest_of(content), len(content), digest_of(tar), media_type)


def file(name: str, body: bytes | str = b"", mode: int = 0o644, uid: int = 0, gid: int = 0):
    body = body.encode() if isinstance(body, str) else body
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.uid, info.gid = len(body), mode, uid, gid
    return info, body


def folder(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def symlink(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    return info


def hardlink(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.LNKTYPE, target
    return info


def device(name: str, major: int, minor: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.devmajor, info.devminor, info.mode = tarfile.CHRTYPE, major, minor, 0o666
    return info
