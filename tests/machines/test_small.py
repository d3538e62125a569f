"""A machine with 1 GiB of memory, and what a reboot leaves of paused sandboxes."""

import json

import pytest

from machines.park import Kind
from machines.unit import Unit

pytestmark = pytest.mark.kind(Kind.SMALL)


@pytest.fixture(scope="module")
def unit(machine):
    """Started by systemd, also after a reboot."""
    unit = Unit(machine)
    unit.systemctl("enable", "-q")
    unit.start()
    return unit


def test_the_machine_has_1_gib(machine):
    total = int(machine.run("awk '/MemTotal/ {print $2}' /proc/meminfo"))
    assert total < 1 << 20


def test_the_first_steps_work(unit, client):
    client.run("first_steps")
    client.run("pause_and_copies")


def test_a_greedy_sandbox_harms_neither_its_neighbours_nor_the_server(unit, client):
    left = client.run("leave", "3").split()
    pid = unit.pid()
    found = json.loads(client.run("limits", "memory"))
    assert found["code"] != 0
    client.run("find", "memory", *left)
    assert unit.pid() == pid
    assert unit.cli("kill", *left).code == 0


def test_paused_sandboxes_come_back_from_their_files_after_a_reboot(unit, machine, client):
    paused = client.run("leave", "2", "pause").split()
    running = client.run("leave", "1").split()
    client.close()
    machine.reboot()
    unit.wait()
    listed = {each["sandboxID"]: each for each in json.loads(unit.cli("ls", "--json").out)}
    assert sorted(listed) == sorted(paused), "what ran is gone, what was paused is there"
    client.run("find", "files", *paused)
    gone = unit.cli("exec", *running, "--", "true")
    assert gone.code != 0
    assert unit.cli("kill", *paused).code == 0
