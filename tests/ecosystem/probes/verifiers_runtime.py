"""verifiers: the E2B runtime of its environments; commands as root, bytes kept."""

import verifiers.v1.runtimes.e2b as e2b_runtime
from e2b import AsyncSandbox

from features import equal, feature, main, no_call, open_port


class Runtime(e2b_runtime.E2BRuntime):
    async def _ensure_template(self) -> str:
        return "base"  # its own would be built from an image of a public registry


runtime = Runtime(e2b_runtime.E2BConfig(workdir="/app"))


@feature("create")
async def create() -> None:
    await runtime.start()


@feature("commands")
async def commands() -> None:
    result = await runtime.run(["sh", "-c", "echo $GIVEN; pwd; id -un; echo err >&2"], {"GIVEN": "value"})
    equal((result.exit_code, result.stdout, result.stderr), (0, "value\n/app\nroot\n", "err\n"))
    process = await runtime.open_process(["cat"], {})
    await process.write(b"\xff\x00bytes\n")
    equal(await process.stdout.__anext__(), b"\xff\x00bytes\n")
    await process.terminate()


@feature("failing command")
async def failing_command() -> None:
    result = await runtime.run(["sh", "-c", "echo out; exit 6"], {})
    equal((result.exit_code, result.stdout), (6, "out\n"))
    result = await runtime.run_program(["sh", "-c", "echo 1; sleep 1; echo 2; exit 3"], {})
    equal((result.exit_code, result.stdout), (3, "1\n2\n"))


@feature("files")
async def files() -> None:
    await runtime.write("made/a.bin", b"\x00\xff")
    equal(await runtime.read("made/a.bin"), b"\x00\xff")
    equal(await runtime.read("/app/made/a.bin", max_bytes=10), b"\x00\xff")
    try:
        await runtime.read("none")
    except e2b_runtime.SandboxError:
        return
    raise AssertionError("no SandboxError")


@feature("ports")
async def ports() -> None:
    await runtime.write("served/index.html", b"from inside")
    await runtime.run_background(["python3", "-m", "http.server", "-d", "/app/served", "8000"], {}, "/tmp/log")
    equal(open_port(await runtime.expose(8000)), "from inside")


@feature("kill")
async def kill() -> None:
    gone = runtime.info.id
    await runtime.teardown()
    equal(await AsyncSandbox.kill(gone), False)


no_call("PTY", "connect", "pause", "run code")
main()
