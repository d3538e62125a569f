"""google-adk: its environment on E2B, which asks for the state before every operation."""

from e2b import AsyncSandbox
from google.adk.integrations.e2b import E2BEnvironment

from features import equal, feature, main, no_call

environment = E2BEnvironment(timeout=120, env_vars={"GIVEN": "value"})


@feature("create")
async def create() -> None:
    await environment.initialize()
    equal(str(environment.working_dir), "/home/user")


@feature("commands")
async def commands() -> None:
    result = await environment.execute("echo $GIVEN; pwd; echo err >&2")
    equal((result.exit_code, result.stdout, result.stderr), (0, "value\n/home/user\n", "err\n"))
    equal((await environment.execute("sleep 5", timeout=1)).timed_out, True)


@feature("failing command")
async def failing_command() -> None:
    result = await environment.execute("echo out; exit 3")
    equal((result.exit_code, result.stdout), (3, "out\n"))


@feature("files")
async def files() -> None:
    await environment.write_file("made/a.bin", b"\x00\xff")
    equal(await environment.read_file("/home/user/made/a.bin"), b"\x00\xff")
    try:
        await environment.read_file("none")
    except FileNotFoundError:
        return
    raise AssertionError("no FileNotFoundError")


@feature("kill")
async def kill() -> None:
    gone = environment._sandbox.sandbox_id
    # One that ended by itself is replaced by a new one.
    await AsyncSandbox.kill(gone)
    equal((await environment.execute("echo again")).stdout, "again\n")
    gone = environment._sandbox.sandbox_id
    await environment.close()
    equal(await AsyncSandbox.kill(gone), False)


no_call("PTY", "ports", "connect", "pause", "run code")
main()
