"""A backup is everything that a server keeps, taken while it works; a data folder made from it is that
server, elsewhere."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox, Template, Volume
from e2b.exceptions import SandboxException

from support.server import Server, binary, clean_environment
from support.small_disk import small_disk
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)


def backup(server: Server, target: Path) -> dict:
    done = server.cli("backup", str(target), "--data-dir", str(server.data), "--json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def restore(server: Server, source: Path, target: Path) -> subprocess.CompletedProcess:
    return server.cli("restore", str(source), "--data-dir", str(target))


def flip(path: Path) -> None:
    """Changes one bit where there is data, or changes it back."""
    with open(path, "r+b") as file:
        at = os.lseek(file.fileno(), 0, os.SEEK_DATA) + 100
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)


@pytest.fixture
def two_servers(own_server):
    """One that is backed up, and one on a folder that does not exist yet."""
    return own_server("old"), own_server("new")


def test_after_a_kill_everything_is_back_elsewhere(two_servers, tmp_path, monkeypatch):
    old, new = two_servers
    old.start()
    monkeypatch.setenv("E2B_VOLUME_API_URL", old.url)
    api = {"api_key": old.key, "api_url": old.url}
    Template.build(
        Template().from_template("base").run_cmd("mkdir -p /home/user/x && echo built > /home/user/x/f"),
        "small", cpu_count=1, memory_mb=512, skip_cache=False, **api,
    )  # fmt: skip
    volume = Volume.create("kept", **api)
    volume.write_file("/from-the-api", "one")
    running = Sandbox.create(timeout=600, metadata={"was": "running"}, volume_mounts={"/mnt/v": volume}, **old.sdk)
    running.commands.run("echo two > /mnt/v/from-inside; echo running > ~/f; sync")
    in_memory = Sandbox.create(timeout=600, metadata={"was": "in memory"}, **old.sdk)
    in_memory.files.write("f", "in memory")
    in_memory.commands.run("sleep 1000", background=True)
    assert in_memory.pause() is True
    on_disk = Sandbox.create(timeout=600, metadata={"was": "on disk"}, **old.sdk)
    on_disk.files.write("f", "on disk")
    assert on_disk.pause(keep_memory=False) is True
    from_template = Sandbox.create("small", timeout=600, metadata={"was": "from a template"}, **old.sdk)
    from_template.files.write("f", "from a template")
    snapshot = running.create_snapshot(name="moment", **api)
    fork = Sandbox.create(snapshot.snapshot_id, timeout=600, metadata={"was": "a fork"}, **old.sdk)
    fork.files.write("g", "a fork")
    with old.api() as asked:
        key = asked.post("/api-keys", json={"name": "second"}).json()["key"]
        assert asked.post("/secrets", json={"name": "TOKEN", "value": "s3cret"}).status_code == 201
        hook = {"name": "hook", "url": "https://hooks.example.com/x", "events": ["sandbox.lifecycle.created"],
                "enabled": True, "signatureSecret": "s" * 32}  # fmt: skip
        assert asked.post("/events/webhooks", json=hook).status_code == 201
        told = {path: asked.get(path).json() for path in ("/secrets", "/events/webhooks", "/api-keys", "/templates")}
    # It writes while the backup is taken: pairs of files that must agree.
    fork.commands.run(
        "i=0; while true; do i=$((i+1)); for f in first second; do echo $i > ~/t; mv ~/t ~/$f; done; done", background=True
    )
    token = running._envd_access_token

    done = backup(old, tmp_path / "backups")
    assert {each["state"] for each in done["sandboxes"]} == {"running", "paused_in_memory", "paused_on_disk"}
    assert not done["left_out"]
    folder = Path(done["path"])
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.parent.stat().st_mode & 0o777 == 0o700
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*") if path.is_file()
    ), "nobody but root reads a file of it"
    assert "goes on" == fork.commands.run("echo goes on").stdout.strip()
    old.kill9()

    restored = restore(old, tmp_path / "backups", new.data)
    assert restored.returncode == 0, restored.stderr.decode()
    new.start()
    assert new.key == old.key, "the key that the folder knows"
    with new.api(key=key) as asked:
        for path, before in told.items():
            now = asked.get(path).json()
            if path == "/api-keys":  # one of them was just used
                before, now = ([each["id"] for each in some] for some in (before, now))
            if path == "/templates":  # sandboxes are counted
                before, now = ({each["templateID"]: each["aliases"] for each in some} for some in (before, now))
            assert now == before, path
        listed = {each["metadata"]["was"]: each for each in asked.get("/v2/sandboxes?state=paused,running").json()}
    assert {was: each["state"] for was, each in listed.items()} == dict.fromkeys(
        ["running", "in memory", "on disk", "from a template", "a fork"], "paused"
    )
    expected = {"running": "running\n", "in memory": "in memory", "on disk": "on disk", "from a template": "from a template"}
    for was, each in listed.items():
        with new.api() as asked:
            answer = asked.post(f"/sandboxes/{each['sandboxID']}/connect", json={"timeout": 300})
        assert answer.status_code in (200, 201), answer.text
        assert answer.json().get("restored", "filesystem") == "filesystem", "memory is not in a backup"
        box = Sandbox.connect(each["sandboxID"], timeout=300, **new.sdk)
        if was in expected:
            assert box.files.read("f") == expected[was], was
    back = Sandbox.connect(running.sandbox_id, **new.sdk)
    assert back._envd_access_token == token, "tokens are the same"
    assert back.commands.run("cat /mnt/v/from-inside").stdout == "two\n"
    said = Path(new.data, "sandboxes", running.sandbox_id, "log.json").read_text()
    assert "restored from a backup" in said
    twin = Sandbox.connect(fork.sandbox_id, **new.sdk)
    first, second = (int(twin.files.read(name) or 0) for name in ("first", "second"))
    assert first - second in (0, 1), "of one moment"
    assert twin.files.read("f") == "running\n" and twin.files.read("g") == "a fork"
    monkeypatch.setenv("E2B_VOLUME_API_URL", new.url)
    again = Volume.connect(volume.volume_id, api_key=new.key, api_url=new.url)
    assert again.read_file("/from-the-api") == "one"
    made = Sandbox.create("small", timeout=60, **new.sdk)
    assert made.files.read("x/f") == "built\n"
    named = Sandbox.create("moment", timeout=60, **new.sdk)
    assert named.files.read("f") == "running\n"
    assert named.commands.run("cat /mnt/v/from-inside; true").stdout == "", "volumes are not part of a snapshot"
    # The old one is whole too: its sandboxes ran on.
    old.start()
    assert Sandbox.connect(running.sandbox_id, **old.sdk).files.read("f") == "running\n"


def test_a_restored_folder_never_leads_to_the_server_that_it_was_copied_from(own_server, tmp_path):
    server = own_server().start()
    kept = Sandbox.create(timeout=600, **server.sdk)
    taken = backup(server, tmp_path / "backups")
    there = tmp_path / "there"
    assert restore(server, Path(taken["path"]), there).returncode == 0
    assert (there / "env").stat().st_mode & 0o777 == 0o600
    killed = subprocess.run(
        [binary(), "kill", "--all", "--data-dir", str(there)],
        env=clean_environment(), capture_output=True, text=True, timeout=60,
    )
    assert killed.returncode != 0 and "soulbox serve" in killed.stderr, killed.stderr
    assert kept.is_running(), "the server that was copied goes on"


def test_a_backup_leaves_the_folder_that_it_is_put_into_and_what_is_beside_a_restore_alone(own_server, tmp_path):
    server = own_server().start()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    taken = backup(server, shared)
    assert shared.stat().st_mode & 0o7777 == 0o1777
    other = tmp_path / "there.new"
    other.mkdir()
    (other / "precious").write_text("mine")
    refused = restore(server, Path(taken["path"]), tmp_path / "there")
    assert refused.returncode != 0 and b"there.new" in refused.stderr, refused.stderr
    assert (other / "precious").read_text() == "mine"


def test_a_second_backup_copies_only_what_is_new(own_server, tmp_path):
    server = own_server().start()
    source = Sandbox.create(timeout=600, **server.sdk)
    source.commands.run("head -c 8M /dev/urandom > ~/large")
    snapshot = source.create_snapshot()
    first, second = (backup(server, tmp_path / "backups") for _ in range(2))
    assert first["path"] < second["path"], "their names are in their order"
    image = f"snapshots/{first['snapshots'][0]}/disk.img"
    assert os.stat(Path(first["path"], image)).st_ino == os.stat(Path(second["path"], image)).st_ino
    layers = [path for path in Path(second["path"]).rglob("*.tar")]
    assert layers and all(path.stat().st_nlink == 2 for path in layers)
    # Each stands alone.
    subprocess.run(["rm", "-rf", first["path"]], check=True)
    verified = server.cli("restore", second["path"], "--verify")
    assert verified.returncode == 0, verified.stderr
    assert snapshot.snapshot_id


def test_what_is_deleted_meanwhile_is_in_the_backup_or_told(own_server, tmp_path):
    """Kills and deletions do not wait for a backup, and it does not fail because of them."""
    server, other = own_server("old").start(), own_server("new")
    boxes = [Sandbox.create(timeout=600, **server.sdk) for _ in range(6)]
    for box in boxes:
        box.commands.run("head -c 4M /dev/urandom > ~/large; sync")
    snapshots = [box.create_snapshot() for box in boxes[:3]]
    target = tmp_path / "backups"
    command = [str(binary()), "backup", str(target), "--data-dir", str(server.data), "--json"]
    taking = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for box in boxes:
        box.kill()
    for snapshot in snapshots:
        Sandbox.delete_snapshot(snapshot.snapshot_id, **server.sdk)
    out, err = taking.communicate(timeout=60)
    assert taking.returncode == 0, err.decode()
    done = json.loads(out)
    assert restore(server, target, other.data).returncode == 0
    other.start()
    with other.api() as api:
        listed = {each["sandboxID"] for each in api.get("/v2/sandboxes?state=paused,running").json()}
    copied = {each["id"] for each in done["sandboxes"]}
    assert listed == copied
    for each in done["snapshots"]:
        assert (other.data / "snapshots" / each / "disk.img").exists()
    for id in listed:
        Sandbox.connect(id, **other.sdk).kill()
    assert not (server.data / "backup.pins").exists()


def test_a_server_that_does_not_run_is_backed_up_from_its_folder(own_server, tmp_path):
    server, other = own_server("old").start(), own_server("new")
    volume = Volume.create("kept", api_key=server.key, api_url=server.url)
    box = Sandbox.create(timeout=600, volume_mounts={"/mnt/v": volume}, **server.sdk)
    box.commands.run("echo here > ~/f; echo there > /mnt/v/f")
    running = Sandbox.create(timeout=600, **server.sdk)
    assert box.pause() is True
    server.terminate()
    refused = server.cli("backup", str(tmp_path / "backups"), "--data-dir", str(server.data))
    assert refused.returncode == 1 and running.sandbox_id in refused.stderr.decode(), refused.stderr
    assert "start `soulbox serve`" in refused.stderr.decode()
    server.start()
    running.kill()
    server.terminate()
    done = backup(server, tmp_path / "backups")
    assert [each["state"] for each in done["sandboxes"]] == ["paused_in_memory"]
    assert restore(server, tmp_path / "backups", other.data).returncode == 0
    other.start()
    back = Sandbox.connect(box.sandbox_id, **other.sdk)
    assert back.commands.run("cat ~/f /mnt/v/f").stdout == "here\nthere\n"
    # Nothing of this hurt the one that it is of.
    server.start()
    assert Sandbox.connect(box.sandbox_id, **server.sdk).files.read("f") == "here\n"


def test_a_backup_that_is_cut_short_looks_like_none(own_server, tmp_path):
    server, other = own_server("old").start(), own_server("new")
    box = Sandbox.create(timeout=600, **server.sdk)
    box.commands.run("head -c 200M /dev/urandom > ~/large; sync")
    target = tmp_path / "backups"
    command = [str(binary()), "backup", str(target), "--data-dir", str(server.data)]

    def begun() -> subprocess.Popen:
        taking = subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE)
        eventually(lambda: list(target.glob("*.new/sandboxes/*/disk.img")), every=0.005, what="it copies")
        return taking

    # The command dies: the server notices, and removes what it has written.
    taking = begun()
    taking.send_signal(signal.SIGKILL)
    taking.communicate(timeout=10)
    eventually(lambda: not list(target.glob("*.new")), within=30, what="the server has cleared away")
    assert not list(target.iterdir())
    # The server dies: what is left has no name of a backup.
    taking = begun()
    server.kill9()
    _, err = taking.communicate(timeout=10)
    assert taking.returncode == 1 and b"the server went away" in err, err
    assert [path.suffix for path in target.iterdir()] == [".new"]
    refused = restore(server, target, other.data)
    assert refused.returncode == 1 and b"no whole backup" in refused.stderr, refused.stderr
    assert not other.data.exists()
    # The next one clears away what is left, and is whole.
    server.start()
    assert box.files.exists("large"), "it ran on"
    done = backup(server, target)
    assert [str(path) for path in target.iterdir()] == [done["path"]]
    assert not (server.data / "backup.pins").exists()


def test_a_damaged_backup_is_refused_by_the_name_of_the_file(own_server, tmp_path):
    server, other = own_server("old").start(), own_server("new")
    box = Sandbox.create(timeout=600, **server.sdk)
    box.commands.run("head -c 2M /dev/urandom > ~/large; sync")
    done = backup(server, tmp_path / "backups")
    folder = Path(done["path"])
    disk = next(folder.glob("sandboxes/*/disk.img"))
    manifest = json.loads((folder / "manifest.json").read_text())
    for path in [disk, folder / "soulbox.db", next(folder.rglob("*.tar")), folder / "manifest.json"]:
        flip(path)
        refused = restore(server, folder, other.data)
        assert refused.returncode == 1, path
        assert str(path.relative_to(folder)) in refused.stderr.decode(), refused.stderr
        assert not other.data.exists() and not other.data.with_name(f"{other.data.name}.new").exists()
        flip(path)
    missing = folder / "seed"
    missing.rename(folder / "elsewhere")
    refused = restore(server, folder, other.data)
    assert refused.returncode == 1 and b"seed" in refused.stderr and b"missing" in refused.stderr
    (folder / "elsewhere").rename(missing)
    # A format of the future.
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"format": 1', '"format": 2', 1))
    refused = restore(server, folder, other.data)
    assert refused.returncode == 1 and b"format 2" in refused.stderr and b"newer" in refused.stderr
    (folder / "manifest.json").write_text(text)
    # Not over something else.
    other.data.mkdir()
    (other.data / "mine").write_text("mine")
    refused = restore(server, folder, other.data)
    assert refused.returncode == 1 and b"not empty" in refused.stderr
    assert [path.name for path in other.data.iterdir()] == ["mine"]
    (other.data / "mine").unlink()
    assert restore(server, folder, other.data).returncode == 0
    assert manifest["files"]


def test_a_backup_needs_root_and_no_key_is_enough(own_server, tmp_path):
    server = own_server().start()
    socket = server.data / "operator.sock"
    assert socket.stat().st_mode & 0o777 == 0o600 and socket.stat().st_uid == 0
    target = tmp_path / "backups"
    command = [str(binary()), "backup", str(target), "--data-dir", str(server.data)]
    environment = clean_environment() | server.env
    refused = subprocess.run(command, env=environment, capture_output=True, user=65534, timeout=30)
    assert refused.returncode == 1 and b"root" in refused.stderr, refused.stderr
    # Nor past the command: the socket itself is closed to others.
    past = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    done = subprocess.run(["/usr/bin/python3", "-c", past, str(socket)], capture_output=True, user=65534, timeout=30)
    assert done.returncode == 1 and b"PermissionError" in done.stderr, done.stderr
    with server.api() as api:
        for path in ("/backup", "/v1/backup", "/admin/backup"):
            assert api.post(path).status_code in (404, 501), path
    inside = server.cli("backup", str(server.data / "here"), "--data-dir", str(server.data))
    assert inside.returncode == 1 and b"inside the data folder" in inside.stderr


@pytest.mark.alone
def test_a_full_disk_leaves_everything_as_it_was(own_server, tmp_path):
    server, other = own_server("old").start(), own_server("new")
    box = Sandbox.create(timeout=600, **server.sdk)
    box.commands.run("head -c 100M /dev/urandom > ~/large; sync")
    with small_disk(tmp_path, 200) as disk:
        target = disk.path / "backups"
        disk.fill(leave=30 << 20)
        refused = server.cli("backup", str(target), "--data-dir", str(server.data))
        assert refused.returncode == 1 and b"MiB free" in refused.stderr, refused.stderr
        assert not list(target.iterdir())
        # It fills up in the middle.
        disk.empty()
        command = [str(binary()), "backup", str(target), "--data-dir", str(server.data)]
        taking = subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE)
        eventually(lambda: list(target.glob("*.new/sandboxes/*/disk.img")), every=0.005)
        disk.fill()
        _, err = taking.communicate(timeout=60)
        if taking.returncode:  # it may have been quicker than the filler
            assert b"No space left" in err, err
            assert not list(target.iterdir())
        disk.empty()
        assert box.commands.run("echo here").stdout == "here\n"
        done = backup(server, target)
        # Restoring where there is no room.
        disk.fill(leave=10 << 20)
        refused = server.cli("restore", done["path"], "--data-dir", str(disk.path / "data"))
        assert refused.returncode == 1 and b"MiB free" in refused.stderr, refused.stderr
        assert not (disk.path / "data").exists()
        disk.empty()
    assert not other.data.exists()


def test_what_is_restored_onto_a_disk_of_its_own_is_whole_at_once(own_server, tmp_path):
    """A data folder that is a mount point cannot be renamed into its place."""
    server = own_server("old").start()
    box = Sandbox.create(timeout=600, **server.sdk)
    box.files.write("f", "kept")
    done = backup(server, tmp_path / "backups")
    with small_disk(tmp_path, 600) as disk:
        other = Server(disk.path, extra=["--min-free-disk-mb", "50"])
        restored = restore(server, Path(done["path"]), disk.path)
        assert restored.returncode == 0, restored.stderr
        assert not (disk.path / "restore.new").exists()
        (disk.path / "restore.new").mkdir()
        process = other.spawn()
        assert process.wait(30) != 0 and "cut short" in other.log_tail()
        (disk.path / "restore.new").rmdir()
        other.start()
        try:
            assert Sandbox.connect(box.sandbox_id, **other.sdk).files.read("f") == "kept"
        finally:
            other.finish()


def test_the_metrics_page_tells_when_the_last_backup_was(own_server, tmp_path):
    server = own_server().start()
    name = "soulbox_backup_last_success_timestamp_seconds"
    assert name not in httpx.get(f"{server.admin_url}/metrics").text
    done = backup(server, tmp_path / "backups")
    # Also after a restart, and at once.
    server.terminate()
    server.start()

    def told() -> str | None:
        page = httpx.get(f"{server.admin_url}/metrics").text
        found = re.search(rf"^{name} (\d+)$", page, re.MULTILINE)
        return found and found[1]

    assert eventually(told) == str(done["created_at"] // 1000)
    with pytest.raises(SandboxException):
        Sandbox.create("no-such-template", timeout=5, **server.sdk)
