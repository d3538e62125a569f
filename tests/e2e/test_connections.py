"""More connections than a server with 1,024 open files allows: 448, and 224 from one address."""

import re
import socket
import time
from contextlib import ExitStack

import httpx
import pytest

from support.waiting import eventually

LIMIT, PER_CLIENT = 448, 224


@pytest.fixture
def small(own_server):
    server = own_server()
    server.starter = ["prlimit", "--nofile=1024:1024"]
    return server.start()


def connect(server, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), 10, source_address=(source, 0))


def states(server) -> dict[str, int]:
    page = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    found = re.findall(r'^soulbox_connections_open\{state="(\w+)"\} (\d+)$', page, re.MULTILINE)
    return {state: int(count) for state, count in found}


def healthy(server, source: str) -> float:
    """Seconds for a request on a new connection."""
    started = time.monotonic()
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=10) as client:
        assert client.get(f"{server.url}/health").is_success
    return time.monotonic() - started


def test_connections_without_requests_from_many_addresses_keep_nobody_out(small):
    with ExitStack() as stack:
        pooled = stack.enter_context(small.api())
        assert pooled.get("/health").is_success
        for number in range(700):
            stack.enter_context(connect(small, f"127.0.1.{1 + number % 200}"))
            if number % 50 == 0:
                assert healthy(small, "127.0.0.2") < 5
                assert pooled.get("/health").is_success
        assert sum(states(small).values()) <= LIMIT


def test_one_address_with_all_its_connections_busy_leaves_others_theirs(small):
    head = f"POST /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {small.key}\r\nContent-Length: 9\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(400):
            busy = stack.enter_context(connect(small, "127.0.0.5"))
            try:
                busy.sendall(head.encode())
            except ConnectionError:
                pass  # refused
        eventually(lambda: states(small)["busy"] == PER_CLIENT)
        for last in range(6, 16):
            assert healthy(small, f"127.0.0.{last}") < 1
        assert states(small)["busy"] >= PER_CLIENT - 1
