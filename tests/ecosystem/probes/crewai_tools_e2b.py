"""crewai-tools: the Exec, File and Python tools, and its own pinned SDK."""

import e2b
from crewai_tools.tools.e2b_sandbox_tool import E2BExecTool, E2BFileTool, E2BPythonTool

from features import DOMAIN_MODE, NotOffered, equal, feature, main, no_call

shell = E2BExecTool(template="base", persistent=True, sandbox_timeout=120, envs={"GIVEN": "value"}, metadata={"made": "by"})


def sandbox_id() -> str:
    return shell._persistent_sandbox.sandbox_id


@feature("create")
def create() -> None:
    equal(shell.run(command="true")["exit_code"], 0)
    equal(e2b.Sandbox.get_info(sandbox_id()).metadata, {"made": "by"})


@feature("commands")
def commands() -> None:
    result = shell.run(command="echo $GIVEN $MORE; pwd; echo err >&2", envs={"MORE": "more"}, cwd="/tmp", timeout=20)
    equal((result["exit_code"], result["stdout"], result["stderr"]), (0, "value more\n/tmp\n", "err\n"))


@feature("failing command")
def failing_command() -> None:
    """It passes the SDK's error on."""
    try:
        told = shell.run(command="echo out; exit 3")
    except e2b.CommandExitException as error:
        equal((error.exit_code, error.stdout), (3, "out\n"))
        return
    raise AssertionError(f"no CommandExitException: {told}")


@feature("files")
def files() -> None:
    tool = E2BFileTool(template="base", persistent=True, sandbox_timeout=120)
    try:
        path = "/home/user/made/a.txt"
        tool.run(action="write", path=path, content="text ü\n")
        # Not "append": it adds bytes to the bytearray that its SDK reads, which that SDK does not write.
        equal(tool.run(action="read", path=path)["content"], "text ü\n")
        assert "a.txt" in str(tool.run(action="list", path="/home/user/made"))
        assert tool.run(action="exists", path=path)["exists"] is True
        tool.run(action="delete", path=path)
        assert tool.run(action="exists", path=path)["exists"] is False
    finally:
        tool.close()


@feature("connect")
def connect() -> None:
    shell.run(command="echo by the first > left")
    again = E2BExecTool(sandbox_id=sandbox_id(), sandbox_timeout=120)
    equal(again.run(command="cat left")["stdout"], "by the first\n")


@feature("run code")
def run_code() -> None:
    if not DOMAIN_MODE:
        raise NotOffered(
            "`E2B_DOMAIN` only: it pins e2b-code-interpreter 2.6, whose interpreter is always at "
            "`https://49999-<id>.<domain>`, with E2B too"
        )
    tool = E2BPythonTool(persistent=True, sandbox_timeout=120)
    try:
        equal(tool.run(code="x = 6; print('log'); x * 7")["text"], "42")
        told = tool.run(code="print(x); 1 / 0")
        equal((told["stdout"], told["error"]["name"]), (["6\n"], "ZeroDivisionError"))
    finally:
        tool.close()


@feature("kill")
def kill() -> None:
    gone = sandbox_id()
    shell.close()
    equal(e2b.Sandbox.kill(gone), False)


no_call("PTY", "ports", "pause")
main()
