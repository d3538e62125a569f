"""A registry that misbehaves, each repository in its own way."""

import base64
import json
import socketserver
import threading
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from support.images.layer import GZIP, Layer, digest_of
from support.images.registry import MANIFEST, Image

TOKEN = "a-token-that-was-asked-for"
USER, PASSWORD = "someone", "s3cret"


@dataclass
class Repository:
    """An image, and what is wrong with how it is served."""

    image: Image
    # Bytes of a blob after which the connection is closed.
    cut_after: int | None = None
    # Only requests from the beginning are cut: one that resumes gets the rest.
    resumable: bool = False
    # Sent instead of the blob with this digest.
    instead: dict[str, bytes] = field(default_factory=dict)
    # `basic`: nobody is let in; `token`: who has the token; `elsewhere`: as the realm says.
    auth: str = ""
    realm: str = ""
    # Where requests for blobs are sent.
    redirect: str = ""
    # Sent instead of the manifest.
    manifest: bytes | None = None
    # Answers with this status before the manifest is served, this often.
    failures: int = 0
    # Large blobs stop halfway until this is set.
    held: threading.Event | None = None
    requests: list[str] = field(default_factory=list)

    @property
    def blobs(self) -> dict[str, bytes]:
        found = {each.digest: each.read() for each in self.image.layers}
        return found | {digest_of(self.image.config): self.image.config} | self.instead


class HostileRegistry:
    def __init__(self, repositories: dict[str, Repository] | None = None) -> None:
        self.repositories = repositories or {}
        self.tokens_given: list[str] = []
        self.strangers: list[str] = []
        handler = type("Handler", (Handler,), {"registry": self})
        self._server = Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, repository: Repository) -> str:
        """Returns the reference to build from."""
        self.repositories[name] = repository
        return f"{self.name}/{name}:1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_) -> None:
        """A client that went away is what some of these are for."""


class Handler(BaseHTTPRequestHandler):
    registry: HostileRegistry
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/token":
            return self.token(parse_qs(url.query))
        if url.path in ("/v2/", "/v2"):
            return self.answer(200, b"{}", "application/json")
        if not url.path.startswith("/v2/"):
            self.registry.strangers.append(self.path)
            return self.answer(200, b"the insides of this machine")
        for kind in ("/manifests/", "/blobs/"):
            if kind in url.path:
                name, _, what = url.path.removeprefix("/v2/").rpartition(kind)
                repository = self.registry.repositories.get(name)
                if repository is None:
                    break
                repository.requests.append(f"{self.command} {kind.strip('/')} {what}")
                if not self.may_enter(name, repository):
                    return None
                return self.manifest(repository) if kind == "/manifests/" else self.blob(repository, what)
        error = {"errors": [{"code": "NAME_UNKNOWN", "message": "repository name not known to registry"}]}
        return self.answer(404, json.dumps(error).encode(), "application/json")

    def may_enter(self, name: str, repository: Repository) -> bool:
        given = self.headers.get("Authorization", "")
        if not repository.auth or (repository.auth == "token" and given == f"Bearer {TOKEN}"):
            return True
        if repository.auth == "basic":
            challenge = 'Basic realm="nobody"'
        else:
            realm = repository.realm or f"http://{self.registry.name}/token"
            challenge = f'Bearer realm="{realm}",service="test",scope="repository:{name}:pull"'
        error = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
        self.answer(401, json.dumps(error).encode(), "application/json", {"WWW-Authenticate": challenge})
        return False

    def token(self, query: dict[str, list[str]]) -> None:
        given = self.headers.get("Authorization", "")
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if given != expected:
            return self.answer(401, b'{"details":"incorrect username or password"}', "application/json")
        self.registry.tokens_given.append(query.get("scope", [""])[0])
        return self.answer(200, json.dumps({"token": TOKEN, "expires_in": 300}).encode(), "application/json")

    def manifest(self, repository: Repository) -> None:
        if repository.failures:
            repository.failures -= 1
            return self.answer(503, b"try again")
        body = repository.image.manifest if repository.manifest is None else repository.manifest
        return self.answer(200, body, MANIFEST, {"Docker-Content-Digest": digest_of(body)})

    def blob(self, repository: Repository, digest: str) -> None:
        if repository.redirect:
            return self.answer(307, b"", headers={"Location": repository.redirect})
        body = repository.blobs.get(digest)
        if body is None:
            return self.answer(404, b"no such blob")
        begin = 0
        if asked := self.headers.get("Range", ""):
            begin = int(asked.removeprefix("bytes=").split("-")[0])
        headers = {"Content-Range": f"bytes {begin}-{len(body) - 1}/{len(body)}"} if begin else {}
        cut = repository.cut_after
        whole = cut is None or len(body) <= cut or (repository.resumable and begin)
        rest = body[begin:]
        if repository.held is not None and len(rest) > 1 << 20:
            return self.hold(rest, repository.held)
        return self.answer(206 if begin else 200, rest, headers=headers, send=len(rest) if whole else cut)

    def hold(self, body: bytes, held: threading.Event) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        held.wait(60)
        self.wfile.write(body[half:])

    def answer(
        self,
        status: int,
        body: bytes,
        kind: str = "application/octet-stream",
        headers: dict[str, str] | None = None,
        send: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if send is None else body[:send])
        if send is not None and send < len(body):
            self.wfile.flush()
            self.close_connection = True


def bomb(gigabytes: int) -> Layer:
    """A few megabytes that unpack to one huge file of zeros."""
    header = bytearray(512)
    header[0:6] = b"zeroes"
    header[100:108] = b"0000644\0"
    header[108:124] = b"0000000\0" * 2
    header[124:136] = b"%011o\0" % min(gigabytes << 30, 8**11 - 1)
    header[136:148] = b"00000000000\0"
    header[156:157] = b"0"
    header[257:265] = b"ustar\x0000"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    # Members of a gzip file follow each other: one is made, and repeated.
    member = member_of(bytes(64 << 20))
    content = member_of(bytes(header)) + member * (gigabytes * 16)
    return Layer(content, digest_of(content), len(content), digest_of(b"nobody unpacks this"), GZIP)


def member_of(data: bytes) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packing.compress(data) + packing.flush()


def outside(path: Path) -> str:
    """A name in a layer that leads to `path` from any folder not too deep."""
    return "../" * 40 + str(path).lstrip("/")
