"""openai-agents' sandbox client for E2B; a host with a port is plain HTTP to it, in either mode."""

import io
from pathlib import Path

import e2b
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox.manifest import Manifest

from features import equal, feature, main, no_call, open_port

client = E2BSandboxClient()
session = None
resumed = None


@feature("create")
async def create() -> None:
    global session
    options = E2BSandboxClientOptions(
        sandbox_type="e2b", template="base", timeout=120, envs={"GIVEN": "value"},
        exposed_ports=(8000,), pause_on_exit=True,
    )  # fmt: skip
    session = await client.create(options=options, manifest=Manifest())
    await session.start()
    equal(await session.running(), True)


@feature("commands")
async def commands() -> None:
    result = await session.exec("sh", "-lc", "pwd; id -un; echo $GIVEN; echo err >&2")
    equal((result.exit_code, result.stdout, result.stderr), (0, b"/workspace\nuser\nvalue\n", b"err\n"))


@feature("failing command")
async def failing_command() -> None:
    result = await session.exec("sh", "-lc", "echo out; exit 3")
    equal((result.exit_code, result.stdout), (3, b"out\n"))


@feature("files")
async def files() -> None:
    await session.write(Path("a/b.txt"), io.BytesIO(b"hello"))
    equal((await session.read(Path("a/b.txt"))).read(), b"hello")
    await session.mkdir(Path("c"), parents=True)
    equal((await session.exec("ls", "/workspace")).stdout, b"a\nc\n")


@feature("PTY")
async def pty() -> None:
    update = await session.pty_exec_start("sh", "-c", "read line; echo got $line; tty", tty=True, yield_time_s=0.5)
    update = await session.pty_write_stdin(session_id=update.process_id, chars="it\n", yield_time_s=2.0)
    assert b"got it" in update.output and b"/dev/pts" in update.output, update


@feature("ports")
async def ports() -> None:
    await session.write(Path("served/index.html"), io.BytesIO(b"from inside"))
    await session.exec("sh", "-c", "setsid python3 -m http.server -d /workspace/served 8000 > /dev/null 2>&1 < /dev/null &")
    endpoint = await session.resolve_exposed_port(8000)
    scheme = "https" if endpoint.tls else "http"
    equal(open_port(f"{scheme}://{endpoint.host}:{endpoint.port}/"), "from inside")


@feature("pause")
async def pause() -> None:
    global resumed
    await session.stop()
    await session.shutdown()
    resumed = await client.resume(session.state)
    equal(resumed.state.sandbox_id, session.state.sandbox_id)
    equal((await resumed.read(Path("a/b.txt"))).read(), b"hello")


@feature("connect")
async def connect() -> None:
    again = await client.resume(client.deserialize_session_state(client.serialize_session_state(session.state)))
    equal((await again.exec("cat", "a/b.txt")).stdout, b"hello")


@feature("kill")
async def kill() -> None:
    resumed.state.pause_on_exit = False
    await resumed.shutdown()
    equal(await e2b.AsyncSandbox.kill(session.state.sandbox_id), False)


no_call("run code")
main()
