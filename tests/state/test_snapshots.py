"""A snapshot is one moment of a sandbox, whole or not there, and outlives what it was taken from."""

import threading

import pytest
from e2b import Sandbox, SandboxException

from support.probe import Probe
from support.sdk import Sdk
from support.waiting import eventually

pytestmark = pytest.mark.timeout(180)

# First to `a`, then to `b`: at no moment has `b` what `a` has not, nor lacks more than one line.
PAIRS = """
import os
a, b = (os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644) for name in "ab")
number = 0
while True:
    number += 1
    line = f"{number:012} {os.urandom(24).hex()}\\n".encode()
    os.write(a, line)
    os.write(b, line)
    # A rename is never half done either.
    if number % 50 == 0:
        with open("c.new", "w") as file:
            file.write(f"{number}\\n" * 100)
        os.rename("c.new", "c")
"""


@pytest.fixture
def snapshots(server):
    """Takes snapshots and deletes them after the test, when what stands on them is gone."""
    taken: list[str] = []

    def take(sandbox, **options):
        info = sandbox.create_snapshot(**options)
        taken.append(info.snapshot_id)
        return info

    yield take
    for each in reversed(taken):
        try:
            Sandbox.delete_snapshot(each, **server.sdk)
        except Exception:  # the test's own failure is the one to show
            pass


def listed(server, **options) -> list[str]:
    pages = Sandbox.list_snapshots(**options, **server.sdk)
    found = []
    while pages.has_next:
        found += [each.snapshot_id for each in pages.next_items()]
    return found


def test_no_snapshot_holds_half_a_pair(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("pairs.py", PAIRS)
    source.commands.run("exec python3 pairs.py", background=True, timeout=0).disconnect()
    eventually(lambda: source.files.exists("c"))
    for _ in range(4):
        info = snapshots(source)
        copy = made.create(template=info.snapshot_id, timeout=120)
        a, b = (copy.files.read(name) for name in "ab")
        assert a.endswith("\n") and b.endswith("\n")
        a, b = a.splitlines(), b.splitlines()
        assert a[: len(b)] == b
        assert len(a) - len(b) in (0, 1)
        assert len(b) > 0
        c = copy.files.read("c").splitlines()
        assert len(c) == 100 and len(set(c)) == 1 and int(c[0]) <= len(a)
        assert not copy.commands.run("pgrep -x python3 || true").stdout.strip()
        copy.kill()
    assert source.commands.run("pgrep -x python3").stdout.strip()


def test_the_source_goes_on_and_its_later_changes_stay_its_own(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("when", "before")
    end = source.get_info().end_at
    with Probe(server, source) as probe:
        info = snapshots(source)
    assert probe.failures == []
    source.files.write("when", "after")
    assert source.get_info().end_at == end
    copies = [made.create(template=info.snapshot_id, timeout=120) for _ in range(2)]
    copies[0].files.write("when", "of a copy")
    assert [each.files.read("when") for each in (source, *copies)] == ["after", "of a copy", "before"]


def test_a_snapshot_outlives_its_source_and_the_server(own_server):
    server = own_server().start()
    sdk = Sdk("sync", server.sdk, None)
    source = sdk.create(timeout=600)
    source.files.write("kept", "here")
    info = source.create_snapshot()
    source.kill()
    server.kill9()
    server.start()
    assert listed(server) == [info.snapshot_id]
    copy = sdk.create(template=info.snapshot_id, timeout=60)
    assert copy.files.read("kept") == "here"


def test_a_name_finds_the_newest_of_its_snapshots(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("version", "1")
    first = snapshots(source, name="kept-by-name:first")
    source.files.write("version", "2")
    snapshots(source, name="kept-by-name")
    assert first.names and first.names[0].split("/")[1].startswith("kept-by-name")
    assert made.create(template="kept-by-name", timeout=60).files.read("version") == "2"
    assert made.create(template="kept-by-name:first", timeout=60).files.read("version") == "1"


def test_snapshots_are_listed_by_their_source_and_in_pages(server, snapshots, made):
    one, other = made.create(timeout=600), made.create(timeout=600)
    ours = [snapshots(one).snapshot_id for _ in range(3)]
    theirs = snapshots(other).snapshot_id
    assert set(listed(server)) >= {*ours, theirs}
    assert listed(server, sandbox_id=one.sandbox_id) == list(reversed(ours))
    assert listed(server, sandbox_id=one.sandbox_id, limit=1) == list(reversed(ours))


def test_a_snapshot_in_use_is_not_deleted(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("kept", "here")
    info = snapshots(source)
    copy = made.create(template=info.snapshot_id, timeout=120)
    with pytest.raises(SandboxException, match="used by"):
        Sandbox.delete_snapshot(info.snapshot_id, **server.sdk)
    assert copy.files.read("kept") == "here"
    copy.pause()
    with pytest.raises(SandboxException, match="used by"):
        Sandbox.delete_snapshot(info.snapshot_id, **server.sdk)
    copy.kill()
    assert Sandbox.delete_snapshot(info.snapshot_id, **server.sdk) is True
    assert Sandbox.delete_snapshot(info.snapshot_id, **server.sdk) is False
    assert info.snapshot_id not in listed(server)
    with pytest.raises(SandboxException, match="404: .* not found"):
        made.create(template=info.snapshot_id)
    assert source.files.read("kept") == "here"


def test_a_snapshot_of_a_fork_stands_alone(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("from", "source")
    (child,) = source.fork(count=1, timeout=120)
    child.files.write("own", "child")
    info = snapshots(child)
    child.kill()
    source.kill()
    copy = made.create(template=info.snapshot_id, timeout=60)
    assert (copy.files.read("from"), copy.files.read("own")) == ("source", "child")


def test_a_snapshot_under_another_can_be_deleted_first(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("first", "1")
    below = snapshots(source)
    copy = made.create(template=below.snapshot_id, timeout=120)
    copy.files.write("second", "2")
    above = snapshots(copy)
    copy.kill()
    try:
        assert Sandbox.delete_snapshot(below.snapshot_id, **server.sdk) is True
    except SandboxException as refused:
        assert "used" in str(refused) or "use" in str(refused)
    last = made.create(template=above.snapshot_id, timeout=60)
    assert (last.files.read("first"), last.files.read("second")) == ("1", "2")


def test_asking_for_memory_is_refused_in_words(server, snapshots, made):
    source = made.create(timeout=600)
    with server.api() as api:
        answer = api.post(f"/sandboxes/{source.sandbox_id}/snapshots", json={"memory": True})
        assert answer.status_code == 501
        assert "memory" in answer.json()["message"]
        taken = api.post(f"/sandboxes/{source.sandbox_id}/snapshots", json={"memory": False})
        assert taken.status_code == 201, taken.text
        assert taken.json()["restored"] == "filesystem"
    assert Sandbox.delete_snapshot(taken.json()["snapshotID"], **server.sdk)


def test_a_damaged_snapshot_is_refused_and_never_used_in_part(own_server):
    server = own_server().start()
    sdk = Sdk("sync", server.sdk, None)
    source = sdk.create(timeout=600)
    source.commands.run("head -c 20000000 /dev/urandom > data")
    info = source.create_snapshot()
    server.terminate()
    (image,) = (server.data / "snapshots").rglob("disk.img")
    damage(image)
    server.start()
    with pytest.raises(SandboxException) as refused:
        sdk.create(template=info.snapshot_id)
    assert "damaged" in str(refused.value)
    # The rest of the server goes on.
    assert source.commands.run("echo fine").stdout == "fine\n"
    assert [each.sandbox_id for each in sdk.list_all()] == [source.sandbox_id]


def damage(image) -> None:
    """One bit in the middle of what is not a hole."""
    with open(image, "r+b") as file:
        size = file.seek(0, 2)
        at = file.seek(size // 100)
        while not (block := file.read(4096)).strip(b"\0"):
            at += len(block)
        file.seek(at)
        file.write(bytes([block[0] ^ 1]))


def test_snapshots_taken_at_once_are_all_whole(server, snapshots, made):
    source = made.create(timeout=600)
    source.files.write("kept", "here")
    taken, failures = [], []

    def take():
        try:
            taken.append(snapshots(source).snapshot_id)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert failures == [] and len(set(taken)) == 4
    for each in taken:
        copy = made.create(template=each, timeout=60)
        assert copy.files.read("kept") == "here"
        copy.kill()
