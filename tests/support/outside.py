"""A piece of internet for tests: a namespace with public-looking addresses, web servers with TLS in
it, and a name server that knows them. Traffic does not leave the machine."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.waiting import eventually

# Of 203.0.113.0/24, which is nobody's private network: sandboxes may reach it.
NEAR = "203.0.113.195"
ADDRESSES = ("203.0.113.196", "203.0.113.198")
NAMESPACE = "sbtest-outside"
LINK = "itoutside"

SERVE = """
import http.server, ssl, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"{self.server.server_address[0]} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
for address in sys.argv[2:]:
    for port in (80, 443, 8080):
        server = http.server.ThreadingHTTPServer((address, port), Handler)
        if port == 443:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(sys.argv[1])
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving", flush=True)
threading.Event().wait()
"""

# Knows the hosts of a file, which may change; others do not exist. Writes down what it was asked.
NAMES = """
import json, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind((sys.argv[1], 53))
    print("serving", flush=True)
    while True:
        query, client = server.recvfrom(2048)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode(errors="replace"))
            at += 1 + query[at]
        name, (kind,) = ".".join(labels).lower(), struct.unpack("!H", query[at + 1 : at + 3])
        with open(sys.argv[3], "a") as asked:
            print(name, kind, file=asked, flush=True)
        address = json.load(open(sys.argv[2])).get(name)
        answer = b""
        if address and kind == 1:
            answer = struct.pack("!HHHIH4s", 0xC00C, 1, 1, 1, 4, socket.inet_aton(address))
        flags = 0x8180 if address else 0x8183
        head = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if answer else 0, 0, 0)
        server.sendto(head + query[12 : at + 5] + answer, client)
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@dataclass
class Outside:
    folder: Path
    name_server: str = "127.53.0.53"

    @property
    def certificate(self) -> str:
        return (self.folder / "certificate.pem").read_text()

    @property
    def asked(self) -> list[str]:
        """Names that somebody wanted to know."""
        return [line.split()[0] for line in (self.folder / "asked").read_text().splitlines()]

    def know(self, hosts: dict[str, str]) -> None:
        new = self.folder / "hosts.new"
        new.write_text(json.dumps(hosts))
        new.rename(self.folder / "hosts")

    @property
    def starter(self) -> list[str]:
        """For a server that asks our name server. Only it: the mount is in a namespace of its own."""
        resolv = self.folder / "resolv.conf"
        resolv.write_text(f"nameserver {self.name_server}\n")
        real = os.path.realpath("/etc/resolv.conf")
        script = f'mount --bind {resolv} {real} && exec "$0" "$@"'
        return ["unshare", "--mount", "sh", "-c", script]


def make_certificate(folder: Path, names: list[str]) -> None:
    both, key = folder / "both.pem", folder / "key.pem"
    names_ = ",".join(f"DNS:{name}" for name in names)
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=outside", "-addext", f"subjectAltName={names_}",
        "-keyout", str(key), "-out", str(folder / "certificate.pem"),
    )  # fmt: skip
    both.write_text((folder / "certificate.pem").read_text() + key.read_text())


def clean() -> None:
    for command in (["ip", "netns", "delete", NAMESPACE], ["ip", "link", "delete", LINK]):
        subprocess.run(command, capture_output=True, timeout=20)


@contextmanager
def outside(folder: Path, names: list[str]):
    for program in ("openssl", "ip", "unshare"):
        if shutil.which(program) is None:
            raise RuntimeError(f"needs {program}")
    folder.mkdir(parents=True)
    make_certificate(folder, names)
    made = Outside(folder)
    made.know({})
    (folder / "asked").touch()
    clean()
    children: list[subprocess.Popen] = []

    def serve(*command: str) -> None:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert eventually(child.stdout.readline, what=f"{command[-2:]} serves") == "serving\n"

    try:
        run("ip", "netns", "add", NAMESPACE)
        run("ip", "link", "add", LINK, "type", "veth", "peer", "eth0", "netns", NAMESPACE)
        run("ip", "link", "set", LINK, "up")
        run("ip", "-n", NAMESPACE, "link", "set", "eth0", "up")
        run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        for address in ADDRESSES:
            run("ip", "addr", "add", NEAR, "peer", address, "dev", LINK)
            run("ip", "-n", NAMESPACE, "addr", "add", address, "peer", NEAR, "dev", "eth0")
        inside = ("ip", "netns", "exec", NAMESPACE)
        serve(*inside, sys.executable, "-c", SERVE, str(folder / "both.pem"), *ADDRESSES)
        serve(sys.executable, "-c", NAMES, made.name_server, str(folder / "hosts"), str(folder / "asked"))
        yield made
    finally:
        for child in children:
            child.kill()
            child.wait(10)
            child.stdout.close()
        clean()
