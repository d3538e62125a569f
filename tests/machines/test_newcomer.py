"""What somebody meets who has built SoulBox on a stock machine: the first command, as root."""

import json

import pytest

from machines.recipe import MACHINES
from machines.serving import LOG
from support.waiting import eventually

pytestmark = pytest.mark.short


def traces(machine) -> dict[str, list[str]]:
    return json.loads(machine.run("python3 /opt/checks/guest/traces.py"))


@pytest.fixture(scope="module", autouse=True)
def before(machine):
    """What was there before anything was served."""
    return traces(machine)


def test_the_machine_is_a_stock_one(machine, release):
    kernel = machine.run("uname -r").split(".")
    wanted = MACHINES[release].kernel.split(".")
    assert [int(each) for each in kernel[:2]] >= [int(each) for each in wanted], kernel
    assert machine.run("stat -fc %T /sys/fs/cgroup") == "cgroup2fs\n"
    assert machine.run("cat /proc/1/comm") == "systemd\n"
    assert machine.run("cat /sys/module/apparmor/parameters/enabled") == "Y\n"
    assert machine.run("wc -l < /sys/kernel/security/apparmor/profiles") != "0\n"


def test_doctor_finds_everything_that_is_needed(machine):
    done = machine.ssh("soulbox doctor --json")
    bad = [each for each in json.loads(done.out)["checks"] if each["required"] and each["outcome"] != "ok"]
    assert bad == []
    assert done.code == 0, str(done)


def test_the_first_steps_of_the_sdk_work(serving, client):
    client.run("first_steps")


def test_the_command_line_works_without_any_setting(serving):
    done = serving.cli("run", "--", "python3", "-c", "print(6 * 7)")
    assert (done.code, done.out) == (0, "42\n"), str(done)


def test_a_sandbox_sees_itself_at_the_root_of_the_control_groups(serving, client):
    assert client.run("inside", "cat /proc/self/cgroup") == "0::/\n"


def test_pause_resume_snapshot_and_fork_work(serving, client):
    client.run("pause_and_copies")


def test_volumes_outlive_sandboxes(serving, client):
    client.run("volume")


def test_a_command_that_wants_more_memory_is_ended_and_told_why(serving, client):
    """It was told as exit code -1 and no word more."""
    found = json.loads(client.run("limits", "memory"))
    assert found["code"] != 0
    assert found["after"] == "alive\n", "the sandbox itself goes on"
    assert "memory" in found["told"].lower(), found


def test_a_killed_server_finds_its_sandboxes_again(serving, client):
    left = client.run("leave", "2").split()
    serving.kill9()
    serving.start()
    client.run("find", "memory", *left)
    assert serving.cli("kill", *left).code == 0


def test_the_kernel_has_nothing_to_complain_about(serving, machine):
    """After a start, creates and forks: options that it does not know are tried by no one."""
    complaints = [line for line in machine.run("dmesg").splitlines() if "unrecognized" in line or "apparmor=\"DENIED\"" in line]
    assert complaints == []


def test_a_stop_takes_seconds_and_loads_no_modules(serving, machine, client):
    """It asked for 4,096 links by name once, and the kernel ran modprobe for each."""
    client.run("leave", "1")
    client.run("leave", "1", "pause")
    assert serving.cli("kill", "--all").code == 0
    machine.run("echo > /sys/kernel/tracing/trace; echo 1 > /sys/kernel/tracing/events/module/module_request/enable")
    took = serving.stop()
    requests = machine.run("grep module_request: /sys/kernel/tracing/trace || true").splitlines()
    machine.run("echo 0 > /sys/kernel/tracing/events/module/module_request/enable")
    assert len(requests) < 50, f"{len(requests)} requests for modules, the last: {requests[-1]}"
    assert took < 20


def test_nothing_is_left_after_taking_it_away(serving, machine, before):
    """As docs/requirements.md says: sandboxes ended and the server stopped, which was the check above, and the folder removed."""
    machine.run(f"rm -r /var/lib/soulbox {LOG}")

    def nothing() -> bool:
        left = {kind: sorted(set(found) - set(before[kind])) for kind, found in traces(machine).items()}
        assert {kind: found for kind, found in left.items() if found} == {}
        return True

    # The kernel takes namespaces down some time after their last process.
    eventually(nothing, within=60, every=2)
