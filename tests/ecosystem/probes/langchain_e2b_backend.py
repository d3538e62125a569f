"""langchain-e2b: the backend of Deep Agents around a sandbox of the SDK."""

from e2b import Sandbox
from langchain_e2b import E2BSandbox

from features import equal, feature, main, no_call

backend: E2BSandbox | None = None
sandbox: Sandbox | None = None


@feature("create")
def create() -> None:
    global backend, sandbox
    sandbox = Sandbox.create(template="base", timeout=120)
    backend = E2BSandbox(sandbox=sandbox)
    equal(backend.id, sandbox.sandbox_id)


@feature("commands")
def commands() -> None:
    result = backend.execute("pwd; echo err >&2")
    equal(result.exit_code, 0)
    assert "/home/user" in result.output and "err" in result.output, result
    equal(backend.execute("sleep 5", timeout=1).exit_code, 124)


@feature("failing command")
def failing_command() -> None:
    result = backend.execute("echo hi; exit 4")
    equal((result.exit_code, result.output.strip()), (4, "hi"))


@feature("files")
def files() -> None:
    folder = "/home/user/w"
    assert backend.write(f"{folder}/a.py", "x = 1\n").error is None
    equal(backend.edit(f"{folder}/a.py", "x = 1", "x = 9").occurrences, 1)
    equal([(each["line"], each["text"]) for each in backend.grep("x =", folder).matches], [(1, "x = 9")])
    equal([each["path"] for each in backend.ls(folder).entries], [f"{folder}/a.py"])
    equal(len(backend.glob("*.py", folder).matches), 1)
    assert "x = 9" in str(backend.read(f"{folder}/a.py"))
    (up,) = backend.upload_files([("/home/user/u.bin", b"\x00\x01")])
    assert up.error is None, up
    found, missing = backend.download_files(["/home/user/u.bin", "/nope"])
    equal((found.content, missing.error), (b"\x00\x01", "file_not_found"))


@feature("connect")
def connect() -> None:
    again = E2BSandbox(sandbox=Sandbox.connect(backend.id, timeout=120))
    equal(again.execute("cat /home/user/w/a.py").output.strip(), "x = 9")


@feature("pause")
def pause() -> None:
    sandbox.pause()
    again = E2BSandbox(sandbox=Sandbox.connect(backend.id, timeout=120))
    equal(again.execute("cat /home/user/w/a.py").output.strip(), "x = 9")


@feature("kill")
def kill() -> None:
    assert sandbox.kill() is True
    equal(Sandbox.kill(backend.id), False)


no_call("PTY", "ports", "run code")
main()
