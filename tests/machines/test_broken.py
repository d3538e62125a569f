"""Machines that lack something: refused at start with the cause and what to do, and `doctor` says the same."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from machines.park import Kind
from machines.serving import Serving

pytestmark = pytest.mark.kind(Kind.BROKEN)

REFUSED_WITHIN = 120


@dataclass(frozen=True)
class Broken:
    cause: list[str]  # one of these words names it
    advice: list[str]  # and one of these says what to do
    breaking: str = "true"
    mending: str = "true"
    around: str = ""  # what the program is started with


# Modules that use each other go one after the other.
UNLOAD = (
    "for _ in 1 2 3 4 5 6; do rmmod $(awk '/^(nft_|nf_tables|nf_nat|nf_reject)/ {print $1}' /proc/modules) 2> /dev/null; done;"
)

MACHINES = {
    "no-nf_tables": Broken(
        ["nf_tables", "nftables"],
        ["modprobe", "load", "kernel", "install"],
        f"{UNLOAD} echo 'install nf_tables /bin/false' > /etc/modprobe.d/broken.conf; ! grep -q '^nf_tables ' /proc/modules",
        "rm /etc/modprobe.d/broken.conf",
    ),
    "no-loop-devices": Broken(
        ["loop"],
        ["modprobe", "load", "kernel", "losetup"],
        "echo 'install loop /bin/false' > /etc/modprobe.d/broken.conf; modprobe -r loop; rm -f /dev/loop*; ! ls /dev/loop*",
        "rm /etc/modprobe.d/broken.conf; modprobe loop",
    ),
    "no-user-namespaces": Broken(
        ["user.max_user_namespaces"],
        ["sysctl", "must not be 0"],
        "sysctl -qw user.max_user_namespaces=0",
        "sysctl -qw user.max_user_namespaces=20000",
    ),
    "read-only-data-folder": Broken(
        ["read-only"],
        ["--data-dir", "remount", "another folder", "writable"],
        "mkdir -p /var/lib/soulbox && mount -t tmpfs -o ro tmpfs /var/lib/soulbox",
        "umount /var/lib/soulbox",
    ),
    "low-hard-limits": Broken(
        ["open files", "nofile"],
        ["ulimit", "limitnofile", "raise", "limits.conf"],
        around="prlimit --nofile=64:64 ",
    ),
    "port-taken": Broken(
        ["in use"],
        ["--listen"],
        "systemd-run -q --unit=taken python3 -m http.server 3000 --bind 127.0.0.1;"
        " for _ in $(seq 60); do ss -Hltn sport = 3000 | grep -q . && exit 0; sleep 0.5; done; exit 1",
        "systemctl stop taken",
    ),
}


@contextmanager
def broken(machine, how: Broken):
    machine.run(how.breaking)
    try:
        yield
    finally:
        machine.run(how.mending)


@pytest.mark.parametrize("name", list(MACHINES))
def test_a_broken_machine_is_refused_with_its_cause_and_advice(machine, name):
    how = MACHINES[name]
    with broken(machine, how):
        done = machine.ssh(f"timeout {REFUSED_WITHIN} {how.around}soulbox serve < /dev/null", within=REFUSED_WITHIN + 60)
        # 124: `timeout` had to end it, so it served.
        assert done.code not in (0, 124), str(done)
        said = done.err.lower()
        assert any(each in said for each in how.cause), str(done)
        assert any(each in said for each in how.advice), str(done)
        assert "panicked" not in said


@pytest.mark.parametrize("name", list(MACHINES))
def test_doctor_says_the_same(machine, name):
    how = MACHINES[name]
    with broken(machine, how):
        done = machine.ssh(f"{how.around}soulbox doctor --quick")
        assert done.code not in (0, 101), str(done)
        said = done.text.lower()
        assert any(each in said for each in how.cause), str(done)
        assert any(each in said for each in how.advice), str(done)


def test_the_machine_serves_once_it_is_mended(machine, client):
    Serving(machine).start()
    client.run("first_steps")
