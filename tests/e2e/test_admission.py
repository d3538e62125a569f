"""A full machine says so, lets creates wait for room, and outlives what sandboxes do to it."""

import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from e2b import Sandbox, SandboxException, ServiceBusyException

from support.server import binary, clean_environment
from support.waiting import eventually

pytestmark = pytest.mark.timeout(240)

SLICE_MIB = 640


def memory_mib(name: str) -> int:
    with open("/proc/meminfo") as lines:
        found = next(line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) // 1024


def small_slice() -> list[str]:
    """Of a machine of any size, leaves only so much to sandboxes."""
    return ["--reserve-memory-mb", str(memory_mib("MemTotal") - SLICE_MIB)]


def refusals(server, resource: str) -> int:
    page = httpx.get(f"{server.admin_url}/metrics").text
    found = re.search(rf'soulbox_admission_refused_total{{resource="{resource}"}} (\d+)', page)
    return int(found[1])


@pytest.fixture
def full(own_server):
    """Two sandboxes, and what is promised to them leaves no room for a third."""
    options = [*small_slice(), "--memory-mb", "256", "--overcommit-memory", "1"]
    server = own_server(extra=[*options, "--admission-wait", "1s"]).start()
    boxes = [Sandbox.create(timeout=200, **server.sdk) for _ in range(2)]
    return server, boxes


def test_a_full_machine_names_what_lacks_and_when_to_come_back(full):
    server, boxes = full
    with server.api() as api:
        answer = api.post("/v2/sandboxes", json={"templateID": "base"})
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["should-retry"] == "true"
    body = answer.json()
    assert (body["code"], body["error_code"]) == (503, "sandbox_capacity_unavailable")
    said = re.search(r"may use 256 MiB, and 512 of (\d+) MiB are promised", body["message"])
    assert said and abs(int(said[1]) - SLICE_MIB) <= 1, body["message"]
    assert refusals(server, "promised_memory") == 1
    assert refusals(server, "memory") == 0
    with server.api() as api:
        assert len(api.get("/v2/sandboxes").json()) == 2
    assert all(box.commands.run("echo here").stdout == "here\n" for box in boxes)


def test_the_python_client_gets_the_words_and_a_kill_makes_room(full):
    server, boxes = full
    with pytest.raises(ServiceBusyException, match="no capacity: promised memory"):
        Sandbox.create(timeout=60, retries=0, **server.sdk)
    boxes[0].kill()
    third = Sandbox.create(timeout=60, retries=0, **server.sdk)
    assert third.commands.run("echo third").stdout == "third\n"


def test_a_create_that_waits_is_served_when_something_ends(own_server):
    options = [*small_slice(), "--memory-mb", "512", "--overcommit-memory", "1"]
    server = own_server(extra=[*options, "--admission-wait", "20s"]).start()
    first = Sandbox.create(timeout=200, **server.sdk)
    made = []
    waits = threading.Thread(
        target=lambda: made.append(Sandbox.create(timeout=60, retries=0, **server.sdk))
    )
    waits.start()
    waiting = lambda: "soulbox_admission_waiting 1\n" in httpx.get(f"{server.admin_url}/metrics").text
    eventually(waiting, what="the second one waits")
    first.kill()
    waits.join(30)
    assert made and made[0].commands.run("echo second").stdout == "second\n"


def test_a_burst_is_served_whole_although_only_one_is_started_at_a_time(own_server):
    server = own_server(extra=["--parallel-starts", "1", "--admission-wait", "0"]).start()
    make = lambda _: Sandbox.create(timeout=100, retries=0, **server.sdk)
    with ThreadPoolExecutor(20) as pool:
        boxes = list(pool.map(make, range(20)))
    assert len({box.sandbox_id for box in boxes}) == 20
    assert boxes[-1].commands.run("echo last").stdout == "last\n"


@pytest.mark.alone
def test_what_eats_memory_dies_inside_the_slice_and_the_server_lives(own_server):
    server = own_server(extra=[*small_slice(), "--admission-wait", "1s"]).start()
    calm = Sandbox.create(timeout=200, **server.sdk)
    hogs = [Sandbox.create(timeout=200, **server.sdk) for _ in range(3)]
    available = memory_mib("MemAvailable")
    # Each may use 512 MiB by itself; together they may not.
    eat = "import time; x = bytearray(b'x') * (400 << 20); print(len(x), flush=True); time.sleep(100)"
    with ThreadPoolExecutor(3) as pool:
        eating = [pool.submit(outcome, hog, f'python3 -c "{eat}"') for hog in hogs]
        eventually(lambda: any(each.done() for each in eating), within=60, what="one is killed")
        # While the others hold what they have.
        assert httpx.get(f"{server.url}/health").is_success
        assert server.process.poll() is None
        assert available - memory_mib("MemAvailable") < SLICE_MIB + 300
        assert calm.commands.run("echo calm", timeout=30).stdout == "calm\n"
        with server.api() as api:
            answer = api.post("/v2/sandboxes", json={"templateID": "base"})
        if answer.status_code != 201:
            assert answer.status_code == 503, answer.text
            assert "no capacity: memory" in answer.json()["message"], answer.text
        for hog in hogs:
            hog.kill()
        killed = [each.result(60) for each in eating]
    assert "killed" in killed, killed
    after = Sandbox.create(timeout=60, **server.sdk)
    assert after.commands.run("echo after").stdout == "after\n"


def outcome(box: Sandbox, command: str) -> str:
    try:
        box.commands.run(command, timeout=120)
        return "ended"
    except SandboxException as error:
        return "killed" if getattr(error, "exit_code", None) in (-1, 9, 137) else str(error)


def test_a_reserve_that_leaves_nothing_is_refused_before_anything_is_made(tmp_path):
    data = tmp_path / "data"
    started = subprocess.run(
        [str(binary()), "serve", "--data-dir", str(data), "--reserve-memory-mb", "999999999"]
        + ["--listen", "127.0.0.1:0", "--https", "off", "--admin", "off"],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert started.returncode != 0
    said = started.stderr.decode()
    assert "--reserve-memory-mb" in said and "too little" in said, said
    assert re.search(r"this machine's \d+ MiB", said), said
    assert not data.exists()


@pytest.mark.skipif(os.cpu_count() > 31, reason="the largest sandbox has 32 cpus, which must not fit")
def test_refused_creates_cost_nobody_else_anything(own_server):
    """What was prepared for a create that is refused is never given to another one."""
    server = own_server(
        extra=["--max-sandboxes", "6", "--overcommit-cpu", "1", "--cpus", "0.125", "--admission-wait", "1s"]
    ).start()
    with server.api() as api:

        def create(cpus: float | None = None):
            body = {"templateID": "base", "timeout": 120} | ({"cpuCount": cpus} if cpus else {})
            return api.post("/v2/sandboxes", json=body)

        for _ in range(4):
            refused = [create(cpus=32) for _ in range(2)]
            assert {answer.status_code for answer in refused} == {400}, [each.text for each in refused]
            assert {answer.json()["error_code"] for answer in refused} == {"sandbox_too_large"}
            made = [create() for _ in range(6)]
            assert {answer.status_code for answer in made} == {201}, [each.text for each in made]
            ids = [answer.json()["sandboxID"] for answer in made]
            assert len(api.get("/v2/sandboxes").json()) == len(set(ids)) == 6
            for each in ids:
                assert api.delete(f"/sandboxes/{each}").status_code == 204
