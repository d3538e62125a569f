"""The .deb where systemd runs: the service, an upgrade that keeps sandboxes, nothing left."""

import json
import shutil
import subprocess
import sys

import pytest

from machines.serving import HEALTH, START_WITHIN
from support.server import PROJECT, binary
from support.waiting import eventually

WITHIN = 2 * START_WITHIN


def traces(machine) -> dict[str, list[str]]:
    return json.loads(machine.run("python3 /opt/checks/guest/traces.py"))


@pytest.fixture(scope="module")
def packages(machine, tmp_path_factory):
    """Two versions of it, on the machine."""
    folder = tmp_path_factory.mktemp("packages")
    newer = folder / "soulbox"
    shutil.copy(binary(), newer)
    with open(newer, "ab") as end:
        end.write(b"another build")  # harms no program
    for program, options, name in ((binary(), (), "older"), (newer, ("--version", "0.9.0"), "newer")):
        command = [sys.executable, PROJECT / "packaging/build", "--program", program, "--out", folder / name, *options, "deb"]
        made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.strip()
        machine.send(made, f"/opt/checks/{name}.deb")
    return "/opt/checks/older.deb", "/opt/checks/newer.deb"


def test_it_is_installed_served_used_upgraded_and_purged_and_nothing_is_left(machine, packages, client):
    older, newer = packages
    machine.run("/opt/checks/guest/tidy.sh; rm -f /usr/local/bin/soulbox")
    before = traces(machine)
    machine.run(f"dpkg -i {older}", within=WITHIN)
    assert machine.ssh(HEALTH).code == 0
    assert machine.run("systemctl is-enabled soulbox") == "enabled\n"
    assert machine.ssh("man -w soulbox-serve || ls /usr/share/man/man1/soulbox-serve.1.gz /usr/share/bash-completion/completions/soulbox").out
    client.run("first_steps")

    left = client.run("leave", "1").split()
    paused = client.run("leave", "1", "pause").split()
    pid = machine.run("systemctl show soulbox -P MainPID")
    machine.run(f"dpkg -i {newer}", within=WITHIN)
    assert machine.run("systemctl show soulbox -P MainPID") != pid
    client.run("find", "memory", *left, *paused)
    assert "soulbox.db" in machine.run("ls /var/lib/soulbox/before-upgrade")
    # An older one again: the database is the same here, and no copy is needed.
    machine.run(f"dpkg -i {older}", within=WITHIN)
    client.run("find", "memory", *left)

    machine.run("apt-get purge -yq soulbox", within=WITHIN)

    def nothing() -> bool:
        found = {kind: sorted(set(there) - set(before[kind])) for kind, there in traces(machine).items()}
        found["files"] = [each for each in found["files"] if not each.startswith(("/var/lib/dpkg/", "/var/cache/"))]
        assert {kind: there for kind, there in found.items() if there} == {}
        return True

    eventually(nothing, within=60, every=2)
    machine.run("/opt/checks/guest/tidy.sh")
