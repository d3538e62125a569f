"""Creating and killing leaves every count where it was."""

import asyncio
import random

import httpx
import pytest
from e2b import Sandbox
from e2b.sandbox.commands.command_handle import PtySize

from support.census import Census

ROUNDS = 300
AT_ONCE = 8

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def server(own_server):
    return own_server().start()


async def churn(server, rounds: int, interrupted: bool) -> tuple[int, int]:
    """Creates and kills at a bounded concurrency; every other create loses its client midway."""
    dice = random.Random(1)
    gate = asyncio.Semaphore(AT_ONCE)
    whole = cut = 0

    async def one(number: int) -> None:
        nonlocal whole, cut
        async with gate:
            headers = {"X-API-Key": server.key}
            # A client of its own: closing it closes the connection under the request.
            async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:
                creating = asyncio.ensure_future(
                    http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 30})
                )
                if interrupted and number % 2:
                    done, _ = await asyncio.wait([creating], timeout=dice.uniform(0.001, 0.06))
                    if not done:
                        creating.cancel()
                        await asyncio.wait([creating])
                        cut += 1
                        return
                answer = await creating
                assert answer.status_code == 201, answer.text
                gone = await http.delete(f"/sandboxes/{answer.json()['sandboxID']}")
                assert gone.status_code == 204, gone.text
                whole += 1

    await asyncio.gather(*(one(number) for number in range(rounds)))
    return whole, cut


def warm(server):
    """Fills caches and pools, so that what is counted before is what stays."""
    asyncio.run(churn(server, 2 * AT_ONCE, interrupted=True))
    server.remove_all_sandboxes()
    return Census.settled(server)


def test_three_hundred_creates_and_kills_leave_every_count_where_it_was(server):
    before = warm(server)
    whole, cut = asyncio.run(churn(server, ROUNDS, interrupted=True))
    assert whole + cut == ROUNDS
    assert cut > ROUNDS // 8, f"only {cut} creates were cut midway: the test did not test"
    # A create whose client went away is either finished (then listed, then killed here) or undone.
    server.remove_all_sandboxes()
    Census.returns_to(before, server)


def test_streams_terminals_and_watchers_leave_nothing(server):
    before = warm(server)
    for _ in range(20):
        sandbox = Sandbox.create(timeout=60, **server.sdk)
        sandbox.files.make_dir("w")
        sandbox.files.watch_dir("w")
        sandbox.commands.run("yes", background=True)
        sandbox.commands.run("exec sleep 300", background=True).disconnect()
        sandbox.pty.create(PtySize(rows=24, cols=80))
        sandbox.kill()
    Census.returns_to(before, server)


def test_expiry_leaves_nothing(server):
    before = warm(server)
    for _ in range(8):
        Sandbox.create(timeout=1, **server.sdk)
    Census.returns_to(before, server)


def test_failed_creates_leave_nothing(server):
    before = warm(server)
    with server.api() as api:
        for _ in range(20):
            assert api.post("/v2/sandboxes", json={"templateID": "nope"}).status_code == 404
            assert api.post("/v2/sandboxes", json={"templateID": "base", "timeout": -1}).status_code == 400
    Census.returns_to(before, server)


def test_a_stopped_server_with_no_sandboxes_leaves_nothing_on_the_machine(own_server):
    before = Census.settled(None)
    server = own_server("stopped").start()
    Sandbox.create(timeout=60, **server.sdk).kill()
    assert server.terminate() == 0
    Census.returns_to(before, None)
