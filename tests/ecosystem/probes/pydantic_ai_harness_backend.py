"""pydantic-ai-harness: it runs every command as `setsid sh -c …`, and turns error texts into Python's errors."""

import e2b
from pydantic_ai.workspaces import WorkspaceUnavailableError
from pydantic_ai_harness.e2b_sandbox._backend import E2BSandboxBackend, kill_sandbox

from features import equal, feature, main, no_call

backend = E2BSandboxBackend(template="base", sandbox_timeout=120, env={"GIVEN": "value"})


async def raised(call, *kinds: type[BaseException]) -> str:
    try:
        await call
    except kinds as error:
        return str(error)
    raise AssertionError(f"none of {kinds}")


@feature("create")
async def create() -> None:
    equal(await backend.working_dir(), "/home/user")
    told = await raised(E2BSandboxBackend(template="no-such").working_dir(), WorkspaceUnavailableError)
    assert "no-such" in told, told
    # It reads the server's text about the longest time, and turns it into advice.
    told = await raised(E2BSandboxBackend(sandbox_timeout=10**7).working_dir(), Exception)
    assert "sandbox_timeout" in told, told


@feature("commands")
async def commands() -> None:
    result = await backend.run(["sh", "-c", "echo $GIVEN; echo err >&2"])
    equal((result.exit_code, result.stdout, result.stderr), (0, "value\n", "err\n"))
    # Its own deadline ends the command with all its children.
    await raised(backend.run(["sh", "-c", "sleep 31 & sleep 31"], timeout=1), TimeoutError)
    equal((await backend.run(["pgrep", "-x", "sleep"])).exit_code, 1)


@feature("failing command")
async def failing_command() -> None:
    result = await backend.run(["sh", "-c", "echo out; exit 5"])
    equal((result.exit_code, result.stdout), (5, "out\n"))


@feature("files")
async def files() -> None:
    await backend.make_dir("/home/user/made")
    await backend.write_bytes("/home/user/made/x", b"abc\x00")
    equal(await backend.read_bytes("/home/user/made/x"), b"abc\x00")
    equal([each.name for each in await backend.list_dir("/home/user/made")], ["x"])
    equal((await backend.stat("/home/user/made/x")).size, 4)
    await raised(backend.read_bytes("/none"), FileNotFoundError)
    await raised(backend.read_bytes("/home/user/made"), IsADirectoryError)
    await raised(backend.list_dir("/home/user/made/x"), NotADirectoryError)
    await backend.remove("/home/user/made/x")
    equal(await backend.exists("/home/user/made/x"), False)


@feature("connect")
async def connect() -> None:
    await backend.write_bytes("/home/user/left", b"by the first")
    again = E2BSandboxBackend(ref=backend.ref, sandbox_timeout=120)
    equal(await again.read_bytes("/home/user/left"), b"by the first")
    equal((await again.run(["cat", "left"])).stdout, "by the first")


@feature("pause")
async def pause() -> None:
    """The lifetime's end pauses; attaching by the reference resumes."""
    sandbox = await backend.get_sandbox()
    await sandbox.pause()
    again = E2BSandboxBackend(ref=backend.ref, sandbox_timeout=120)
    equal(await again.read_bytes("/home/user/left"), b"by the first")


@feature("kill")
async def kill() -> None:
    sandbox = await backend.get_sandbox()
    await kill_sandbox(sandbox.sandbox_id)
    equal(await e2b.AsyncSandbox.kill(sandbox.sandbox_id), False)
    await raised(backend.run(["true"]), WorkspaceUnavailableError)


no_call("PTY", "ports", "run code")
main()
