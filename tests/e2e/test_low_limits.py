"""A server that was started under other resource limits than a root shell's, as sudo and units do."""

import pytest
from e2b import Sandbox


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
