"""Ports of a sandbox on this machine: `soulbox forward`, `url` and `open`, and the route below them."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from support.server import binary, clean_environment
from support.tenants import new_tenant
from support.waiting import eventually

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        got = b""
        while piece := self.request.recv(65536):
            got += piece
        self.request.sendall(got[::-1])
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(("127.0.0.1", 7000), Echo).serve_forever()
"""


@pytest.fixture
def served(box):
    """A sandbox with an HTTP server and a raw TCP one that answers only at the end of its input."""
    box.files.write("/home/user/site/index.html", "hello from inside")
    box.commands.run("cd /home/user/site && python3 -m http.server 8000 --bind 127.0.0.1", background=True)
    box.files.write("/home/user/echo.py", ECHO)
    box.commands.run("python3 /home/user/echo.py", background=True)
    box.commands.run("for p in 7000 8000; do until (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null; do sleep 0.05; done; done")
    return box


class Forward:
    """A running `soulbox forward`, with the local ports that it printed."""

    def __init__(self, server, *words, ports=1, env=None):
        self.process = subprocess.Popen(
            [str(binary()), "forward", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment() | server.env | (env or {}),
        )
        self.lines = [self.process.stdout.readline().decode().strip() for _ in range(ports)]
        self.ports = [int(found[1]) for line in self.lines if (found := re.search(r"http://[^ ]*:(\d+) -> ", line))]

    def end(self, signal_number=signal.SIGINT):
        self.process.send_signal(signal_number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=20)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


def echo(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        sender = threading.Thread(target=lambda: (client.sendall(sent), client.shutdown(socket.SHUT_WR)))
        sender.start()
        got = b"".join(iter(lambda: client.recv(65536), b""))
        sender.join()
    return got


def test_an_http_server_and_a_raw_one_are_reached_by_many_at_once(server, served):
    with Forward(server, served.sandbox_id[:12], "0:8000", "0:7000", ports=2) as forward:
        http, raw = forward.ports
        assert forward.lines[0] == f"http://127.0.0.1:{http} -> {served.sandbox_id}:8000"
        assert httpx.get(f"http://127.0.0.1:{http}/").text == "hello from inside"
        got, sent = {}, {number: os.urandom(200_000) for number in range(20)}
        threads = [threading.Thread(target=lambda n=n: got.update({n: echo(raw, sent[n])})) for n in sent]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert all(got[number][::-1] == sent[number] for number in sent)
        assert forward.end() == (0, "")


def test_the_same_number_is_used_here_or_a_free_one_if_it_is_taken(server, served):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Forward(server, served.sandbox_id, str(port)) as forward:
            assert forward.ports != [port] and forward.ports
        named = server.cli("forward", served.sandbox_id, f"{port}:8000")
        assert named.returncode == 1 and f"port {port}" in named.stderr.decode()
    with Forward(server, served.sandbox_id, str(port)) as forward:
        assert forward.ports == [port]


def test_a_port_on_which_nothing_listens_is_a_closed_connection_and_is_told_once(server, box):
    with Forward(server, box.sandbox_id, "0:8123") as forward:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", forward.ports[0]), timeout=30) as client:
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""
        code, errors = forward.end()
        assert code == 0
        assert errors.count(f"nothing listens on port 8123 of sandbox {box.sandbox_id}") == 1


def test_a_killed_sandbox_ends_the_connections_with_an_error_and_the_command(server, served):
    with Forward(server, served.sandbox_id, "0:7000") as forward:
        with socket.create_connection(("127.0.0.1", forward.ports[0]), timeout=30) as client:
            client.sendall(b"half of it")
            with server.api() as api:
                eventually(lambda: served.commands.run("ss -tn state established '( dport = :7000 )' | wc -l || echo 9").stdout.strip() != "1")
                assert api.delete(f"/sandboxes/{served.sandbox_id}").status_code == 204
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        _, errors = forward.process.communicate(timeout=30)
        assert forward.process.returncode == 1
        assert "has ended" in errors.decode()


def upgrade(server, path: str, key: str | None, more: str = "Connection: Upgrade\r\nUpgrade: tcp\r\n") -> bytes:
    url = httpx.URL(server.env["E2B_API_URL"])
    shown = f"X-API-Key: {key}\r\n" if key else ""
    with socket.create_connection((url.host, url.port), timeout=30) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\n{shown}{more}\r\n".encode())
        return client.recv(4096)


def test_the_route_is_for_the_owner_and_for_ports(server, served):
    key = server.env["E2B_API_KEY"]
    path = f"/v1/sandboxes/{served.sandbox_id}/ports/7000"
    assert upgrade(server, path, key).startswith(b"HTTP/1.1 101")
    assert upgrade(server, path, None).startswith(b"HTTP/1.1 401")
    assert upgrade(server, path, key, more="").startswith(b"HTTP/1.1 400")
    assert upgrade(server, path, key, more="Connection: Upgrade\r\nUpgrade: websocket\r\n").startswith(b"HTTP/1.1 400")
    for port in ("0", "65536", "-1", "http", "49983"):
        answer = upgrade(server, f"/v1/sandboxes/{served.sandbox_id}/ports/{port}", key)
        assert answer.startswith(b"HTTP/1.1 400"), (port, answer)


def test_another_tenants_key_gets_404(server, served):
    other = new_tenant(server, f"stranger-{time.time_ns()}")
    path = f"/v1/sandboxes/{served.sandbox_id}/ports/7000"
    eventually(lambda: upgrade(server, path, other).startswith(b"HTTP/1.1 404"), within=10)


def test_the_url_works_from_here(server, served):
    url = server.cli("url", served.sandbox_id, "8000")
    assert url.returncode == 0, url.stderr
    url = url.stdout.decode().strip()
    assert url.startswith(f"http://8000-{served.sandbox_id}.sbx.localhost:")
    shown = subprocess.run(["curl", "-fsS", url], capture_output=True, timeout=30)
    assert shown.stdout == b"hello from inside", shown.stderr
    opened = server.cli("open", served.sandbox_id, "8000", env={"PATH": "/nonexistent"})
    assert (opened.returncode, opened.stdout.decode().strip()) == (0, url)
    assert b"open the URL yourself" in opened.stderr
    assert server.cli("url", served.sandbox_id, "0").returncode == 2
