"""A server that was started under other resource limits than a root shell's, as sudo and units do."""

import re
from pathlib import Path

import pytest
from e2b import Sandbox

CAP_SYS_RESOURCE = 24


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
