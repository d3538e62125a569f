"""What a service manager is told (`Type=notify` of systemd), and that nobody else can tell it."""

import os
import shutil
import socket
from contextlib import contextmanager

import pytest
from e2b import Sandbox

from support.server import free_ports


class Manager:
    """Listens as systemd does."""

    def __init__(self, address: str | bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)

    def hear(self, words: str, within: float = 60) -> list[str]:
        """Every line up to those that came with these words."""
        self._socket.settimeout(within)
        heard: list[str] = []
        while not any(words in each for each in heard):
            heard += self._socket.recv(4096).decode().splitlines()
        return heard

    def close(self) -> None:
        self._socket.close()


@contextmanager
def manager_at(address: str | bytes):
    manager = Manager(address)
    try:
        yield manager
    finally:
        manager.close()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_start_is_told_when_sandboxes_can_be_made_and_a_stop_when_it_begins(own_server, tmp_path, kind):
    server = own_server()
    name = f"soulbox-test-{server.http_port}"
    shown, address = (str(tmp_path / name),) * 2 if kind == "path" else (f"@{name}", b"\0" + name.encode())
    with manager_at(address) as manager:
        server.environment["NOTIFY_SOCKET"] = shown
        process = server.spawn()
        before = manager.hear("READY=1", within=90)
        assert f"STATUS=ready on {server.url}" in before, before
        told = [each.removeprefix("STATUS=") for each in before if each.startswith("STATUS=")]
        assert told[:3] == [
            "making the template `base` of this machine",
            "trying to start a sandbox",
            "taking up the sandboxes",
        ]
        more = [each for each in before if each.startswith("EXTEND_TIMEOUT_USEC=")]
        assert more and all(int(each.partition("=")[2]) >= 10_000_000 for each in more)
        # At once, without asking for its health first.
        with Sandbox.create(timeout=60, **server.sdk) as sandbox:
            assert sandbox.commands.run("echo ${NOTIFY_SOCKET-none}").stdout == "none\n"
        process.terminate()
        assert manager.hear("STOPPING=1")
        assert process.wait(30) == 0


def test_programs_that_the_server_starts_cannot_speak_in_its_name(own_server, tmp_path):
    nft, said = tmp_path / "bin" / "nft", tmp_path / "environment"
    nft.parent.mkdir()
    nft.write_text(f'#!/bin/sh\nenv >> {said}\nexec {shutil.which("nft")} "$@"\n')
    nft.chmod(0o755)
    server = own_server()
    with manager_at(str(tmp_path / "notify")) as manager:
        server.environment |= {"PATH": f"{nft.parent}:{os.environ['PATH']}", "NOTIFY_SOCKET": str(tmp_path / "notify")}
        server.spawn()
        manager.hear("READY=1")
        assert "SOULBOX_WARM=0" in said.read_text(), "nft was asked, with the server's environment"
        assert "NOTIFY_SOCKET" not in said.read_text()


def test_a_start_that_is_refused_tells_why(own_server, tmp_path):
    server = own_server()
    with manager_at(str(tmp_path / "notify")) as manager, socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        server.http_port = taken.getsockname()[1]
        server.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        assert server.spawn().wait(60) != 0
        heard = manager.hear("is in use by")
        assert "READY=1" not in heard and heard[-1].startswith("STATUS=not started: "), heard


def test_a_manager_that_has_gone_is_no_reason_not_to_start(own_server, tmp_path):
    server = own_server()
    server.environment["NOTIFY_SOCKET"] = str(tmp_path / "nobody")
    server.start()
    assert "nobody cannot be notified" in server.log.read_text()
