"""The count itself: one descriptor too many is told, whichever kind it is of, and a connection that its
client keeps is not."""

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from support import descriptors
from support.census import AT_MOST, grown
from support.waiting import eventually

GONE = "server's connections of clients that have gone"


def held(pid: int, data: Path) -> dict[str, int]:
    return {f"server's {kind}": count for kind, count in descriptors.kinds(pid, data).items()}


def bound(address, *kind: int) -> int:
    """Only what has an address is in the kernel's tables."""
    made = socket.socket(*kind)
    made.bind(address)
    return made.detach()


@pytest.mark.parametrize(
    "kind, open_one",
    [
        ("eventfd", lambda data: os.eventfd(0)),
        ("pidfd", lambda data: os.pidfd_open(os.getpid())),
        ("net namespaces", lambda data: os.open("/proc/self/ns/net", os.O_RDONLY)),
        ("files of /proc", lambda data: os.open("/proc/self/status", os.O_RDONLY)),
        ("other files", lambda data: os.open("/dev/null", os.O_RDONLY)),
        ("files of the data folder", lambda data: os.open(data / "some", os.O_CREAT | os.O_RDWR)),
        ("memory files", lambda data: os.memfd_create("some")),
        ("unix sockets", lambda data: socket.socket(socket.AF_UNIX).detach()),
        ("netlink sockets", lambda data: bound((0, 0), socket.AF_NETLINK, socket.SOCK_RAW)),
        ("udp sockets", lambda data: bound(("127.0.0.1", 0), socket.AF_INET, socket.SOCK_DGRAM)),
        ("listeners", lambda data: socket.create_server(("127.0.0.1", 0)).detach()),
    ],
)
def test_one_more_of_a_kind_is_told(tmp_path, kind, open_one):
    before = held(os.getpid(), tmp_path)
    one = open_one(tmp_path)
    try:
        assert list(grown(before, held(os.getpid(), tmp_path))) == [f"server's {kind}"]
    finally:
        os.close(one)
    assert grown(before, held(os.getpid(), tmp_path)) == {}


def test_the_end_of_a_pipe_is_told(tmp_path):
    before = held(os.getpid(), tmp_path)
    ends = os.pipe()
    os.close(ends[0])
    assert list(grown(before, held(os.getpid(), tmp_path))) == ["server's pipes"]
    os.close(ends[1])


def test_the_database_may_have_all_its_connections_and_no_more(tmp_path):
    before, most = held(os.getpid(), tmp_path), AT_MOST["server's database"]
    with ExitStack() as files:
        for _ in range(most):
            files.enter_context(open(tmp_path / "soulbox.db", "ab"))
        assert grown(before, held(os.getpid(), tmp_path)) == {}
        files.enter_context(open(tmp_path / "soulbox.db-wal", "ab"))
        assert list(grown(before, held(os.getpid(), tmp_path))) == ["server's database"]


# Keeps every connection for ever, as a server that leaks them does.
HOARDER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
kept = []
while True:
    kept.append(server.accept())
    print("accepted", flush=True)
"""


def test_a_connection_counts_from_when_its_client_has_gone(tmp_path):
    hoarder = subprocess.Popen(["python3", "-c", HOARDER], stdout=subprocess.PIPE, text=True)
    try:
        port = int(hoarder.stdout.readline())
        before = held(hoarder.pid, tmp_path)
        with socket.create_connection(("127.0.0.1", port)):
            assert hoarder.stdout.readline() == "accepted\n"
            assert grown(before, held(hoarder.pid, tmp_path)) == {}
        eventually(lambda: list(grown(before, held(hoarder.pid, tmp_path))) == [GONE])
    finally:
        hoarder.kill()
        hoarder.wait(10)
        hoarder.stdout.close()


def test_connections_that_clients_keep_are_not_the_servers(server):
    before = held(server.pid, server.data)
    with ExitStack() as clients:
        for _ in range(5):
            client = clients.enter_context(httpx.Client(base_url=server.url))
            assert client.get("/health").is_success
        assert GONE not in grown(before, held(server.pid, server.data))
    eventually(lambda: grown(before, held(server.pid, server.data)) == {})
