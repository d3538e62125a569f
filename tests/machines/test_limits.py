"""The limits of a sandbox on cgroup v2: memory, processes, cpu, disk."""

import json

import pytest

from machines.serving import Serving

MEMORY, PIDS, CPUS, DISK = 256, 100, 1, 256


@pytest.fixture(scope="module")
def serving(machine):
    serving = Serving(machine, options=f"--memory-mb {MEMORY} --pids {PIDS} --cpus {CPUS} --disk-mb {DISK}")
    serving.start()
    return serving


def measure(client, what: str) -> dict:
    return json.loads(client.run("limits", what))


def test_memory_is_bounded(serving, client):
    found = measure(client, "memory")
    assert found["code"] != 0
    assert found["after"] == "alive\n", "the sandbox itself goes on"


def test_processes_are_bounded(serving, client):
    found = measure(client, "pids")
    assert PIDS / 2 < found["made"] <= PIDS, found
    assert found["error"] == "Resource temporarily unavailable"
    assert found["after"] == "alive\n"


def test_the_cpu_is_bounded(serving, machine, client):
    """Two busy processes get two cpus outside and one inside, whatever a cpu is worth here."""
    outside = share_outside(machine)
    inside = measure(client, "cpu")["share"]
    assert outside > 1.5, "this machine cannot show it"
    assert 0.4 * CPUS < inside < 1.25 * CPUS, (inside, outside)


def share_outside(machine) -> float:
    busy = "timeout 15 sha256sum /dev/zero"
    done = machine.ssh(f"TIMEFORMAT='%U %S'; time ({busy} & {busy} & wait)", within=120)
    return sum(map(float, done.err.split()[-2:])) / 15


def test_the_disk_is_bounded(serving, client):
    found = measure(client, "disk")
    assert found["code"] != 0 and "No space left on device" in found["said"], found
    assert DISK / 2 < found["size"] / 2**20 <= DISK
    assert found["after"] == "room\n"
