"""Habits of the command line, as transcripts: what happened, what is used, what takes room."""

import json
import subprocess

from support.server import binary, clean_environment
from support.tenants import new_tenant
from support.waiting import eventually


def made(transcript, *words):
    return transcript.run("create", *words).stdout.decode().strip()


def test_logs_are_there_after_the_end(transcript):
    box = made(transcript)
    transcript.run("exec", box, "--shell", "exit 3")
    server = transcript.server
    following = subprocess.Popen(
        [str(binary()), "logs", "-f", box],
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    # envd may be ready in the millisecond before or after it.
    while b"sandbox started" not in following.stdout.readline():
        pass
    server.cli("kill", box)
    rest, _ = following.communicate(timeout=30)
    assert b"sandbox ended (killed)" in rest.splitlines()[-1] and following.returncode == 0
    told = server.cli("logs", box)
    lines = [line for line in told.stdout.decode().splitlines() if " ready " not in line]
    transcript.say(("logs", box), told.returncode, "\n".join(lines), told.stderr.decode())
    # -f of one that has ended shows what is kept and ends; so does the beginning of its id.
    assert server.cli("logs", "-f", box[:9]).stdout == server.cli("logs", box).stdout


def test_ended_logs_survive_a_restart_and_are_for_their_owner_alone(own_server):
    server = own_server().start()
    server.terminate()
    stranger = new_tenant(server, "stranger")
    server.start()
    box = server.cli("create").stdout.decode().strip()
    server.cli("exec", box, "--", "true")
    server.cli("kill", box)
    told = server.cli("logs", box).stdout
    assert b"process ended" in told and told.endswith(b"sandbox ended (killed) logger=node\n")
    server.kill9()
    server.start()
    assert server.cli("logs", box).stdout == told
    refused = server.cli("logs", box, env={"E2B_API_KEY": stranger})
    assert refused.returncode == 1 and refused.stdout == b""
    with server.api(stranger) as api:
        assert api.get(f"/v2/sandboxes/{box}/logs").status_code == 404
        assert api.post("/v1/prune").json()["freed"] == [
            {"kind": "ended_logs", "count": 0, "bytes": 0, "reclaimable": 0}
        ]
    assert server.cli("logs", box).stdout == told, "a stranger's prune frees only the stranger's"
    assert server.cli("prune", "-y").returncode == 0
    assert server.cli("logs", box).returncode == 1


def test_events_tell_what_happened(transcript):
    box = made(transcript)
    transcript.run("pause", box)
    transcript.run("resume", box)
    transcript.run("kill", box)
    transcript.run("events", box)
    transcript.run("events", "--since", "0", box)
    lines = transcript.server.cli("events", "--json", box).stdout.splitlines()
    assert [json.loads(line)["eventLabel"] for line in lines] == ["created", "paused", "resumed", "killed"]


def test_events_follow(transcript):
    server = transcript.server
    following = subprocess.Popen(
        [str(binary()), "events", "-f", "--json"],
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    box = made(transcript)
    server.cli("kill", box)
    seen = []
    while len(seen) < 2:
        event = json.loads(following.stdout.readline())
        if event["sandboxId"] == box:
            seen.append(event["eventLabel"])
    assert seen == ["created", "killed"]
    following.send_signal(2)
    _, stderr = following.communicate(timeout=20)
    transcript.say(("events", "-f"), following.returncode, "", stderr.decode())


def test_df_says_what_takes_room_and_prune_frees_what_can_be_made_again(transcript):
    transcript.server.cli("prune", "-y")
    box = made(transcript)
    paused = made(transcript)
    transcript.run("pause", paused)
    gone = made(transcript)
    transcript.run("kill", gone)
    transcript.run("df")
    transcript.run("prune")
    transcript.run("prune", "--dry-run", "--paused")
    transcript.run("prune", "-y")
    transcript.run("df")
    transcript.run("ls", "-q")
    transcript.run("prune", "-f", "--paused")
    transcript.run("ls", "-q")
    assert box in transcript.server.cli("ls", "-q").stdout.decode()


def test_a_prune_frees_the_steps_and_layers_that_no_template_means(cli_server):
    server = cli_server
    build = ["template", "from-host", "-t", "pruned", "--quiet", "--run"]
    assert server.cli(*build, "head -c 5000000 /dev/urandom > /srv/one", timeout=120).returncode == 0
    assert server.cli(*build, "head -c 6000000 /dev/urandom > /srv/two", timeout=120).returncode == 0

    def items():
        return {each["kind"]: each for each in json.loads(server.cli("df", "--json").stdout)["items"]}

    before = items()
    assert before["build_cache"]["reclaimable"] > 4_000_000, "the build that has lost its tag"
    assert before["templates"]["bytes"] > 5_000_000
    assert server.cli("prune", "-y").returncode == 0
    after = items()
    assert after["build_cache"]["bytes"] < 1_000_000
    assert after["templates"]["bytes"] == before["templates"]["bytes"]
    assert server.cli("run", "--template", "pruned", "--", "stat", "-c", "%s", "/srv/two").stdout == b"6000000\n"
    assert server.cli("template", "rm", "pruned").returncode == 0


def test_top_shows_sandboxes_or_the_processes_in_one(transcript):
    box = made(transcript)
    transcript.server.cli("exec", "-d", box, "--", "sleep", "300")
    eventually(lambda: len(transcript.server.cli("top").stdout.splitlines()) == 2)
    heading, row = transcript.server.cli("top").stdout.decode().splitlines()
    assert heading.split()[:3] == ["SANDBOX", "CPU", "OF"] and row.startswith(box)
    inside = transcript.server.cli("top", box).stdout.decode()
    assert "sleep 300" in inside and "PID" in inside
    transcript.run("top", "i0000")
