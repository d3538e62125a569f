"""PyPI `e2b` of any version, `Sandbox` and `AsyncSandbox`: the same calls through both."""

import inspect
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import e2b  # noqa: E402
from e2b.connection_config import ConnectionConfig  # noqa: E402

from features import DOMAIN_MODE, NotOffered, equal, feature, main, not_offered, open_port  # noqa: E402
from support.blocking import Blocking, Loop  # noqa: E402

try:
    from e2b import PtySize
except ImportError:
    from e2b.sandbox.commands.command_handle import PtySize

LOOP = Loop()
CLIENTS = {"Sandbox": e2b.Sandbox, "AsyncSandbox": Blocking(e2b.AsyncSandbox, LOOP)}
SANDBOXES: dict[str, Any] = {}
HAS_SANDBOX_URL = "sandbox_url" in inspect.signature(ConnectionConfig.__init__).parameters


def each_sandbox():
    """Only in domain mode where the SDK knows no other address of a sandbox."""
    if not DOMAIN_MODE and not HAS_SANDBOX_URL:
        raise NotOffered("`E2B_DOMAIN` only: this version has no `E2B_SANDBOX_URL`, and reaches E2B itself by its domain")
    return SANDBOXES.values()


@feature("create")
def create() -> None:
    for name, client in CLIENTS.items():
        sandbox = client.create(template="base", timeout=120, metadata={"made": "by"}, envs={"GIVEN": "value"})
        SANDBOXES[name] = sandbox
        equal(sandbox.get_info().metadata, {"made": "by"})


@feature("commands")
def commands() -> None:
    for sandbox in each_sandbox():
        told: list[str] = []
        result = sandbox.commands.run("echo $GIVEN; pwd; echo err >&2", on_stdout=told.append)
        equal((result.exit_code, result.stdout, result.stderr), (0, "value\n/home/user\n", "err\n"))
        equal("".join(told), result.stdout)
        handle = sandbox.commands.run("sleep 60", background=True)
        assert handle.pid in [each.pid for each in sandbox.commands.list()]
        assert handle.kill() is True


@feature("failing command")
def failing_command() -> None:
    for sandbox in each_sandbox():
        try:
            sandbox.commands.run("echo before; exit 3")
        except e2b.CommandExitException as error:
            equal((error.exit_code, error.stdout), (3, "before\n"))
        else:
            raise AssertionError("no CommandExitException")


@feature("files")
def files() -> None:
    for sandbox in each_sandbox():
        path = "/home/user/made/a.txt"
        sandbox.files.write(path, "text ü")
        equal(sandbox.files.read(path), "text ü")
        sandbox.files.write("/home/user/made/b.bin", b"\x00\xff")
        equal(bytes(sandbox.files.read("/home/user/made/b.bin", format="bytes")), b"\x00\xff")
        equal(sorted(each.name for each in sandbox.files.list("/home/user/made")), ["a.txt", "b.bin"])
        sandbox.files.rename(path, "/home/user/made/c.txt")
        equal((sandbox.files.exists(path), sandbox.files.exists("/home/user/made/c.txt")), (False, True))
        sandbox.files.remove("/home/user/made")
        try:
            sandbox.files.read(path)
        except e2b.NotFoundException:
            continue
        raise AssertionError("no NotFoundException")


@feature("PTY")
def pty() -> None:
    for name, sandbox in zip(CLIENTS, each_sandbox()):
        told: list[bytes] = []
        options = {"on_data": told.append} if name == "AsyncSandbox" else {}
        terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=30, **options)
        sandbox.pty.send_stdin(terminal.pid, b"echo $((6 * 7)); stty size; exit\n")
        if options:
            terminal.wait()
        else:
            told += [data for _, _, data in terminal if data]
        screen = b"".join(told)
        assert b"42" in screen and b"24 80" in screen, screen


@feature("ports")
def ports() -> None:
    for sandbox in each_sandbox():
        sandbox.files.write("/home/user/served/index.html", "from inside")
        serving = sandbox.commands.run("python3 -m http.server -d /home/user/served 8000", background=True)
        equal(open_port(sandbox.get_host(8000)), "from inside")
        serving.kill()


@feature("connect")
def connect() -> None:
    for name, sandbox in zip(CLIENTS, each_sandbox()):
        sandbox.files.write("/home/user/left", "by the first")
        again = CLIENTS[name].connect(sandbox.sandbox_id)
        equal(again.files.read("/home/user/left"), "by the first")
        equal(again.commands.run("cat left").stdout, "by the first")


@feature("pause")
def pause() -> None:
    for sandbox in each_sandbox():
        do = getattr(sandbox, "pause", None) or getattr(sandbox, "beta_pause", None)
        if do is None:
            raise NotOffered("not in this version: it has no `pause`, with E2B neither")
        sandbox.files.write("/home/user/kept", "before")
        do()
        sandbox.connect(timeout=120)
        equal(sandbox.files.read("/home/user/kept"), "before")


@feature("kill")
def kill() -> None:
    for name, sandbox in SANDBOXES.items():
        assert sandbox.kill() is True
        equal(CLIENTS[name].kill(sandbox.sandbox_id), False)
        if DOMAIN_MODE or HAS_SANDBOX_URL:
            equal(sandbox.is_running(), False)


not_offered("`run_code` is in e2b-code-interpreter, which has rows of its own", "run code")
main()
