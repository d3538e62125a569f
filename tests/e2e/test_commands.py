"""commands.*"""

import hashlib
import threading

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)

from support.waiting import eventually


def test_output_comes_back_exactly(sandbox):
    text = "a 'b' \"c\" $d `e` \\ ü 漢字"
    result = sandbox.commands.run(f"cat <<'END'\n{text}\n\n  x\nEND")
    assert result.stdout == f"{text}\n\n  x\n"
    assert result.stderr == ""
    assert result.exit_code == 0
    assert not result.error


def test_callbacks_get_both_streams_in_order(sandbox):
    out, err = [], []
    result = sandbox.commands.run(
        "for i in 1 2 3; do echo out$i; echo err$i >&2; done",
        on_stdout=out.append,
        on_stderr=err.append,
    )
    assert "".join(out) == result.stdout == "out1\nout2\nout3\n"
    assert "".join(err) == result.stderr == "err1\nerr2\nerr3\n"


def test_output_arrives_while_the_command_still_runs(sandbox):
    # The command cannot end before its first line was seen here.
    def release(_line):
        if not released:
            released.append(True)
            threading.Thread(target=sandbox.files.write, args=("go", "")).start()

    released = []
    result = sandbox.commands.run(
        "echo begun; until [ -e go ]; do :; done; echo done", on_stdout=release, timeout=30
    )
    assert result.stdout == "begun\ndone\n"


def test_an_exit_code_becomes_an_exception_with_everything_in_it(sandbox):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("echo out; echo err >&2; exit 7")
    assert caught.value.exit_code == 7
    assert caught.value.stdout == "out\n"
    assert caught.value.stderr == "err\n"


def test_an_unknown_command_exits_with_127(sandbox):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("no-such-program")
    assert caught.value.exit_code == 127


def test_a_background_command_goes_on_by_itself(sandbox):
    handle = sandbox.commands.run("echo $$ > pid; exec sleep 300", background=True)
    pid = int(eventually(lambda: sandbox.files.exists("pid") and sandbox.files.read("pid").strip()))
    assert pid == handle.pid
    assert sandbox.commands.run(f"kill -0 {pid}").exit_code == 0
    assert pid in [each.pid for each in sandbox.commands.list()]
    assert handle.kill() is True
    with pytest.raises(CommandExitException):
        sandbox.commands.run(f"kill -0 {pid}")
    assert sandbox.commands.kill(pid) is False


def test_the_list_shows_how_a_command_was_started(sandbox):
    handle = sandbox.commands.run("sleep 300", background=True, envs={"A": "b"}, cwd="/tmp")
    (info,) = [each for each in sandbox.commands.list() if each.pid == handle.pid]
    assert info.cmd == "/bin/bash"
    assert info.args == ["-l", "-c", "sleep 300"]
    assert info.envs == {"A": "b"}
    assert info.cwd == "/tmp"


def test_stdin_is_delivered_exactly_and_can_be_closed(sandbox):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "first\n")
    sandbox.commands.send_stdin(handle.pid, "")
    sandbox.commands.send_stdin(handle.pid, "zweite ü\n")
    sandbox.commands.close_stdin(handle.pid)
    result = handle.wait()
    assert result.exit_code == 0
    assert result.stdout == "first\nzweite ü\n"


def test_stdin_streams_in_order(sandbox):
    handle = sandbox.commands.run("head -c 300000 | sha256sum", background=True, stdin=True)
    chunks = [bytes([65 + n % 26]) * 1000 for n in range(300)]

    if type(sandbox).__name__ == "Blocking":
        stdin = sandbox.commands.stream_input(handle.pid)
        for chunk in chunks:
            stdin.send(chunk)
        stdin.close()
    else:
        sandbox.commands.stream_input(handle.pid, iter(chunks))
    assert handle.wait().stdout.split()[0] == hashlib.sha256(b"".join(chunks)).hexdigest()


def test_without_stdin_sending_fails_clearly(sandbox):
    handle = sandbox.commands.run("sleep 300", background=True)
    with pytest.raises(SandboxException):
        sandbox.commands.send_stdin(handle.pid, "x")
    assert handle.kill()


def test_variables_of_a_command_win_and_do_not_stay(sdk):
    sandbox = sdk.create(envs={"A": "sandbox", "B": "sandbox"})
    result = sandbox.commands.run("echo $A $B", envs={"A": "command"})
    assert result.stdout == "command sandbox\n"
    assert sandbox.commands.run("echo $A").stdout == "sandbox\n"


@pytest.mark.parametrize(
    ("cwd", "real"), [("/usr", "/usr"), ("deep/er", "/home/user/deep/er"), ("~", "/home/user")]
)
def test_the_working_directory_is_resolved_like_a_file_path(sandbox, cwd, real):
    sandbox.files.make_dir("deep/er")
    assert sandbox.commands.run("pwd", cwd=cwd).stdout == f"{real}\n"


def test_a_missing_working_directory_is_the_callers_mistake(sandbox):
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        sandbox.commands.run("pwd", cwd="/no/such/dir")


def test_commands_run_as_root_when_asked(sandbox):
    result = sandbox.commands.run("id -un; id -u; pwd; echo $HOME", user="root")
    assert result.stdout.split() == ["root", "0", "/root", "/root"]


def test_an_unknown_user_is_refused(sandbox):
    with pytest.raises(AuthenticationException, match="nobody-knows"):
        sandbox.commands.run("true", user="nobody-knows")


def test_sudo_needs_no_password(sandbox):
    assert sandbox.commands.run("sudo id -u").stdout == "0\n"
    assert sandbox.commands.run("sudo -u user whoami", user="root").stdout == "user\n"


def test_sudo_does_not_keep_the_callers_variables(sandbox):
    result = sandbox.commands.run("sudo sh -c 'echo [$SECRET]'", envs={"SECRET": "x"})
    assert result.stdout == "[]\n"


def test_a_command_past_its_time_is_killed(sandbox):
    with pytest.raises(TimeoutException):
        sandbox.commands.run("echo $$ > pid; exec sleep 300", timeout=3)
    pid = sandbox.files.read("pid").strip()
    eventually(
        lambda: sandbox.commands.run(f"kill -0 {pid} 2>/dev/null && echo alive || true").stdout == "",
        what="the process is gone",
    )


def test_a_command_outlives_the_client_that_started_it(sandbox):
    handle = sandbox.commands.run("exec sleep 300", background=True)
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    assert again.pid == handle.pid
    assert again.kill()


def test_connecting_shows_only_what_comes_after(sandbox):
    handle = sandbox.commands.run("echo before; read line; echo after $line", background=True, stdin=True)
    eventually(lambda: sandbox.commands.run("pgrep -f 'echo before' | wc -l").stdout.strip() != "0")
    again = sandbox.commands.connect(handle.pid)
    sandbox.commands.send_stdin(handle.pid, "x\n")
    assert again.wait().stdout.endswith("after x\n")


def test_connecting_to_an_unknown_process_says_so(sandbox):
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999999)


def test_killing_an_unknown_process_says_so(sandbox):
    assert sandbox.commands.kill(999999) is False


def test_a_killed_command_reports_its_signal(sandbox):
    handle = sandbox.commands.run("sleep 300", background=True)
    assert sandbox.commands.kill(handle.pid)
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert caught.value.exit_code == -1
    assert "killed" in (caught.value.error or "")


EATER = "python3 -c 'x = []\nwhile True: x.append(bytearray(20_000_000))'"


def test_a_command_that_used_up_the_memory_is_told_so(sandbox):
    for command, code, status in (
        (f"exec {EATER}", -1, "signal: killed"),
        (f"echo before; {EATER}; exit $?", 137, "exit status 137"),
    ):
        with pytest.raises(CommandExitException) as raised:
            sandbox.commands.run(command, timeout=60)
        ended = raised.value
        assert ended.exit_code == code
        assert ended.error.startswith(f"{status} (out of memory: the kernel killed "), ended.error
        assert ended.error.endswith("the sandbox may use 512 MiB)")
        # Where the client shows it by itself.
        assert "soulbox: out of memory" in str(ended)


def test_a_command_killed_by_somebody_is_not_said_to_have_used_up_the_memory(sandbox):
    # Started before the memory was used up, killed after that.
    victim = sandbox.commands.run("exec sleep 60", background=True)
    with pytest.raises(CommandExitException):
        sandbox.commands.run(f"exec {EATER}", timeout=60)
    sandbox.commands.run(f"kill -9 {victim.pid}", user="root")
    with pytest.raises(CommandExitException) as raised:
        victim.wait()
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: killed")
    assert "memory" not in str(raised.value)


def test_a_child_that_holds_the_output_keeps_the_stream_open(sandbox):
    result = sandbox.commands.run("(until [ -e released ]; do :; done; echo child) & touch released; echo parent")
    assert sorted(result.stdout.split()) == ["child", "parent"]


def test_bytes_that_are_not_text_do_not_break_the_stream(sandbox):
    result = sandbox.commands.run(r"head -c 8191 /dev/zero | tr '\0' a; printf '\xe2'")
    assert result.stdout == "a" * 8191 + "\ufffd"


def test_ten_megabytes_of_output_arrive_whole(sandbox):
    result = sandbox.commands.run("head -c 10000000 /dev/zero | tr '\\0' x")
    assert len(result.stdout) == 10_000_000


def test_a_slow_reader_does_not_hold_up_others(sandbox):
    # Nobody reads this one's stream.
    sandbox.commands.run("yes", background=True)
    for _ in range(5):
        assert sandbox.commands.run("echo quick", timeout=20).stdout == "quick\n"


def test_killing_the_sandbox_ends_a_running_command_with_the_reason(sdk):
    sandbox = sdk.create(timeout=60)
    handle = sandbox.commands.run("sleep 300", background=True, timeout=0)
    assert sdk.kill(sandbox.sandbox_id)
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        handle.wait()


def test_login_shells_read_the_profile(sandbox):
    sandbox.files.write("/home/user/.profile", "export FROM_PROFILE=yes\n")
    assert sandbox.commands.run("echo $FROM_PROFILE").stdout == "yes\n"


def test_the_git_helpers_of_the_client_work(sandbox):
    sandbox.git.init("repo", initial_branch="main")
    sandbox.git.configure_user("A", "a@example.com")
    sandbox.files.write("repo/a.txt", "one")
    sandbox.git.add("repo")
    sandbox.git.commit("repo", "first")
    status = sandbox.git.status("repo")
    assert status.current_branch == "main"
