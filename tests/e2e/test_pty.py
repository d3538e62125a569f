"""pty.*"""

import threading

import pytest
from e2b import CommandExitException
from e2b.sandbox.commands.command_handle import PtySize

from support.waiting import eventually


class Terminal:
    """A terminal of either client, whose output is collected in the background."""

    def __init__(self, sandbox, size=PtySize(rows=24, cols=80), **kwargs):
        self.sandbox = sandbox
        self._seen: list[bytes] = []
        self.result = None
        self.error = None
        if type(sandbox).__name__ == "Blocking":
            self.handle = sandbox.pty.create(size=size, on_data=self._keep, timeout=60, **kwargs)
        else:
            self.handle = sandbox.pty.create(size=size, timeout=60, **kwargs)
        self._attend(self.handle)

    def _keep(self, data):
        self._seen.append(bytes(data))

    def _attend(self, handle):
        def wait():
            try:
                if type(handle).__name__ == "Blocking":
                    self.result = handle.wait()
                else:
                    self.result = handle.wait(on_pty=self._keep)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=wait, daemon=True)
        self.thread.start()

    def type(self, text):
        self.sandbox.pty.send_stdin(self.handle.pid, text.encode())

    @property
    def output(self):
        return b"".join(self._seen).decode(errors="replace")

    def shows(self, text, within=15.0):
        eventually(lambda: text in self.output, within=within, what=f"{text!r} in {self.output!r}")

    def ends(self):
        self.thread.join(15)
        assert not self.thread.is_alive()


def test_a_terminal_runs_a_shell_with_its_size(sandbox):
    terminal = Terminal(sandbox, PtySize(rows=31, cols=97))
    terminal.type("stty size; tty; echo $TERM\n")
    terminal.shows("31 97")
    terminal.shows("/dev/pts/")
    terminal.shows("xterm-256color")
    terminal.type("exit 0\n")
    terminal.ends()
    assert terminal.result.exit_code == 0


def test_resizing_is_seen_by_programs(sandbox):
    terminal = Terminal(sandbox)
    terminal.type("echo size:$(tput cols)\n")
    terminal.shows("size:80")
    sandbox.pty.resize(terminal.handle.pid, PtySize(rows=24, cols=100))
    terminal.type("echo size:$(tput cols)\n")
    terminal.shows("size:100")
    assert sandbox.pty.kill(terminal.handle.pid)


def test_variables_directory_and_user_are_those_asked_for(sandbox):
    terminal = Terminal(sandbox, envs={"A": "42"}, cwd="/tmp", user="root")
    terminal.type("echo r:$A:$PWD:$(id -un)\n")
    terminal.shows("r:42:/tmp:root")
    assert sandbox.pty.kill(terminal.handle.pid)


def test_control_c_interrupts_the_foreground_program(sandbox):
    terminal = Terminal(sandbox)
    terminal.type("sleep 300; echo code:$?\n")
    eventually(lambda: sandbox.commands.run("pgrep -x sleep || true").stdout.strip())
    terminal.type("\x03")
    terminal.type("echo code:$?\n")
    terminal.shows("code:130")
    assert sandbox.pty.kill(terminal.handle.pid)


def test_a_terminal_can_be_connected_to_again(sandbox):
    terminal = Terminal(sandbox)
    terminal.type("A=kept\n")
    if hasattr(terminal.handle, "disconnect") and type(sandbox).__name__ == "Blocking":
        terminal.handle.disconnect()
    second: list[bytes] = []
    if type(sandbox).__name__ == "Blocking":
        sandbox.pty.connect(terminal.handle.pid, on_data=lambda data: second.append(bytes(data)))
        collect = None
    else:
        again = sandbox.pty.connect(terminal.handle.pid)

        def wait():
            try:
                again.wait(on_pty=lambda data: second.append(bytes(data)))
            except Exception:
                pass

        collect = threading.Thread(target=wait, daemon=True)
        collect.start()
    sandbox.pty.send_stdin(terminal.handle.pid, b"echo again:$A\n")
    eventually(lambda: b"again:kept" in b"".join(second), what="output on the second connection")
    assert sandbox.pty.kill(terminal.handle.pid)


def test_a_killed_terminal_is_gone(sandbox):
    terminal = Terminal(sandbox)
    pid = terminal.handle.pid
    assert sandbox.pty.kill(pid) is True
    with pytest.raises(CommandExitException):
        sandbox.commands.run(f"kill -0 {pid}")
    assert sandbox.pty.kill(pid) is False


def test_killing_an_unknown_terminal_says_so(sandbox):
    assert sandbox.pty.kill(999999) is False


def test_the_exit_code_of_the_shell_is_that_of_the_terminal(sandbox):
    terminal = Terminal(sandbox)
    terminal.type("exit 3\n")
    terminal.ends()
    assert isinstance(terminal.error, CommandExitException)
    assert terminal.error.exit_code == 3
