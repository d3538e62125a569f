"""Debian's `docker-registry` on a free loopback port, and pushing to it."""

import json
import platform
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.images.layer import Layer, digest_of
from support.images.packages import need
from support.server import free_ports
from support.waiting import eventually

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
FOREIGN = "s390x"


@dataclass
class Image:
    layers: list[Layer]
    env: list[str] = field(default_factory=lambda: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
    user: str = ""
    workdir: str = ""
    cmd: list[str] = field(default_factory=lambda: ["bash"])
    architecture: str = ARCHITECTURE

    @property
    def config(self) -> bytes:
        inner = {"Env": self.env, "User": self.user, "WorkingDir": self.workdir, "Cmd": self.cmd}
        return json.dumps(
            {
                "architecture": self.architecture,
                "os": "linux",
                "config": {name: value for name, value in inner.items() if value},
                "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in self.layers]},
            }
        ).encode()

    @property
    def manifest(self) -> bytes:
        config = {"mediaType": CONFIG, "digest": digest_of(self.config), "size": len(self.config)}
        layers = [each.descriptor for each in self.layers]
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()


class Registry:
    """Started with the object; `close` ends it."""

    def __init__(self, folder: Path, user: str = "", password: str = "") -> None:
        need(docker_registry="docker-registry")
        folder.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self.auth = (user, password) if user else None
        config = {
            "version": "0.1",
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}, "delete": {"enabled": True}},
            "http": {"addr": f"127.0.0.1:{self.port}"},
        }
        if user:
            (folder / "htpasswd").write_text(f"{user}:{bcrypt(password)}\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        # JSON is YAML.
        (folder / "config.yml").write_text(json.dumps(config))
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", str(folder / "config.yml")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.http = httpx.Client(base_url=self.url, auth=self.auth, timeout=60)
        try:
            eventually(self._answers, within=20, what="the registry answers")
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.name}"

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the registry ended: {self.log.read_text()[-2000:]}")
        try:
            return self.http.get("/v2/").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self.http.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def push(self, repository: str, tag: str, image: Image) -> str:
        """Returns the manifest's digest."""
        for each in image.layers:
            self._blob(repository, each.digest, each.content)
        self._blob(repository, digest_of(image.config), image.config)
        return self._manifest(repository, tag, MANIFEST, image.manifest)

    def push_index(self, repository: str, tag: str, images: list[Image]) -> str:
        """A manifest list, in this order."""
        entries = []
        for each in images:
            digest = self.push(repository, digest_of(each.manifest), each)
            platform_of = {"os": "linux", "architecture": each.architecture}
            entries.append(
                {"mediaType": MANIFEST, "digest": digest, "size": len(each.manifest), "platform": platform_of}
            )
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        return self._manifest(repository, tag, INDEX, index)

    def alias(self, source: str, image: Image, *names: str) -> None:
        """The same image under more names, its blobs taken from `source`."""
        for name in names:
            repository, tag = name.split(":")
            for digest in [each.digest for each in image.layers]:
                answer = self.http.post(f"/v2/{repository}/blobs/uploads/", params={"mount": digest, "from": source})
                assert answer.status_code == 201, answer.text
            self._blob(repository, digest_of(image.config), image.config)
            self._manifest(repository, tag, MANIFEST, image.manifest)

    def pulls(self, repository: str) -> int:
        """How often a blob of this repository was asked for."""
        return len(re.findall(rf'"GET /v2/{re.escape(repository)}/blobs/', self.log.read_text(errors="replace")))

    def _blob(self, repository: str, digest: str, content: bytes | Path) -> None:
        if self.http.head(f"/v2/{repository}/blobs/{digest}").status_code == 200:
            return
        started = self.http.post(f"/v2/{repository}/blobs/uploads/")
        assert started.status_code == 202, started.text
        where = httpx.URL(started.headers["Location"]).copy_merge_params({"digest": digest})
        body = content if isinstance(content, bytes) else content.read_bytes()
        done = self.http.put(where, content=body, headers={"Content-Type": "application/octet-stream"})
        assert done.status_code == 201, done.text

    def _manifest(self, repository: str, tag: str, kind: str, body: bytes) -> str:
        done = self.http.put(f"/v2/{repository}/manifests/{tag}", content=body, headers={"Content-Type": kind})
        assert done.status_code == 201, done.text
        return digest_of(body)


def bcrypt(password: str) -> str:
    """The only hash that the registry takes. Perl is on every Debian and hands it to the C library."""
    script = 'print crypt($ARGV[0], q($2b$05$CCCCCCCCCCCCCCCCCCCCC.))'
    return subprocess.run(["perl", "-e", script, password], capture_output=True, text=True, check=True).stdout
