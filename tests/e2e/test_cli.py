"""The command line: what people see, what programs read, and exit codes."""

import json
import subprocess

import pytest

from support.screen import Screen
from support.server import attach, binary, clean_environment
from support.waiting import eventually


@pytest.fixture
def cli(server):
    def run(*words, **kwargs):
        return server.cli(*words, **kwargs)

    return run


def ok(result):
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def test_run_streams_and_passes_the_exit_code_through(cli, sync_sdk):
    assert ok(cli("run", "--", "echo", "hello  world")) == "hello  world\n"
    failed = cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
    assert (failed.returncode, failed.stdout, failed.stderr) == (42, b"out\n", b"err\n")


def test_run_leaves_no_sandbox_behind(cli, server):
    with server.api() as api:
        before = {each["sandboxID"] for each in api.get("/v2/sandboxes").json()}
        ok(cli("run", "--timeout", "60", "--", "true"))
        cli("run", "--", "false")
        after = {each["sandboxID"] for each in api.get("/v2/sandboxes").json()}
    assert after <= before


def test_run_feeds_its_stdin(cli):
    assert ok(cli("run", "--", "wc", "-c", input=b"\x00\xff" * 50_000)).strip() == "100000"


def test_ls_is_a_table_for_people_and_json_for_programs(cli, box):
    table = ok(cli("ls"))
    assert box.sandbox_id in table
    (entry,) = [each for each in json.loads(ok(cli("ls", "--json"))) if each["sandboxID"] == box.sandbox_id]
    assert entry["state"] == "running"


def test_ls_shows_paused_sandboxes_too_and_resume_gives_them_five_minutes(cli, box):
    ok(cli("pause", box.sandbox_id))
    (row,) = [line for line in ok(cli("ls")).splitlines() if box.sandbox_id in line]
    assert " paused " in row
    refused = cli("timeout", box.sandbox_id, "1h")
    assert refused.returncode != 0 and b"`soulbox resume` resumes it" in refused.stderr
    resumed = cli("resume", box.sandbox_id)
    assert resumed.returncode == 0 and b"ends in 5 min" in resumed.stderr
    assert b"ends in 2 h" in cli("resume", box.sandbox_id, "--timeout", "2h").stderr


EATER = "x = []\nwhile True: x.append(bytearray(20_000_000))"


def test_a_command_that_used_up_the_memory_ends_with_137_and_the_reason(cli):
    done = cli("run", "--", "python3", "-c", EATER)
    assert done.returncode == 137
    assert b"soulbox: out of memory: the kernel killed it" in done.stderr


def test_the_exit_codes_of_soulbox_itself_are_apart(cli, box):
    assert cli("run", "--", "no-such-program").returncode == 127
    assert cli("run", "--", "/etc").returncode == 126
    assert cli("exec", "i" + "0" * 20, "--", "true").returncode == 125
    assert cli("exec", box.sandbox_id, "--timeout", "1", "--", "sleep", "300").returncode == 124
    assert cli("exec", box.sandbox_id, "--shell", "kill -TERM $$").returncode == 128 + 15


def test_exec_runs_in_an_existing_sandbox(cli, box):
    box.files.write("f", "content")
    assert ok(cli("exec", box.sandbox_id, "--", "cat", "f")) == "content"
    assert cli("exec", box.sandbox_id, "--", "sh", "-c", "exit 9").returncode == 9
    assert ok(cli("exec", box.sandbox_id, "--", "tr", "a-z", "A-Z", input=b"loud")) == "LOUD"


def test_a_named_data_folder_is_the_server_whatever_the_environment_says(cli, server, box, tmp_path):
    elsewhere = {"E2B_API_KEY": "e2b_" + "0" * 40, "E2B_API_URL": "http://127.0.0.1:1"}
    assert box.sandbox_id in ok(cli("ls", "-q", "--data-dir", str(server.data), env=elsewhere))
    for folder in (tmp_path, tmp_path / "missing"):
        refused = cli("kill", "--all", "--data-dir", str(folder))
        assert refused.returncode == 1 and f"no server keeps its data in {folder}" in refused.stderr.decode()
    assert box.is_running()


def test_ps_shows_what_runs_inside(cli, box):
    handle = box.commands.run("exec sleep 300", background=True)
    assert "sleep 300" in ok(cli("ps", box.sandbox_id))
    listed = json.loads(ok(cli("ps", box.sandbox_id, "--json")))
    assert handle.pid in [each["pid"] for each in listed]


def test_cp_copies_both_ways_and_whole_trees(cli, box, tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_bytes(bytes(range(256)) * 1000)
    (tree / "top").write_text("top")
    ok(cli("cp", str(tree / "top"), f"{box.sandbox_id}:copied"))
    assert box.files.read("copied") == "top"
    ok(cli("cp", str(tree), f"{box.sandbox_id}:/tmp/tree"))
    assert len(box.files.read("/tmp/tree/deep/file", format="bytes")) == 256_000
    ok(cli("cp", f"{box.sandbox_id}:/tmp/tree", str(tmp_path / "back")))
    assert (tmp_path / "back" / "deep" / "file").read_bytes() == (tree / "deep" / "file").read_bytes()
    # Into a folder that is there, under its own name, as docker cp has it; -r is a habit.
    ok(cli("cp", "-r", str(tree), f"{box.sandbox_id}:/tmp/tree"))
    assert box.files.read("/tmp/tree/tree/top") == "top"
    ok(cli("cp", "-r", f"{box.sandbox_id}:/tmp/tree/deep", str(tmp_path / "back")))
    assert (tmp_path / "back" / "deep" / "deep").exists() is False and (tmp_path / "back" / "deep" / "file").exists()
    missing = cli("cp", f"{box.sandbox_id}:/no/such", str(tmp_path / "x"))
    assert missing.returncode != 0 and b"/no/such" in missing.stderr


def test_copies_belong_to_the_account_and_programs_stay_programs(cli, box, tmp_path):
    (tmp_path / "data").write_text("x")
    (tmp_path / "data").chmod(0o600)
    (tmp_path / "program").write_text("#!/bin/sh")
    (tmp_path / "program").chmod(0o755)
    for user, folder in (("user", "/home/user"), ("root", "/root")):
        for name, mode in (("data", "644"), ("program", "755")):
            ok(cli("cp", "--user", user, str(tmp_path / name), f"{box.sandbox_id}:{folder}/"))
            seen = box.commands.run(f"stat -c '%U %G %a' {folder}/{name}", user="root").stdout
            assert seen == f"{user} {user} {mode}\n"


def test_a_line_for_a_shell_gets_a_hint(cli, box):
    told = cli("exec", box.sandbox_id, "--", "echo a | wc -c")
    assert told.returncode == 127 and b"--shell 'echo a | wc -c'" in told.stderr
    assert ok(cli("exec", box.sandbox_id, "--shell", "echo a | wc -c")).strip() == "2"


def test_logs_tell_what_happened(cli, box):
    box.commands.run("true")
    text = eventually(lambda: cli("logs", box.sandbox_id).stdout.decode())
    assert text.strip()
    for line in ok(cli("logs", box.sandbox_id, "--json")).splitlines():
        assert json.loads(line)["message"]


def test_of_a_sandbox_that_ended_the_whole_id_tells_when_and_why(cli, box):
    box.kill()
    for command in (["inspect", box.sandbox_id], ["exec", box.sandbox_id, "--", "true"]):
        told = cli(*command)
        assert told.returncode != 0 and b"(ended at 2" in told.stderr and b", killed" in told.stderr
    assert b"no sandbox whose id begins with" in cli("exec", box.sandbox_id[:12], "--", "true").stderr
    assert b"sandbox ended (killed)" in cli("logs", box.sandbox_id[:12]).stdout


def test_attach_replays_what_was_said_before(server, box):
    handle = box.commands.run("echo said before; read line; echo $line; exit 3", background=True, stdin=True)
    handle.disconnect()
    with attach(server, box, handle.pid) as watching:
        assert watching.stdout.readline() == b"said before\n"
        box.commands.send_stdin(handle.pid, "said after\n")
        assert watching.stdout.readline() == b"said after\n"
        assert watching.wait(20) == 3


def test_a_detached_command_goes_on(cli, box):
    pid = int(ok(cli("exec", box.sandbox_id, "--detach", "--", "sleep", "300")))
    assert pid in [each.pid for each in box.commands.list()]


def test_a_beginning_of_an_id_is_enough(cli, box):
    assert ok(cli("exec", box.sandbox_id[:12], "--", "echo", "found")) == "found\n"


def test_stats_show_the_use_of_resources(cli, box):
    (entry,) = [
        each
        for each in json.loads(ok(cli("stats", box.sandbox_id, "--json")))
        if each["sandboxID"] == box.sandbox_id
    ]
    assert entry["memUsed"] > 0 and entry["diskTotal"] > 0
    assert box.sandbox_id in ok(cli("stats"))


def test_stats_count_who_was_killed_for_lack_of_memory(cli, box):
    def stats():
        return json.loads(ok(cli("stats", box.sandbox_id, "--json")))[0]

    before = eventually(lambda: stats().get("oomKills") is not None and stats(), what="a sample")["oomKills"]
    assert cli("exec", box.sandbox_id, "--", "python3", "-c", EATER).returncode == 137
    after = eventually(lambda: stats()["oomKills"] > before and stats(), what="the kill is counted")
    # Where the kernel tells it: since 5.19 on cgroup v2.
    assert after.get("memPeak", 512 << 20) > 400 << 20


def test_kill_ends_one_and_complains_about_an_unknown_one(cli, sync_sdk):
    box = sync_sdk.create()
    ok(cli("kill", box.sandbox_id))
    assert not box.is_running()
    again = cli("kill", box.sandbox_id)
    assert again.returncode != 0 and box.sandbox_id.encode() in again.stderr


def test_keys_are_made_shown_masked_and_removed(cli, server):
    made = json.loads(ok(cli("key", "create", "ci", "--json")))
    assert made["key"].startswith("e2b_") and len(made["key"]) == 44
    listed = ok(cli("key", "ls"))
    assert "ci" in listed and made["key"] not in listed
    with server.api(made["key"]) as api:
        assert api.get("/v2/sandboxes").status_code == 200
    ok(cli("key", "rm", made["id"]))
    with server.api(made["key"]) as api:
        assert api.get("/v2/sandboxes").status_code == 401


def test_a_wrong_key_or_no_server_is_said_clearly(cli):
    wrong = cli("ls", env={"E2B_API_KEY": "e2b_" + "0" * 40})
    assert wrong.returncode != 0 and b"key" in wrong.stderr.lower()
    nobody = cli("ls", env={"E2B_API_URL": "http://127.0.0.1:1"})
    assert nobody.returncode != 0 and b"127.0.0.1:1" in nobody.stderr


def test_doctor_says_what_this_machine_can_give(cli):
    report = cli("doctor", "--json")
    assert report.returncode == 0, report.stdout.decode() + report.stderr.decode()
    assert "jail" in report.stdout.decode()
    assert "jail" in ok(cli("doctor"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_made_for_common_shells(cli, shell):
    assert "soulbox" in ok(cli("completions", shell))


@pytest.mark.parametrize("words", [[], ["serve"], ["run"], ["exec"], ["cp"], ["key"], ["attach"], ["doctor"], ["dns"]])
def test_help_explains_every_command(cli, words):
    assert "Usage" in ok(cli(*words, "--help"))


def test_an_unknown_option_is_a_usage_error(cli):
    assert cli("ls", "--nope").returncode == 2


def test_shell_is_a_terminal_that_follows_the_window(server, box):
    screen = Screen(server, "shell", box.sandbox_id)
    screen.resize(40, 120)
    screen.type("echo who:$(whoami)\n")
    screen.shows("who:user")
    screen.resize(33, 111)
    eventually(lambda: (screen.type("stty size\n"), screen.read(), "33 111" in screen.text)[-1])
    screen.type("exit 5\n")
    assert screen.exit_code() == 5


def test_run_stops_and_cleans_up_on_control_c(server):
    with server.api() as api:
        before = {each["sandboxID"] for each in api.get("/v2/sandboxes").json()}
        running = subprocess.Popen(
            [str(binary()), "run", "--", "sh", "-c", "echo up; exec sleep 300"],
            env=clean_environment() | server.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert running.stdout.readline() == b"up\n"
        running.send_signal(2)
        assert running.wait(20) != 0
        running.stdout.close()
        running.stderr.close()
        eventually(lambda: {each["sandboxID"] for each in api.get("/v2/sandboxes").json()} <= before)
