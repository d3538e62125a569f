"""SIGKILL of the server at any moment loses nothing and leaves nothing half-made."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from e2b import Sandbox
from e2b.sandbox.commands.command_handle import PtySize

from support.census import Census
from support.sdk import Sdk
from support.server import attach
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)


def test_the_log_outlives_a_pause_and_the_server(own_server):
    server = own_server().start()
    sandbox = Sandbox.create(timeout=600, **server.sdk)
    sandbox.commands.run("exit 0")

    def log() -> str:
        done = server.cli("logs", sandbox.sandbox_id)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    eventually(lambda: "process ended" in log())
    sandbox.pause()
    while_paused = log()
    for said in ("sandbox started", "process started", "process ended", "paused, memory kept"):
        assert while_paused.count(said) == 1, while_paused
    kept = server.data / "sandboxes" / sandbox.sandbox_id / "log.json"
    eventually(lambda: kept.exists() and "paused, memory kept" in kept.read_text())

    server.kill9()
    server.start()
    assert set(while_paused.splitlines()) < set(log().splitlines())

    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=600, **server.sdk)
    sandbox.commands.run("exit 0")
    whole = eventually(lambda: said if (said := log()).count("process ended") == 2 else None)
    assert set(while_paused.splitlines()) < set(whole.splitlines())
    for said in ("sandbox started", "paused, memory kept", "resumed, memory restored", "adopted"):
        assert whole.count(said) == 1, whole
    sandbox.kill()


def test_kill_9_during_eight_busy_sandboxes_loses_none_of_them(own_server):
    server = own_server().start()
    key = server.key
    sandboxes = [Sandbox.create(timeout=600, metadata={"n": str(n)}, **server.sdk) for n in range(8)]
    work = []
    for sandbox in sandboxes:
        sandbox.files.write("data", sandbox.sandbox_id)
        ticker = sandbox.commands.run(
            "i=0; while :; do i=$((i+1)); echo tick $i; echo $i > ticks; sleep 0.05; done",
            background=True, timeout=0,
        )  # fmt: skip
        waiter = sandbox.commands.run("read line; echo got $line > got", background=True, stdin=True, timeout=0)
        terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
        sandbox.pty.send_stdin(terminal.pid, b"KEPT=in-the-terminal\n")
        # Streams that are being read while the server dies.
        threading.Thread(target=read_until_cut, args=(ticker,), daemon=True).start()
        work.append((sandbox, ticker.pid, waiter.pid, terminal.pid))
    for sandbox, *_ in work:
        eventually(lambda: sandbox.files.exists("ticks"))
    ends = {sandbox.sandbox_id: sandbox.get_info().end_at for sandbox, *_ in work}
    last = {sandbox.sandbox_id: int(sandbox.files.read("ticks") or 0) for sandbox, *_ in work}

    server.kill9()
    server.start()

    assert server.key == key
    sdk = Sdk("sync", server.sdk, None)
    assert {each.sandbox_id for each in sdk.list_all()} == set(ends)
    for sandbox, ticker, waiter, terminal in work:
        # The old handle and its token still work.
        assert sandbox.files.read("data") == sandbox.sandbox_id
        assert sandbox.get_info().end_at == ends[sandbox.sandbox_id]
        assert {ticker, waiter, terminal} <= {each.pid for each in sandbox.commands.list()}
        assert int(sandbox.files.read("ticks")) > last[sandbox.sandbox_id]
        sandbox.commands.send_stdin(waiter, "after\n")
        eventually(lambda: sandbox.files.exists("got") and sandbox.files.read("got") == "got after\n")
        sandbox.pty.send_stdin(terminal, b"echo $KEPT > from-terminal\n")
        eventually(lambda: sandbox.files.exists("from-terminal") and sandbox.files.read("from-terminal") == "in-the-terminal\n")
        # Its stream can be taken up again and goes on.
        again = sandbox.commands.connect(ticker, timeout=20)
        out, _, _ = next(iter(again))
        assert "tick" in out
        again.kill()
    for sandbox, *_ in work:
        assert sandbox.kill() is True
    assert sdk.list_all() == []


def read_until_cut(handle):
    try:
        handle.wait()
    except Exception:
        pass


def test_deadlines_hold_across_a_restart(own_server):
    server = own_server().start()
    ends_while_down = Sandbox.create(timeout=2, **server.sdk)
    ends_later = Sandbox.create(timeout=300, **server.sdk)
    ends_later.set_timeout(15)
    server.kill9()
    time_left = ends_while_down  # expires while nobody watches
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 2.5, within=5)
    server.start()
    sdk = Sdk("sync", server.sdk, None)
    eventually(lambda: [each.sandbox_id for each in sdk.list_all()] == [ends_later.sandbox_id], within=10)
    assert not time_left.is_running()
    eventually(lambda: sdk.list_all() == [], within=30)
    assert not ends_later.is_running()


def test_output_written_while_the_server_was_away_can_be_replayed(own_server):
    server = own_server().start()
    sandbox = Sandbox.create(timeout=300, **server.sdk)
    handle = sandbox.commands.run(
        "until [ -e go ]; do :; done; for i in 1 2 3; do echo while-away $i; done; touch done; exec sleep 300",
        background=True, timeout=0,
    )  # fmt: skip
    handle.disconnect()
    sandbox.commands.run("(sleep 0.3; touch go) >/dev/null 2>&1 &")
    server.kill9()
    server.start()
    eventually(lambda: sandbox.files.exists("done"))
    with attach(server, sandbox, handle.pid) as watching:
        lines = [watching.stdout.readline() for _ in range(3)]
    assert lines == [b"while-away 1\n", b"while-away 2\n", b"while-away 3\n"]
    sandbox.kill()


def test_a_server_stopped_politely_leaves_its_sandboxes_running(own_server):
    server = own_server().start()
    sandbox = Sandbox.create(timeout=300, **server.sdk)
    handle = sandbox.commands.run("exec sleep 300", background=True, timeout=0)
    assert server.terminate() == 0
    server.start()
    assert handle.pid in [each.pid for each in sandbox.commands.list()]
    sandbox.kill()


@pytest.mark.alone
def test_kill_9_in_the_middle_of_creates_and_kills_leaves_nothing_half_made(own_server):
    server = own_server().start()
    # Once through, so that caches and pools exist before counting.
    Sandbox.create(timeout=60, **server.sdk).kill()
    before = Census.settled(server)
    dice = random.Random(7)
    for round_number in range(4):
        stop = threading.Event()

        def churn(_):
            with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=20) as http:
                while not stop.is_set():
                    try:
                        made = http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 300})
                        if made.status_code == 201:
                            http.delete(f"/sandboxes/{made.json()['sandboxID']}")
                    except (httpx.HTTPError, KeyError, ValueError):
                        return

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(churn, n) for n in range(8)]
            moment = time.monotonic() + dice.uniform(0.2, 1.5)
            eventually(lambda: time.monotonic() > moment, within=3, every=0.01)
            server.kill9()
            stop.set()
            for each in running:
                each.result(30)
        server.start()
        sdk = Sdk("sync", server.sdk, None)
        for each in sdk.list_all():
            # Whatever is listed works; nothing is listed that does not.
            sandbox = sdk.connect(each.sandbox_id)
            assert sandbox.commands.run("echo whole").stdout == "whole\n", round_number
            assert sandbox.kill()
    Census.returns_to(before, server)


def test_sandboxes_outlive_a_start_that_cannot_mark_its_ids(own_server):
    """A full or read-only /run: new sandboxes fail, those that are there have their ids already."""
    server = own_server().start()
    sandbox = Sandbox.create(timeout=300, **server.sdk)
    server.kill9()
    server.starter = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /run && exec "$@"', "sh"]
    server.start()
    assert Sandbox.connect(sandbox.sandbox_id, **server.sdk).commands.run("echo alive").stdout == "alive\n"
    assert "new sandboxes will fail" in server.log.read_text()
