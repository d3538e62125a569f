"""Out of memory is told as such everywhere."""

import json

import httpx
import pytest
from e2b import CommandExitException

from support.waiting import eventually

EATER = "x = []\nwhile True: x.append(bytearray(20_000_000))"
TOLD = "out of memory: the kernel killed"


def test_lack_of_memory_is_told_by_sdk_command_line_stats_log_events_and_metrics(server, box):
    counted = oom_kills(server)
    with pytest.raises(CommandExitException) as failed:
        box.commands.run(f"python3 -c '{EATER}'")
    assert TOLD in failed.value.stderr and TOLD in f"{failed.value.error}"
    done = server.cli("exec", box.sandbox_id, "--", "python3", "-c", EATER)
    assert done.returncode == 137 and TOLD in done.stderr.decode()

    def stats():
        (row,) = json.loads(server.cli("stats", box.sandbox_id, "--json").stdout)
        return row.get("oomKills", 0) >= 2

    eventually(stats, within=20, what="stats count them")
    assert eventually(lambda: [each for each in events(server, box) if each["eventLabel"] == "oom"], within=20)
    (first, *_) = [each for each in events(server, box) if each["eventLabel"] == "oom"]
    assert first["eventData"]["reason"] == "out of memory" and first["eventData"]["memory_mb"] == 512
    assert TOLD in server.cli("logs", box.sandbox_id).stdout.decode()
    assert "oom reason=out of memory" in server.cli("events", box.sandbox_id).stdout.decode()
    assert oom_kills(server) >= counted + 2


def test_a_sandbox_that_ends_at_once_has_told_of_it_before(server):
    counted = oom_kills(server)
    done = server.cli("run", "--", "python3", "-c", EATER)
    assert done.returncode == 137 and TOLD in done.stderr.decode()
    assert eventually(lambda: oom_kills(server) > counted)
    text = server.cli("events").stdout.decode()
    assert "oom reason=out of memory" in text


def events(server, box):
    with server.api() as api:
        return api.get(f"/events/sandboxes/{box.sandbox_id}").json()


def oom_kills(server) -> int:
    page = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    (line,) = [line for line in page.splitlines() if line.startswith("soulbox_oom_kills_total")]
    return int(line.split()[-1])
