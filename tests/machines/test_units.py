"""As a unit of systemd."""

import pytest

from machines.serving import START_WITHIN
from machines.unit import Unit


@pytest.fixture(
    scope="module",
    params=["", "Delegate=yes\nLimitCORE=0"],
    ids=["plain", "delegate-no-core-dumps"],
)
def unit(request, machine):
    machine.run("/opt/checks/guest/tidy.sh")
    unit = Unit(machine, request.param)
    unit.start()
    return unit


def limits_of(machine) -> str:
    files = " ".join(f"--include={each}.max" for each in ("memory", "pids", "cpu"))
    return machine.run(f"cd /sys/fs/cgroup && grep -r . {files} soulbox-*/ | sort")


def test_the_first_steps_work(unit, client):
    assert unit.status() == "ready on http://127.0.0.1:3000"
    client.run("first_steps")


def test_a_start_that_is_refused_fails_where_it_was_asked_for_and_says_why(unit, machine):
    drop_in = "/run/systemd/system/soulbox.service.d/refused.conf"
    machine.write(drop_in, "[Service]\nLimitNOFILE=64\n")
    try:
        machine.run("systemctl daemon-reload")
        unit.systemctl("stop")
        assert machine.ssh("systemctl start soulbox", within=START_WITHIN).code != 0
        assert "open files is 64" in unit.status()
    finally:
        machine.run(f"rm {drop_in} && systemctl daemon-reload")
        unit.start()


def test_sandboxes_outlive_a_reload_and_a_restart_of_the_unit(unit, machine, client):
    left = client.run("leave", "2").split()
    before = [line for line in limits_of(machine).splitlines() if any(each in line for each in left)]
    assert len(before) >= 6, "memory, processes and cpu of two sandboxes"
    machine.run("systemctl daemon-reload")
    after = limits_of(machine).splitlines()
    assert [line for line in before if line not in after] == [], "limits are gone after a reload"
    client.run("first_steps")
    unit.systemctl("restart")
    unit.is_ready()
    client.run("find", "memory", *left)
    assert unit.cli("kill", *left).code == 0


def test_a_stop_ends_well_and_soon(unit, machine, client):
    left = client.run("leave", "1").split()
    began = float(machine.run("cut -d' ' -f1 /proc/uptime"))
    unit.systemctl("stop")
    took = float(machine.run("cut -d' ' -f1 /proc/uptime")) - began
    assert unit.result() == "success", unit.log()
    assert took < 20
    # It left its sandbox to the next start.
    groups = machine.run("cat /sys/fs/cgroup/soulbox-*/*/cgroup.procs /sys/fs/cgroup/soulbox-*/*/*/cgroup.procs; true")
    assert len(groups.split()) > 0, left
