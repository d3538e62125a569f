"""PyPI `e2b-code-interpreter` of any version: `run_code`, beside what it has from the SDK."""

import importlib.metadata

from e2b_code_interpreter import Sandbox

from features import DOMAIN_MODE, NotOffered, equal, feature, main, open_port

VERSION = tuple(map(int, importlib.metadata.version("e2b-code-interpreter").split(".")[:2]))
SDK = tuple(map(int, importlib.metadata.version("e2b").split(".")[:2]))
OLD_SDK = (
    "`E2B_DOMAIN` only: this version asks for an e2b that has no `E2B_API_URL` or `E2B_SANDBOX_URL`, "
    "and reaches E2B itself by its domain"
)
sandbox = None


def inside(name: str):
    """Registers what reaches into the sandbox."""

    def register(function):
        @feature(name)
        def checked() -> None:
            if not DOMAIN_MODE and SDK < (2, 7):
                raise NotOffered(OLD_SDK)
            function()

        return checked

    return register


@feature("create")
def create() -> None:
    global sandbox
    if not DOMAIN_MODE and SDK < (2, 4):
        raise NotOffered(OLD_SDK)
    make = getattr(Sandbox, "create", Sandbox)
    sandbox = make(timeout=180, metadata={"made": "by"}, envs={"GIVEN": "value"})


@inside("commands")
def commands() -> None:
    equal(sandbox.commands.run("echo $GIVEN").stdout, "value\n")


@inside("failing command")
def failing_command() -> None:
    try:
        sandbox.commands.run("exit 3")
    except Exception as error:
        equal((type(error).__name__, error.exit_code), ("CommandExitException", 3))
        return
    raise AssertionError("no CommandExitException")


@inside("files")
def files() -> None:
    sandbox.files.write("/home/user/a.txt", "text ü")
    equal(sandbox.files.read("/home/user/a.txt"), "text ü")


@inside("PTY")
def pty() -> None:
    from e2b.sandbox.commands.command_handle import PtySize

    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=30)
    sandbox.pty.send_stdin(terminal.pid, b"echo $((6 * 7)); exit\n")
    screen = b"".join(data for _, _, data in terminal if data)
    assert b"42" in screen, screen


@inside("ports")
def ports() -> None:
    sandbox.files.write("/home/user/served/index.html", "from inside")
    serving = sandbox.commands.run("python3 -m http.server -d /home/user/served 8000", background=True)
    equal(open_port(sandbox.get_host(8000)), "from inside")
    serving.kill()


@inside("run code")
def run_code() -> None:
    if not DOMAIN_MODE and VERSION < (2, 9):
        raise NotOffered("`E2B_DOMAIN` only: before 2.9 the interpreter is always at `https://49999-<id>.<domain>`, with E2B too")
    equal(sandbox.run_code("x = 6; print('log'); x * 7").text, "42")
    execution = sandbox.run_code("print(x); import sys; print('err', file=sys.stderr); 1 / 0")
    equal((execution.logs.stdout, execution.logs.stderr), (["6\n"], ["err\n"]))
    equal(execution.error.name, "ZeroDivisionError")
    chart = sandbox.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    assert chart.results and chart.results[0].png, chart


@inside("connect")
def connect() -> None:
    again = Sandbox.connect(sandbox.sandbox_id)
    equal(again.files.read("/home/user/a.txt"), "text ü")
    if DOMAIN_MODE or VERSION >= (2, 9):
        equal(again.run_code("x").text, "6")


@inside("pause")
def pause() -> None:
    do = getattr(sandbox, "pause", None) or getattr(sandbox, "beta_pause", None)
    if do is None:
        raise NotOffered("not in this version: it has no `pause`, with E2B neither")
    sandbox.files.write("/home/user/kept", "before")
    do()
    sandbox.connect(timeout=120)
    equal(sandbox.files.read("/home/user/kept"), "before")
    if DOMAIN_MODE or VERSION >= (2, 9):
        equal(sandbox.run_code("x").text, "6")


@feature("kill")
def kill() -> None:
    if sandbox is None:
        raise NotOffered(OLD_SDK)
    assert sandbox.kill() in (True, None)  # 1.x answers nothing
    equal(Sandbox.kill(sandbox.sandbox_id), False)


main()
