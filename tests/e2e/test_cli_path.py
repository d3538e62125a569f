"""PATH is the same for `exec`, shells, SSH and the SDKs."""

import shutil
import subprocess

import pytest

from support.screen import Screen
from support.server import binary, clean_environment


def paths(server, box):
    def last(text):
        return text.strip().splitlines()[-1]

    yield "exec", last(server.cli("exec", box.sandbox_id, "--", "printenv", "PATH").stdout.decode())
    yield "exec --shell", last(server.cli("exec", box.sandbox_id, "--shell", "echo $PATH").stdout.decode())
    yield "exec sh", last(server.cli("exec", box.sandbox_id, "--", "sh", "-c", "echo $PATH").stdout.decode())
    yield "sdk", last(box.commands.run("echo $PATH").stdout)
    screen = Screen(server, "shell", box.sandbox_id)
    screen.resize(24, 400)
    screen.type("echo here:$PATH:there; exit\n")
    screen.shows(":there\r\n")
    assert screen.exit_code() == 0
    yield "shell", [line for line in screen.text.splitlines() if line.startswith("here:/")][-1][5:-6]
    if shutil.which("ssh"):
        done = subprocess.run(
            [str(binary()), "ssh", box.sandbox_id, "echo $PATH"],
            env=clean_environment() | server.env,
            capture_output=True,
            timeout=60,
        )
        yield "ssh", last(done.stdout.decode())


@pytest.mark.parametrize("installed", [False, True])
def test_a_program_is_found_by_all_or_by_none(server, box, installed):
    if installed:
        box.files.write("/home/user/.local/bin/mine", "#!/bin/sh\necho mine\n")
        box.commands.run("chmod +x ~/.local/bin/mine && mkdir ~/bin")
        assert server.cli("exec", box.sandbox_id, "--", "mine").stdout == b"mine\n"
    seen = dict(paths(server, box))
    assert len(set(seen.values())) == 1, seen
    own = seen["sdk"].startswith("/home/user/.local/bin:/home/user/bin:/usr/local/sbin:")
    assert own == installed, seen


def test_a_path_that_is_asked_for_is_taken_as_it_is(server, box):
    box.commands.run("mkdir -p ~/.local/bin")
    done = server.cli("exec", "-e", "PATH=/usr/bin:/bin", box.sandbox_id, "--", "printenv", "PATH")
    assert done.stdout == b"/usr/bin:/bin\n"
