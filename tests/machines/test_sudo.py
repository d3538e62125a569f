"""Through sudo, as `./serve` does for everybody who is not root. It takes the right to core dumps away."""

import pytest

from machines.serving import How, Serving

pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def serving(machine):
    serving = Serving(machine, How.SUDO)
    serving.start()
    return serving


def test_sandboxes_start_on_a_server_that_a_user_started_with_sudo(serving, machine, client):
    limits = machine.run(f"grep 'core file' /proc/{serving.pid()}/limits").split()
    assert limits[-2] == "0", "sudo does not lower this limit here: the check would show nothing"
    client.run("first_steps")


def test_the_user_takes_the_key_through_sudo(serving, machine):
    line = 'eval "$(sudo cat /var/lib/soulbox/env)"; soulbox run -- id -un'
    assert machine.run(line, user="dev") == "user\n"
