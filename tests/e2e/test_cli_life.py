"""Habits of the command line, as transcripts: making, finding, ending and waiting."""

import json
import subprocess

from support.server import binary, clean_environment
from support.waiting import eventually


def made(transcript, *words):
    return transcript.run("create", *words).stdout.decode().strip()


def test_create_prints_the_id_and_inspect_is_json(transcript):
    box = made(transcript, "--timeout", "10m", "--metadata", "job=7", "--memory", "256m")
    shown = transcript.run("inspect", box)
    (seen,) = json.loads(shown.stdout)
    assert seen["sandboxID"] == box and seen["memoryMB"] == 256
    assert not [name for name in seen if name.lower().endswith("token")]
    transcript.run("inspect", "base", "i0000")
    transcript.run("create", "-t", "base")


def test_rm_is_kill_and_ps_lists_sandboxes(transcript):
    box = made(transcript)
    transcript.run("ps")
    transcript.run("ps", "-aq")
    transcript.run("rm", "-f", box)
    transcript.run("rm", box)
    transcript.run("ps", "-q")


def test_wait_prints_why_each_ended(transcript):
    killed, expired = made(transcript), made(transcript, "--timeout", "1")
    transcript.run("wait", "--timeout", "1", killed)
    server = transcript.server
    waiting = subprocess.Popen(
        [str(binary()), "wait", killed, expired],
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    server.cli("kill", killed)
    stdout, _ = waiting.communicate(timeout=30)
    transcript.say(("wait", killed, expired), waiting.returncode, stdout.decode())
    # Also of those that ended before, and by the beginning of an id.
    transcript.run("wait", killed)
    assert transcript.server.cli("wait", expired[:8]).stdout == b"expired\n"
    transcript.run("wait", "i" + "0" * 20)


def test_fork_and_snapshot_copy_files(transcript):
    box = made(transcript)
    transcript.run("exec", box, "--shell", "echo half done > work.txt")
    copies = transcript.run("fork", box, "-n", "2").stdout.decode().split()
    assert len(copies) == 2
    transcript.run("exec", copies[0], "--", "cat", "work.txt")
    transcript.run("snapshot", "create", box, "--name", "before")
    transcript.run("snapshot", "ls")
    transcript.run("run", "--template", "before", "--", "cat", "work.txt")
    transcript.run("snapshot", "rm", "befroe")
    transcript.run("snapshot", "rm", "before")
    transcript.run("snapshot", "ls", "-q")


def test_volumes_outlive_sandboxes(transcript):
    transcript.run("volume", "create", "results")
    transcript.run("run", "-v", "results:/data", "--shell", "echo 42 > /data/answer")
    transcript.run("run", "-v", "results:/data", "--", "cat", "/data/answer")
    transcript.run("run", "-v", "./here:/data", "--", "true")
    transcript.run("volume", "ls")
    transcript.run("volume", "inspect", "results")
    transcript.run("volume", "rm", "result")
    transcript.run("volume", "rm", "results")


def test_secrets_come_from_stdin_and_never_back(transcript):
    transcript.run("secret", "create", "token", input=b"hunter2\n")
    transcript.run("secret", "create", "token", input=b"again\n")
    transcript.run("secret", "create", "token", "--replace", input=b"again\n")
    transcript.run("secret", "create", "empty", input=b"")
    transcript.run("secret", "ls")
    transcript.run("secret", "rm", "tokn")
    transcript.run("secret", "rm", "token")
    assert "hunter2" not in transcript.text() and "again" not in transcript.text().replace("by", "")


def test_cp_takes_several_sources_into_a_folder(transcript, tmp_path):
    box = made(transcript)
    transcript.also(str(tmp_path), "<here>")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main").write_text("m\n")
    sources = [str(tmp_path / name) for name in ("a.txt", "b.txt", "src")]
    transcript.run("cp", *sources, f"{box}:/tmp/all/")
    transcript.run("exec", box, "--shell", "find /tmp/all -type f | sort")
    transcript.run("cp", *sources, f"{box}:/tmp/all/a.txt")
    transcript.run("cp", sources[0], sources[0], f"{box}:/tmp/all")
    (tmp_path / "back").mkdir()
    transcript.run("cp", f"{box}:/tmp/all/a.txt", f"{box}:/tmp/all/src", str(tmp_path / "back"))
    assert (tmp_path / "back" / "src" / "main").read_text() == "m\n"
    transcript.run("cp", f"{box}:/tmp/all/a.txt", f"{box}:/tmp/all/b.txt", str(tmp_path / "none"))
    assert eventually(lambda: (tmp_path / "back" / "a.txt").read_text() == "a\n")
