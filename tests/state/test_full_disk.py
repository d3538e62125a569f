"""A full disk is said in words, harms no sandbox, and is over when there is space again."""

import httpx
import pytest
from e2b import Sandbox

from support.sdk import Sdk
from support.server import Server
from support.small_disk import small_disk
from support.waiting import eventually
from support.witness import Witness

pytestmark = pytest.mark.timeout(240)

MIB = 1 << 20
DATA_MIB = 120


@pytest.fixture
def disk(tmp_path_factory):
    with small_disk(tmp_path_factory.mktemp("soulbox-small"), 1800) as disk:
        yield disk


@pytest.fixture
def server(disk):
    """On the small disk, and told not to keep a reserve: the tests want the edge itself."""
    server = Server(disk.path / "data", extra=["--min-free-disk-mb", "0"])
    # A log on the small disk would be part of the test.
    server.log = disk.path.parent / "server.log"
    try:
        yield server.start()
    finally:
        disk.empty()
        server.finish()


@pytest.fixture
def source(server):
    """A sandbox with a witness, a good deal of data and its checksum."""
    return Source(server)


class Source:
    def __init__(self, server) -> None:
        self.server = server
        self.sandbox = Sandbox.create(timeout=1200, **server.sdk)
        self.sandbox.commands.run(f"head -c {DATA_MIB * MIB} /dev/urandom > data && sync", timeout=60)
        self.sum = self.checksum()
        self.witness = Witness(self.sandbox)
        # Its blocks exist on the disk, so that it can go on counting when the disk is full.
        eventually(lambda: self.witness.ask(self.sandbox)["count"] > 400, within=60)
        self.sandbox.commands.run("sync", timeout=60)
        self.id = self.sandbox.sandbox_id

    def checksum(self) -> str:
        return self.sandbox.commands.run("sha256sum data", timeout=60).stdout

    def is_whole(self) -> None:
        assert self.sandbox.is_running()
        with self.server.api() as api:
            assert api.get(f"/sandboxes/{self.id}").json()["state"] == "running"
        before = self.witness.check(self.sandbox)["count"]
        eventually(lambda: self.witness.ask(self.sandbox)["count"] > before, what="it counts on")
        assert self.checksum() == self.sum


def says_the_disk_is_full(answer: httpx.Response) -> None:
    """The status that says so, with a code and words for whoever has to act."""
    assert answer.status_code in (503, 507), f"{answer.status_code} {answer.text}"
    body = answer.json()
    assert body["code"] == answer.status_code
    assert "disk" in body["message"], body
    assert body["error_code"] in ("disk_full", "sandbox_capacity_unavailable"), body


def test_a_snapshot_that_does_not_fit_is_refused_and_the_source_goes_on(disk, server, source):
    disk.fill(leave=40 * MIB)
    with server.api() as api:
        for _ in range(2):
            says_the_disk_is_full(api.post(f"/sandboxes/{source.id}/snapshots", json={}))
        source.is_whole()
        assert api.get("/snapshots").json() == []
        # What was begun is gone again.
        eventually(lambda: disk.free() > 30 * MIB, what="the space of the failed copies is back")
        disk.empty()
        taken = api.post(f"/sandboxes/{source.id}/snapshots", json={})
        assert taken.status_code == 201, taken.text
    copy = Sandbox.create(template=taken.json()["snapshotID"], timeout=60, **server.sdk)
    assert copy.commands.run("sha256sum data", timeout=60).stdout == source.sum
    source.is_whole()


def test_a_fork_that_does_not_fit_is_refused_and_the_source_goes_on(disk, server, source):
    disk.fill(leave=40 * MIB)
    with server.api() as api:
        says_the_disk_is_full(api.post(f"/sandboxes/{source.id}/fork", json={"count": 2}))
        assert [each["sandboxID"] for each in api.get("/v2/sandboxes").json()] == [source.id]
    source.is_whole()
    disk.empty()
    children = source.sandbox.fork(count=2, timeout=60)
    assert [each.commands.run("sha256sum data", timeout=60).stdout for each in children] == [source.sum] * 2


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "filesystem"])
def test_a_pause_on_a_full_disk_succeeds_whole_or_leaves_the_sandbox_running(disk, server, source, memory):
    disk.fill()
    with server.api() as api:
        answer = api.post(f"/sandboxes/{source.id}/pause", json={"memory": memory})
        if answer.status_code == 204:
            # Nothing had to be written: then it must come back, still on the full disk or after.
            disk.empty()
        else:
            source.is_whole()
            disk.empty()
            source.sandbox.files.write("again", "there is space")
            says_the_disk_is_full(answer)
            assert api.post(f"/sandboxes/{source.id}/pause", json={"memory": memory}).status_code == 204
        assert api.get(f"/sandboxes/{source.id}").json()["state"] == "paused"
    source.sandbox = Sandbox.connect(source.id, timeout=600, **server.sdk)
    assert source.checksum() == source.sum
    if memory:
        source.is_whole()


def test_a_sandbox_that_fills_the_disk_is_not_lost(disk, server, source):
    """It may be paused by the server or go on with errors; what it had before is kept."""
    disk.fill(leave=20 * MIB)
    try:
        source.sandbox.commands.run("head -c 60000000 /dev/urandom > more; sync more", timeout=60)
    except Exception:  # either is right: the write fails inside, or the sandbox is paused under it
        pass
    with server.api() as api:
        answer = api.post(f"/sandboxes/{source.id}/pause", json={})
        disk.empty()
        if answer.status_code not in (204, 409):
            says_the_disk_is_full(answer)
        told = api.get(f"/sandboxes/{source.id}").json()
    assert told.get("state") in ("running", "paused"), told
    source.sandbox = Sandbox.connect(source.id, timeout=600, **server.sdk)
    assert source.checksum() == source.sum


def test_a_create_on_a_full_disk_is_refused_and_leaves_nothing(disk, server, source):
    disk.fill()
    with server.api() as api:
        for _ in range(3):
            says_the_disk_is_full(api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60}))
        listed = api.get("/v2/sandboxes")
        assert [each["sandboxID"] for each in listed.json()] == [source.id]
    source.is_whole()
    disk.empty()
    again = Sandbox.create(timeout=60, **server.sdk)
    assert again.commands.run("echo fine").stdout == "fine\n"


def test_the_reserve_stops_creates_before_the_disk_is_full(disk):
    server = Server(disk.path / "reserve", extra=["--min-free-disk-mb", "100"])
    server.log = disk.path.parent / "reserve.log"
    try:
        server.start()
        disk.fill(leave=50 * MIB)
        with server.api() as api:
            says_the_disk_is_full(api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60}))
        disk.empty()
        Sandbox.create(timeout=60, **server.sdk).kill()
        assert Sdk("sync", server.sdk, None).list_all() == []
    finally:
        disk.empty()
        server.finish()


def test_a_server_with_something_to_keep_starts_without_a_free_byte(disk, server, source):
    """Nobody could reach or end its sandboxes otherwise, nor remove what fills the disk."""
    disk.fill()
    server.kill9()
    server.start()
    with server.api() as api:
        assert api.get(f"/sandboxes/{source.id}").json()["state"] == "running"
        assert api.delete(f"/sandboxes/{source.id}").status_code == 204
    disk.empty()
    again = Sandbox.create(timeout=60, **server.sdk)
    assert again.commands.run("echo fine").stdout == "fine\n"


def test_who_fills_the_disk_through_a_volume_is_held_back_and_who_writes_a_little_is_not(disk, server):
    with server.api() as api:
        volume = api.post("/volumes", json={"name": "filling"}).json()
    filler = Sandbox.create(timeout=600, volume_mounts={"/data": "filling"}, **server.sdk)
    modest = Sandbox.create(timeout=600, **server.sdk)
    little = "dd if=/dev/zero of=some bs=256k count=1 conv=fsync 2> /dev/null; sleep 0.5"
    modest.commands.run(f"while true; do {little}; done", background=True)
    filler.commands.run("cat /dev/zero > /data/big", background=True, timeout=0)

    def state(sandbox: Sandbox) -> str:
        with server.api() as api:
            return api.get(f"/sandboxes/{sandbox.sandbox_id}").json()["state"]

    eventually(lambda: state(filler) == "paused", within=60, what="who fills the disk is paused")
    assert disk.free() > 100 * MIB, "there is room left for the others"
    assert state(modest) == "running"
    assert modest.commands.run("sync some && echo fine").stdout == "fine\n"
    # The reserve is not for files that are put into volumes, nor for new ones.
    disk.fill(leave=250 * MIB)
    with server.api() as api:
        says_the_disk_is_full(api.post("/volumes", json={"name": "another"}))
        headers = {"Authorization": f"Bearer {volume['token']}"}
        place = {"path": "/more"}
        says_the_disk_is_full(
            api.put(f"/volumecontent/{volume['volumeID']}/file", params=place, headers=headers, content=b"x" * MIB)
        )
