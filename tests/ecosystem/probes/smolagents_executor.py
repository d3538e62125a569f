"""smolagents: the E2B executor of its code agents."""

from e2b import Sandbox
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor
from smolagents.utils import AgentError

from features import equal, feature, main, no_call

executor: E2BExecutor | None = None


@feature("create")
def create() -> None:
    global executor
    executor = E2BExecutor([], AgentLogger(level=LogLevel.INFO), timeout=120)


@feature("run code")
def run_code() -> None:
    executor.send_variables({"n": 6})
    told = executor("print('log'); n * 7")
    equal((str(told.output), told.logs.strip(), told.is_final_answer), ("42", "log", False))
    try:
        executor("1 / 0")
    except AgentError as error:
        assert "ZeroDivisionError" in str(error), error
    else:
        raise AssertionError("no AgentError")
    image = executor("import PIL.Image\nPIL.Image.new('RGB', (3, 2))").output
    equal(image.size, (3, 2))


@feature("kill")
def kill() -> None:
    gone = executor.sandbox.sandbox_id
    executor.cleanup()
    equal(Sandbox.kill(gone), False)


no_call("commands", "failing command", "files", "PTY", "ports", "connect", "pause")
main()
