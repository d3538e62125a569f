"""`soulbox install` where systemd runs: the service, upgrades that keep sandboxes, the way back, nothing left."""

import json

import pytest

from machines.serving import HEALTH, START_WITHIN
from support.waiting import eventually

pytestmark = pytest.mark.short

WITHIN = 2 * START_WITHIN
# A program that installs itself and does not serve: its first migration is not the one that made the database.
SPOIL = (
    "python3 -c \"p = '/opt/spoilt'; b = open('/opt/checks/soulbox', 'rb').read(); "
    "assert b.count(b'CREATE TABLE tenants') >= 1; "
    "open(p, 'wb').write(b.replace(b'CREATE TABLE tenants', b'CREATE TABLE tenantz'))\" && chmod 755 /opt/spoilt"
)


def traces(machine) -> dict[str, list[str]]:
    return json.loads(machine.run("python3 /opt/checks/guest/traces.py"))


@pytest.fixture(scope="module")
def before(machine):
    # The others' way of installing: a link that they made.
    machine.run("/opt/checks/guest/tidy.sh; rm -f /usr/local/bin/soulbox")
    yield traces(machine)
    machine.run("rm -f /opt/newer /opt/spoilt; /opt/checks/guest/tidy.sh")


@pytest.fixture(scope="module")
def installed(machine, before):
    said = machine.run("/opt/checks/soulbox install", within=WITHIN)
    assert "the service is ready" in said, said
    return machine


def test_the_service_is_ready_when_the_command_returns_and_starts_with_the_machine(installed, client):
    assert installed.ssh(HEALTH).code == 0
    assert installed.run("systemctl is-enabled soulbox") == "enabled\n"
    assert installed.ssh("systemd-analyze verify --man=no soulbox.service").code == 0
    assert "1048576" in installed.run("systemctl show soulbox -P LimitNOFILE")
    client.run("first_steps")


def test_an_upgrade_keeps_sandboxes_and_the_same_again_does_nothing(installed, client):
    left = client.run("leave", "1").split()
    paused = client.run("leave", "1", "pause").split()
    installed.run("cp /opt/checks/soulbox /opt/newer && echo newer >> /opt/newer")
    said = installed.run("/opt/newer install", within=WITHIN)
    assert "replace /usr/local/bin/soulbox" in said and "the service is ready" in said
    pid = installed.run("systemctl show soulbox -P MainPID").strip()
    assert installed.run(f"readlink /proc/{pid}/exe") == "/usr/local/bin/soulbox\n"
    client.run("find", "memory", *left, *paused)
    assert "runs this program already" in installed.run("/opt/newer install", within=WITHIN)
    assert installed.run("systemctl show soulbox -P MainPID").strip() == pid
    assert installed.ssh(f"soulbox kill {' '.join(left + paused)}").code == 0


def test_a_program_that_does_not_serve_is_replaced_by_the_former_one(installed, client):
    left = client.run("leave", "1").split()
    installed.run(SPOIL)
    done = installed.ssh("/opt/spoilt install", within=WITHIN)
    assert done.code == 1 and "the new server did not start" in done.err, str(done)
    assert "The former program serves again" in done.err
    assert installed.run("cmp /usr/local/bin/soulbox /opt/newer && echo same") == "same\n"
    assert installed.ssh(HEALTH).code == 0
    client.run("find", "memory", *left)
    assert installed.ssh(f"soulbox kill {' '.join(left)}").code == 0


def test_a_killed_upgrade_is_completed_by_the_next_and_can_be_rolled_back(installed, client):
    # Both programs in their places again: the last test left the spoilt one beside.
    installed.ssh("timeout -s KILL 0.7 /opt/checks/soulbox install; true")
    assert "the service is ready" in installed.run("/opt/checks/soulbox install", within=WITHIN)
    left = client.run("leave", "1").split()
    assert "the service is ready" in installed.run("soulbox install --rollback", within=WITHIN)
    assert installed.run("cmp /usr/local/bin/soulbox /opt/newer && echo same") == "same\n"
    client.run("find", "memory", *left)
    # Also with the database of before the upgrade: the sandbox was made since, and is recorded again.
    assert "the service is ready" in installed.run("soulbox install --rollback --with-database", within=WITHIN)
    client.run("find", "memory", *left)
    assert installed.ssh(f"soulbox kill {' '.join(left)}").code == 0


def test_uninstalling_leaves_sandboxes_alone_unless_told_and_then_nothing_is_left(installed, client, before):
    client.run("leave", "1")
    done = installed.ssh("soulbox uninstall")
    assert done.code == 1 and "there are sandboxes" in done.err, str(done)
    assert installed.ssh(HEALTH).code == 0
    installed.run("/usr/local/bin/soulbox uninstall --purge", within=WITHIN)
    assert installed.run("ls -d /usr/local/bin/soulbox /usr/local/lib/soulbox /var/lib/soulbox 2> /dev/null; true") == ""

    def nothing() -> bool:
        left = {kind: sorted(set(found) - set(before[kind])) for kind, found in traces(installed).items()}
        left["files"] = [each for each in left.get("files", []) if not each.startswith(("/opt/newer", "/opt/spoilt"))]
        assert {kind: found for kind, found in left.items() if found} == {}
        return True

    eventually(nothing, within=60, every=2)
