"""Habits of the command line on a real terminal: -it, Ctrl-C, progress, prompts."""

import re
import signal
import subprocess

import pytest

from support.screen import Screen
from support.server import binary, clean_environment


@pytest.fixture
def made(cli_server):
    made = cli_server.cli("create", "--timeout", "5m").stdout.decode().strip()
    yield made
    cli_server.remove_all_sandboxes()


def test_run_it_is_a_terminal_in_a_new_sandbox(cli_server):
    screen = Screen(cli_server, "run", "-it", "bash")
    screen.resize(30, 100)
    screen.type("tty; echo size:$(stty size); exit 4\n")
    screen.shows("/dev/pts/")
    screen.shows("size:")
    assert screen.exit_code() == 4
    assert cli_server.cli("ls", "-q").stdout == b""


def test_exec_it_is_a_terminal_in_this_sandbox(cli_server, made):
    screen = Screen(cli_server, "exec", "-it", made, "sh")
    screen.type("test -t 0 && echo on:a:terminal; exit 6\n")
    screen.shows("on:a:terminal")
    assert screen.exit_code() == 6


def test_a_template_after_run_t_is_told_from_a_command(cli_server):
    screen = Screen(cli_server, "run", "-t", "base")
    assert screen.exit_code() == 127
    assert "-t is --tty, as in Docker; the template is chosen with --template base" in screen.text
    screen = Screen(cli_server, "shell", "-t", "base")
    assert screen.exit_code() == 125
    assert "the template is chosen with --template base" in screen.text


def interrupted(server, *words, first: bytes | None = None):
    running = subprocess.Popen(
        [str(binary()), *words],
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if first is not None:
        assert running.stdout.readline() == first
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=30)
    return running.returncode, stderr.decode()


def test_control_c_says_what_goes_on(cli_server, made, transcript):
    up = ["sh", "-c", "echo up; exec sleep 300"]
    pid = cli_server.cli("exec", "-d", made, "--", *up).stdout.decode().strip()
    transcript.also(f"{made} {pid}", "<sandbox> <pid>")
    for words in (["run", "--", *up], ["exec", made, "--", *up], ["attach", made, pid]):
        code, stderr = interrupted(cli_server, *words, first=b"up\n")
        transcript.say(words, code, "", stderr)
    code, stderr = interrupted(cli_server, "logs", "-f", made, first=None)
    assert code in (-2, 130), stderr
    assert pid in cli_server.cli("ps", made).stdout.decode(), "what is watched goes on"


def test_a_build_says_what_is_left_by_what_the_last_one_took(cli_server):
    words = ["template", "from-host", "-t", "slow", "--no-cache", "--run", "sleep 2"]
    first = Screen(cli_server, *words)
    first.resize(24, 120)
    assert first.exit_code() == 0
    assert "so far; there is no earlier one to tell how long it takes" in first.text
    second = Screen(cli_server, *words)
    second.resize(24, 120)
    assert second.exit_code() == 0
    assert re.search(r"\d s so far, about \d+ s left", second.text), second.text
    # Nothing of it is left on the screen, and none of it in a file.
    quiet = cli_server.cli(*words, timeout=60)
    assert quiet.returncode == 0 and b"so far" not in quiet.stderr
    assert b"try: soulbox shell --template slow" in quiet.stderr
    assert cli_server.cli("template", "rm", "slow").returncode == 0


def test_prune_asks_and_a_no_is_a_no(cli_server, made):
    screen = Screen(cli_server, "prune", "--volumes")
    screen.shows("go on? [y/N] ")
    screen.type("n\n")
    assert screen.exit_code() == 1
    assert "nothing was removed" in screen.text


def test_a_secret_is_asked_for_and_not_shown(cli_server):
    screen = Screen(cli_server, "secret", "create", "asked")
    screen.shows("value of asked (not shown): ")
    screen.type("hunter2\n")
    assert screen.exit_code() == 0
    assert "hunter2" not in screen.text
    assert cli_server.cli("secret", "rm", "asked").returncode == 0


def test_top_is_drawn_until_q(cli_server, made):
    screen = Screen(cli_server, "top")
    screen.shows(made)
    screen.type("q")
    assert screen.exit_code() == 0
