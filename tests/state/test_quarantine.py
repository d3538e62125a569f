"""Unreadable is not absent: whatever of a sandbox's state is damaged, its disk is kept, told and can be
had back."""

import json
import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox
from e2b.exceptions import NotFoundException

from support.sdk import Sdk

pytestmark = pytest.mark.timeout(300)

FILES = ["spec.json", "running.json", "paused.json", "lease.json", "warm.json", "ended.json"]


def processes(sandbox_id: str) -> set[int]:
    found = set()
    for top, _, _ in os.walk("/sys/fs/cgroup"):
        if sandbox_id in top:
            try:
                found |= {int(each) for each in (Path(top) / "cgroup.procs").read_text().split()}
            except OSError:
                pass
    return found


def loop_devices(sandbox_id: str) -> list[str]:
    found = []
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if sandbox_id in each.read_text():
                found.append(str(each))
        except OSError:
            pass
    return found


def metric(server, name: str) -> int:
    page = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    return int(re.search(rf"^soulbox_{name} (\d+)$", page, re.MULTILINE)[1])


def test_whatever_file_is_truncated_nothing_is_lost_and_everybody_is_told(own_server):
    server = own_server().start()
    made = {}
    for number, file in enumerate(FILES):
        sandbox = Sandbox.create(timeout=600, metadata={"of": file}, **server.sdk)
        sandbox.files.write("kept", file)
        # Some run when the server goes, some rest.
        if number % 2:
            assert sandbox.pause() is True
        made[file] = sandbox
    whole = Sandbox.create(timeout=600, **server.sdk)
    server.kill9()
    for file, sandbox in made.items():
        (server.data / "sandboxes" / sandbox.sandbox_id / file).write_bytes(b"")
    server.start()

    listed = json.loads(server.cli("ls", "--broken", "--json").stdout)
    assert {each["metadata"]["of"]: each["sandboxID"] for each in listed} == {
        file: sandbox.sandbox_id for file, sandbox in made.items()
    }
    for each in listed:
        assert each["metadata"]["of"] in each["reason"], each
        assert each["diskBytes"] > 0
    shown = server.cli("ls", "--broken").stdout.decode()
    assert "spec.json is empty" in shown and "exported" in shown and "recovered" in shown, shown
    assert metric(server, "sandboxes_broken") == len(FILES)
    assert metric(server, "sandboxes_broken_disk_bytes") > 0
    assert [each.sandbox_id for each in Sdk("sync", server.sdk, None).list_all()] == [whole.sandbox_id]
    said = server.log.read_text()
    with server.api() as api:
        for sandbox in made.values():
            id = sandbox.sandbox_id
            assert not processes(id) and not loop_devices(id)
            assert f"soulbox recover {id}" in said
            answer = api.get(f"/sandboxes/{id}")
            assert answer.status_code == 404 and answer.json()["error_code"] == "sandbox_broken", answer.text
            kinds = [each["eventLabel"] for each in api.get(f"/events/sandboxes/{id}").json()]
            assert "broken" in kinds and "killed" not in kinds, kinds
    with pytest.raises(NotFoundException):
        Sandbox.connect(made["lease.json"].sandbox_id, **server.sdk)

    for file, sandbox in made.items():
        id = sandbox.sandbox_id
        recovered = server.cli("recover", id)
        if file == "spec.json":
            assert recovered.returncode == 1 and b"only its disk can be exported" in recovered.stderr
            continue
        assert recovered.returncode == 0, recovered.stderr
        with server.api() as api:
            told = api.get(f"/sandboxes/{id}").json()
            assert (told["state"], told["restored"]) == ("paused", "filesystem"), told
        again = Sandbox.connect(id, timeout=300, **server.sdk)
        assert again.files.read("kept") == file
        assert again.get_info().metadata == {"of": file}
    assert [each["metadata"]["of"] for each in json.loads(server.cli("ls", "--broken", "--json").stdout)] == ["spec.json"]
    # What came back is a sandbox like any other, also for the next server.
    server.kill9()
    server.start()
    again = Sandbox.connect(made["running.json"].sandbox_id, timeout=300, **server.sdk)
    assert again.files.read("kept") == "running.json"

    id = made["spec.json"].sandbox_id
    image = server.data.parent / f"{id}.img"
    try:
        exported = server.cli("recover", id, "--export", str(image))
        assert exported.returncode == 0, exported.stderr
        checked = subprocess.run(["e2fsck", "-fn", str(image)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout
        read = subprocess.run(["debugfs", "-R", "ls -l /", str(image)], capture_output=True, text=True)
        assert "u0" in read.stdout, read
        assert server.cli("recover", id, "--export", str(image)).returncode == 1, "nothing is overwritten"
    finally:
        image.unlink(missing_ok=True)
    assert server.cli("recover", id, "--discard").returncode == 0
    assert json.loads(server.cli("ls", "--broken", "--json").stdout) == []
    assert not (server.data / "quarantine" / id).exists()
    with server.api() as api:
        assert "given up by its owner" in api.get(f"/sandboxes/{id}").json()["message"]


def test_what_is_broken_is_its_owners_business_only(own_server):
    server = own_server().start()
    sandbox = Sandbox.create(timeout=600, **server.sdk)
    server.kill9()
    (server.data / "sandboxes" / sandbox.sandbox_id / "running.json").write_bytes(b"")
    server.start()
    for path in ("/v1/broken", f"/v1/broken/{sandbox.sandbox_id}/disk"):
        assert httpx.get(f"{server.url}{path}").status_code == 401
    with server.api() as api:
        assert api.post("/v1/broken/inotthere0000000000/recover").status_code == 404
        assert [each["sandboxID"] for each in api.get("/v1/broken").json()] == [sandbox.sandbox_id]


def test_a_file_that_cannot_be_read_this_time_leaves_a_running_sandbox_alone(own_server):
    """A folder where a file should be stands for a disk that answers with an error."""
    server = own_server().start()
    sandbox = Sandbox.create(timeout=600, **server.sdk)
    handle = sandbox.commands.run("exec sleep 300", background=True, timeout=0)
    handle.disconnect()
    before = processes(sandbox.sandbox_id)
    server.kill9()
    spec = server.data / "sandboxes" / sandbox.sandbox_id / "spec.json"
    spec.rename(spec.with_suffix(".moved"))
    spec.mkdir()
    server.start()
    with server.api() as api:
        (broken,) = api.get("/v1/broken").json()
    assert broken["remedy"] == "retry" and "directory" in broken["reason"], broken
    assert processes(sandbox.sandbox_id) == before
    refused = server.cli("recover", sandbox.sandbox_id, "--discard")
    assert refused.returncode == 1 and b"recover it first" in refused.stderr
    spec.rmdir()
    spec.with_suffix(".moved").rename(spec)
    assert server.cli("recover", sandbox.sandbox_id).returncode == 0
    assert processes(sandbox.sandbox_id) == before
    again = Sandbox.connect(sandbox.sandbox_id, timeout=300, **server.sdk)
    assert handle.pid in [each.pid for each in again.commands.list()]


def descriptors(server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def test_a_start_with_too_few_descriptors_touches_nothing(own_server):
    """70 paused sandboxes and a limit of 110: the start is refused, and all are there for the next."""
    count = 70
    server = own_server().start()
    made = [Sandbox.create(timeout=600, **server.sdk) for _ in range(count)]
    for sandbox in made:
        sandbox.files.write("kept", sandbox.sandbox_id)
        assert sandbox.pause() is True
    ids = {sandbox.sandbox_id for sandbox in made}
    before = {id: processes(id) for id in ids}
    assert all(before.values())
    server.kill9()

    try:
        server.starter = ["prlimit", "--nofile=110:110"]
        assert server.spawn().wait(60) != 0
        assert {id: processes(id) for id in ids} == before
        said = server.log_tail(5)
        assert f"the {count} sandboxes that are there" in said and "LimitNOFILE" in said, said

        # With as many as it asks for it starts, and has enough.
        needed = re.search(r"needs at least (\d+)", said)[1]
        server.starter = ["prlimit", f"--nofile={needed}:{needed}"]
        server.start()
        assert {id: processes(id) for id in ids} == before
        assert {each.sandbox_id for each in Sdk("sync", server.sdk, None).list_all()} == ids
        assert descriptors(server) < int(needed)
        one = made[0]
        assert Sandbox.connect(one.sandbox_id, timeout=60, **server.sdk).files.read("kept") == one.sandbox_id
    finally:
        # A server that refused to start ends nobody.
        if server.process.poll() is not None:
            server.starter = []
            server.start()
