"""Machines on which no sandbox could start: the server refuses, with the reason and what to do, and the
doctor says the same."""

import json
import os
import random
import re
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from support.server import Server, binary, clean_environment, free_ports
from support.waiting import eventually


@contextmanager
def mounted(folder: Path, options: str, size: str = "2g"):
    """A file system in memory, on which both find the same fault."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        (folder / "data").mkdir()
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)
        yield folder / "data"
    finally:
        subprocess.run(["umount", folder], check=True)


def refusal(server: Server) -> str:
    assert server.spawn().wait(60) != 0
    return server.log.read_text()


def doctor(server: Server) -> str:
    words = server.command()[1:]
    options = words[words.index("--listen") :]
    domain = options.index("--domain")
    del options[domain : domain + 2]
    done = subprocess.run(
        [str(binary()), "doctor", "--quick", *options],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout


def test_a_data_folder_from_which_nothing_may_be_executed(own_server, tmp_path):
    server = own_server()
    with mounted(tmp_path / "disk", "noexec") as folder:
        server.data = folder
        for said in (refusal(server), doctor(server)):
            assert "soulbox-init" in said and "noexec" in said and "--data-dir" in said, said


def test_a_data_folder_that_cannot_be_written_to(own_server, tmp_path):
    server = own_server()
    with mounted(tmp_path / "disk", "ro") as folder:
        server.data = folder
        for said in (refusal(server), doctor(server)):
            assert "Read-only" in said and "--data-dir" in said, said


def test_less_room_than_is_kept_free(own_server, tmp_path):
    server = own_server()
    with mounted(tmp_path / "disk", "rw", size="900m") as folder:
        server.data = folder
        words = re.compile(rf"{folder} has \d+ MiB of free space, and no sandbox is made below 1024 MiB")
        try:
            for said in (refusal(server), doctor(server)):
                assert words.search(said) and "--data-dir" in said and "--min-free-disk-mb" in said, said

            # Room enough for a server that keeps less free.
            server.extra = ["--min-free-disk-mb", "100"]
            server.start()
            with server.api() as api:
                assert api.post("/volumes", json={"name": "kept"}).status_code == 201
            assert server.terminate() == 0

            # Whoever keeps something there needs the server, to reach it or to remove it.
            server.extra = []
            server.start()
            assert "new sandboxes will be refused" in server.log_tail() and words.search(server.log_tail())
            with server.api() as api:
                assert [each["name"] for each in api.get("/volumes").json()] == ["kept"]
                assert api.post("/v2/sandboxes", json={"templateID": "base"}).status_code in (503, 507)
        finally:
            server.finish()


def test_what_a_killed_doctor_left_is_gone_after_the_next_start(own_server):
    """Killed wherever: with its folder just made, marked, and with a sandbox's files in it."""
    server = own_server()
    server.data.mkdir()
    left = [server.data / f".soulbox-doctor-{each}" for each in ("aaaaaa", "bbbbbb", "cccccc")]
    for each in left:
        each.mkdir(mode=0o700)
    for each in left[1:]:
        (each / ".scratch").touch()
    (left[2] / "trial" / "bin").mkdir(parents=True)
    theirs = server.data / ".soulbox-doctor-dddddd"
    theirs.mkdir(mode=0o700)
    (theirs / ".scratch").touch()
    os.chown(theirs, 65534, 65534)
    server.start()
    assert sorted(each for each in os.listdir(server.data) if "doctor" in each) == [theirs.name]


def test_a_doctor_killed_at_any_moment_leaves_nothing_that_the_next_one_does_not_remove(own_server):
    server = own_server()
    server.data.mkdir()
    dice, found = random.Random(3), 0
    for _ in range(6):
        command = [str(binary()), "doctor-trial", str(server.data)]
        trial = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        moment = time.monotonic() + dice.uniform(0.01, 1.0)
        eventually(lambda: time.monotonic() > moment or trial.poll() is not None, within=3, every=0.005)
        trial.kill()
        trial.wait(10)
        found += len(os.listdir(server.data))
    assert found > 0, "none was killed while it had a folder: the test did not test"
    subprocess.run([*command], env=clean_environment(), stdout=subprocess.DEVNULL, timeout=60, check=True)
    assert os.listdir(server.data) == []


def test_a_firewall_that_takes_no_rules_and_nothing_is_left_of_the_attempt(own_server, tmp_path):
    nft = tmp_path / "bin" / "nft"
    nft.parent.mkdir()
    nft.write_text("#!/bin/sh\necho 'Error: Could not process rule: Operation not supported' >&2\nexit 1\n")
    nft.chmod(0o755)
    server = own_server()
    server.environment["PATH"] = f"{nft.parent}:{os.environ['PATH']}"
    said = refusal(server)
    assert "Operation not supported" in said and "nf_tables" in said, said
    tag = json.loads((server.data / "instance.json").read_text())["tag"]
    assert f"sbx{tag}" not in os.listdir("/sys/class/net")


def test_an_address_that_somebody_has(own_server):
    server = own_server()
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        server.http_port = taken.getsockname()[1]
        for said in (refusal(server), doctor(server)):
            assert f"127.0.0.1:{server.http_port} is in use by" in said and "--listen" in said, said


def test_a_limit_of_file_size_at_which_the_server_would_be_killed(own_server):
    server = own_server()
    server.starter = ["prlimit", "--fsize=1000000"]
    said = refusal(server)
    assert "file size" in said and "LimitFSIZE" in said, said
    command = ["prlimit", "--fsize=1000000", str(binary()), "doctor", "--quick"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "LimitFSIZE" in done.stderr, done


def test_ids_that_are_all_reserved_for_others(own_server, tmp_path):
    """In a mount namespace: the host's own file stays."""
    server = own_server()
    (tmp_path / "subuid").write_text("somebody:1879048192:268435456\n")
    bind = f"mount --bind {tmp_path}/subuid /etc/subuid && exec \"$@\""
    server.starter = ["unshare", "--mount", "sh", "-c", bind, "sh"]
    said = refusal(server)
    assert "host ids" in said and "/etc/subuid" in said, said


def test_too_few_open_files(own_server):
    server = own_server()
    server.starter = ["prlimit", "--nofile=64:64"]
    said = refusal(server)
    assert "open files is 64" in said and "LimitNOFILE" in said, said
    done = subprocess.run(
        ["prlimit", "--nofile=64:64", str(binary()), "doctor", "--quick", "--data-dir", server.data],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "open files is 64" in done.stdout and "LimitNOFILE" in done.stdout, done.stdout
