"""The configurations of docs/reverse-proxy.md, with the unmodified SDK in domain mode through each."""

import asyncio
import hashlib
import os
import ssl
import threading
import time

import httpx
import pytest
import websockets
from e2b import Sandbox
from e2b.sandbox.commands.command_handle import PtySize

from packages.proxies import PACKAGES, NoProxy, Proxy, unpack
from support.waiting import eventually

LARGE = 100_000_000
ECHO = r"""
import asyncio, base64, hashlib

async def talk(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    if head.startswith("GET /events"):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(3):
            writer.write(f"data: {number}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(1)
        writer.close()
    elif headers.get("upgrade") == "websocket":
        key = [line.split(": ", 1)[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key")][0]
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n")
        while True:
            first, length = await reader.readexactly(2)
            if first & 15 == 8:
                break
            mask, length = await reader.readexactly(4), length & 127
            data = bytes(each ^ mask[at % 4] for at, each in enumerate(await reader.readexactly(length)))
            writer.write(bytes([129, length]) + data.upper())
            await writer.drain()
        writer.close()
    else:
        body = head.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

async def main():
    async with await asyncio.start_server(talk, "127.0.0.1", 8000) as server:
        await server.serve_forever()

asyncio.run(main())
"""


@pytest.fixture(scope="module", params=list(PACKAGES))
def proxy(request, server, scratch):
    folder = scratch / f"proxy-{request.param}"
    try:
        program = unpack(request.param, folder / "package")
    except NoProxy as error:
        pytest.skip(str(error))
    with Proxy(request.param, program, server, folder).running() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def sandbox(proxy):
    sandbox = Sandbox.create(timeout=300, **proxy.sdk)
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="module")
def inside(sandbox):
    sandbox.files.write("/home/user/echo.py", ECHO)
    sandbox.commands.run("python3 /home/user/echo.py", background=True, timeout=0)
    eventually(lambda: sandbox.commands.run("curl -s 127.0.0.1:8000 || true").stdout)
    return sandbox.get_host(8000)


@pytest.fixture
def trust(server):
    """A new one for each: httpx writes into it which protocols it speaks."""
    return ssl.create_default_context(cafile=server.env_tls["SSL_CERT_FILE"])


def test_sandboxes_are_made_listed_and_ended(proxy):
    made = Sandbox.create(timeout=60, metadata={"for": proxy.name}, **proxy.sdk)
    assert made.sandbox_domain == proxy.domain
    assert made.sandbox_id in [each.sandbox_id for each in Sandbox.list(**proxy.sdk).next_items()]
    assert made.commands.run("echo through; exit 0").stdout == "through\n"
    assert made.kill() is True


def test_output_comes_while_a_command_runs(sandbox):
    seen: list[tuple[str, float]] = []
    began = time.monotonic()
    sandbox.commands.run(
        "for i in 1 2 3; do echo $i; sleep 1; done", on_stdout=lambda line: seen.append((line, time.monotonic() - began))
    )
    ended = time.monotonic() - began
    assert [line.strip() for line, _ in seen] == ["1", "2", "3"]
    # The last one two seconds before the end of the first: nothing was collected.
    assert seen[0][1] < ended - 2 and seen[1][1] < ended - 1, seen


def test_input_reaches_a_command_that_runs(sandbox):
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True, timeout=60)
    sandbox.commands.send_stdin(handle.pid, "this\n")
    assert handle.wait().stdout == "got this\n"


def test_a_terminal_works_both_ways_and_survives_silence(sandbox):
    seen: list[bytes] = []
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    reader = threading.Thread(target=lambda: terminal.wait(on_pty=lambda data: seen.append(bytes(data))), daemon=True)
    reader.start()
    sandbox.pty.send_stdin(terminal.pid, b"echo $((6*7))\n")
    eventually(lambda: b"42" in b"".join(seen))
    sandbox.pty.send_stdin(terminal.pid, b"sleep 3; echo af''ter; exit\n")
    eventually(lambda: b"after" in b"".join(seen))
    reader.join(15)
    assert not reader.is_alive()


def test_large_files_pass_whole_in_both_directions(sandbox, tmp_path):
    file = tmp_path / "large"
    digest = hashlib.sha256()
    with open(file, "wb") as out:
        for _ in range(LARGE // 1_000_000):
            piece = os.urandom(1_000_000)
            digest.update(piece)
            out.write(piece)
    with open(file, "rb") as content:
        sandbox.files.write("/home/user/large", content, request_timeout=120)
    assert sandbox.commands.run("sha256sum large").stdout.split()[0] == digest.hexdigest()
    back = sandbox.files.read("/home/user/large", format="bytes", request_timeout=120)
    assert hashlib.sha256(back).hexdigest() == digest.hexdigest()
    sandbox.files.remove("/home/user/large")


def test_a_port_is_reached_by_its_name(proxy, sandbox, inside, trust):
    assert inside == f"8000-{sandbox.sandbox_id}.{proxy.domain}"
    with httpx.Client(verify=trust, timeout=30, http2=True) as web:
        seen = web.get(f"https://{inside}/some/path?q=1").text
    assert seen.startswith("GET /some/path?q=1 HTTP/1.1")
    lines = seen.lower().splitlines()
    assert f"host: {inside}" in lines
    assert "x-forwarded-proto: https" in lines
    # Who asked comes first, whoever passed it on.
    assert any(line.startswith("x-forwarded-for: 127.0.0.1") for line in lines)


def test_websockets_pass(inside, trust):
    async def talk():
        async with websockets.connect(f"wss://{inside}/socket", ssl=trust, ping_interval=None) as socket:
            for word in ("one", "two"):
                await socket.send(word)
                assert await asyncio.wait_for(socket.recv(), 10) == word.upper()

    asyncio.run(talk())


def test_events_come_one_by_one(inside, trust):
    began, at = time.monotonic(), []
    with httpx.Client(verify=trust, timeout=30) as web, web.stream("GET", f"https://{inside}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                at.append(time.monotonic() - began)
    assert len(at) == 3 and at[2] - at[0] > 1.5, at


def test_pause_and_resume_and_watching_work(sandbox):
    sandbox.files.make_dir("/home/user/watched")
    watcher = sandbox.files.watch_dir("/home/user/watched")
    sandbox.files.write("/home/user/watched/new", "x")
    eventually(lambda: watcher.get_new_events())
    watcher.stop()
    sandbox.pause()
    sandbox.connect(timeout=300)
    assert sandbox.commands.run("echo again").stdout == "again\n"


def test_a_sandbox_that_is_not_there_is_said_so(proxy, trust):
    with httpx.Client(verify=trust, timeout=30) as web:
        answer = web.get(f"https://8000-iaaaaaaaaaaaaaaaaaaaa.{proxy.domain}/")
    assert answer.status_code == 502 and "not found" in answer.text.lower()
