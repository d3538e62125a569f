"""A server that was started under other resource limits than a root shell's, as sudo and units do."""

import re
import subprocess
from pathlib import Path

import pytest
from e2b import Sandbox

from support.server import binary, clean_environment

CAP_SYS_RESOURCE = 24
# As in a container that lacks it.
MAY_NOT_RAISE = ["setpriv", "--inh-caps=-sys_resource", "--bounding-set=-sys_resource"]


def may_raise_limits() -> bool:
    effective = re.search(r"^CapEff:\t(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(int(effective[1], 16) >> CAP_SYS_RESOURCE & 1)


def test_sandboxes_start_where_sudo_took_core_dumps_away(own_server):
    server = own_server()
    server.starter = ["prlimit", "--core=0:0"]
    server.start()
    with Sandbox.create(**server.sdk) as sandbox:
        assert sandbox.commands.run("echo works").stdout == "works\n"


@pytest.mark.parametrize(
    "option, limit",
    [("--nofile=4096:4096", "-Hn"), ("--memlock=65536:65536", "-Hl"), ("--sigpending=2048:2048", "-Hi")],
)
def test_sandboxes_start_under_low_limits_that_are_enough(own_server, option, limit):
    server = own_server()
    server.starter = ["prlimit", option]
    server.start()
    with Sandbox.create(**server.sdk) as sandbox:
        assert int(sandbox.commands.run(f"bash -c 'ulimit {limit}'").stdout) > 0


def test_limits_inside_do_not_depend_on_those_of_the_server(own_server):
    server = own_server()
    server.starter = ["prlimit", "--stack=1048576:unlimited", "--rtprio=0", "--nofile=1024:4096"]
    server.start()
    with Sandbox.create(**server.sdk) as sandbox:
        shell = "bash -c 'ulimit -Ss; ulimit -Sn; ulimit -Hn; ulimit -Sv'"
        assert sandbox.commands.run(shell).stdout.split() == ["8192", "4096", "4096", "unlimited"]


def test_limits_too_low_for_a_sandbox_are_raised_or_refused_at_the_start_by_name(own_server):
    server = own_server()
    server.starter = ["prlimit", "--nproc=10:10"]
    if may_raise_limits():
        server.start()
        with Sandbox.create(**server.sdk) as sandbox:
            assert sandbox.commands.run("bash -c 'ulimit -Hu'").stdout.strip() == "4096"
    else:
        assert server.spawn().wait(60) != 0
        said = server.log.read_text()
        for part in ("the hard limit of processes is 10", "ulimit -Hu 4096", "LimitNPROC=", "soulbox doctor"):
            assert part in said, said


@pytest.mark.skipif(not may_raise_limits(), reason="needs CAP_SYS_RESOURCE")
@pytest.mark.parametrize(
    "option, shown",
    [
        ("--stack=65536:65536", "Max stack size"),
        ("--as=4000000000:4000000000", "Max address space"),
        ("--data=1000000000:1000000000", "Max data size"),
        ("--cpu=60:60", "Max cpu time"),
    ],
)
def test_limits_that_would_end_the_server_without_a_word_are_raised(own_server, option, shown):
    server = own_server()
    server.starter = ["prlimit", option]
    server.start()
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    value = re.search(rf"^{shown} +(\w+)", limits, re.MULTILINE)[1]
    assert value == ("8388608" if "stack" in option else "unlimited")
    with Sandbox.create(**server.sdk) as sandbox:
        assert sandbox.commands.run("echo works").stdout == "works\n"


@pytest.mark.parametrize(
    "option, parts",
    [
        ("--stack=65536:65536", ["stack is 65536", "ulimit -Hs", "LimitSTACK"]),
        ("--as=4000000000:4000000000", ["address space is 4000000000", "ulimit -Hv", "LimitAS"]),
        ("--data=1000000000:1000000000", ["data is 1000000000", "ulimit -Hd", "LimitDATA"]),
        ("--cpu=60:60", ["cpu time is 60", "ulimit -Ht", "LimitCPU"]),
    ],
)
def test_limits_that_cannot_be_raised_refuse_the_start_by_name(own_server, option, parts):
    server = own_server()
    server.starter = ["prlimit", option, *MAY_NOT_RAISE]
    assert server.spawn().wait(60) == 1
    said = server.log.read_text()
    assert all(part in said for part in parts), said


def test_a_stack_that_is_too_small_is_told_by_every_command():
    command = ["prlimit", "--stack=65536:65536", *MAY_NOT_RAISE, str(binary()), "ls"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "stack is 65536" in done.stderr and "LimitSTACK" in done.stderr, done
