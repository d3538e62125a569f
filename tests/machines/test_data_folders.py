"""The data folder on other file systems than ext4, which all other checks have. Copies share blocks there."""

import pytest

from machines.serving import Serving

MAKE = {"xfs": "mkfs.xfs -q -f", "btrfs": "mkfs.btrfs -q -f"}
DATA = "/srv/data/soulbox"


@pytest.fixture(scope="module", params=list(MAKE))
def serving(request, machine):
    disk = "/dev/disk/by-id/virtio-spare"
    machine.run(f"{MAKE[request.param]} {disk} && mkdir -p /srv/data && mount {disk} /srv/data")
    assert machine.run("stat -fc %T /srv/data").strip() == request.param
    serving = Serving(machine, data=DATA)
    try:
        serving.start()
        yield serving
        serving.take_away()
    finally:
        machine.run("/opt/checks/guest/tidy.sh; umount /srv/data")


def test_the_first_steps_work(serving, client):
    client.run("first_steps", data=DATA)


def test_pause_snapshot_fork_and_volumes_work(serving, client):
    client.run("pause_and_copies", data=DATA)
    client.run("volume", data=DATA)


def test_sandboxes_outlive_a_killed_server(serving, client):
    left = client.run("leave", "1", data=DATA).split()
    serving.kill9()
    serving.start()
    client.run("find", "memory", *left, data=DATA)
