"""pause, resume by connecting, pausing at the timeout, and waking on traffic."""

from datetime import datetime, timezone

import httpx
import pytest
from e2b import NotFoundException, Sandbox, SandboxQuery, SandboxState

from support.guest import serve_http
from support.sdk import Sdk
from support.waiting import eventually


@pytest.fixture(autouse=True, scope="module")
def _built(server):
    """Until the server can pause, it must say so; the rest is skipped."""
    with server.api() as api:
        made = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60}).json()
        answer = api.post(f"/sandboxes/{made['sandboxID']}/pause", json={})
        api.delete(f"/sandboxes/{made['sandboxID']}")
    if answer.status_code == 501:
        assert "not supported" in answer.json()["message"]
        pytest.skip("this server cannot pause yet, and says so")


BOOT_ID = "/proc/sys/kernel/random/boot_id"


def test_a_paused_sandbox_keeps_its_processes_and_files(sdk):
    sandbox = sdk.create(timeout=120)
    sandbox.files.write("kept", "here")
    handle = sandbox.commands.run("exec sleep 300", background=True, timeout=0)
    boot = sandbox.files.read(BOOT_ID)
    assert sandbox.pause() is True
    assert sandbox.is_running() is False
    assert sdk.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED

    again = sdk.connect(sandbox.sandbox_id, timeout=60)
    assert again.is_running()
    assert again.get_info().state == SandboxState.RUNNING
    assert again.files.read("kept") == "here"
    assert again.files.read(BOOT_ID) == boot
    assert handle.pid in [each.pid for each in again.commands.list()]
    # The old handle works as well: its token did not change.
    assert sandbox.commands.run("echo same").stdout == "same\n"


def test_pausing_twice_says_so(sdk):
    sandbox = sdk.create(timeout=120)
    assert sandbox.pause() is True
    assert sandbox.pause() is False


def test_a_paused_sandbox_is_found_by_its_state(sdk, request):
    own = {"test": request.node.name}
    sandbox = sdk.create(timeout=120, metadata=own)
    sandbox.pause()
    ask = lambda *states: [each.sandbox_id for each in sdk.list_all(query=SandboxQuery(metadata=own, state=list(states)))]
    assert ask(SandboxState.PAUSED) == [sandbox.sandbox_id]
    assert ask(SandboxState.RUNNING) == []
    assert ask(SandboxState.PAUSED, SandboxState.RUNNING) == [sandbox.sandbox_id]


def test_a_paused_sandbox_can_be_killed(sdk):
    sandbox = sdk.create(timeout=120)
    sandbox.pause()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    with pytest.raises(NotFoundException):
        sdk.connect(sandbox.sandbox_id)


def test_pausing_an_unknown_sandbox_is_not_found(server):
    with server.api() as api:
        assert api.post("/sandboxes/i" + "0" * 20 + "/pause", json={}).status_code == 404


def test_traffic_to_a_paused_sandbox_is_not_found_until_it_is_connected(server, sync_sdk):
    sandbox = sync_sdk.create(timeout=120)
    serve_http(sandbox)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    sandbox.pause()
    answer = httpx.get(server.url, headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")
    sync_sdk.connect(sandbox.sandbox_id)
    assert httpx.get(f"{server.url}/back", headers=headers, timeout=20).text == "GET /back"


def test_time_does_not_end_a_paused_sandbox(sync_sdk):
    sandbox = sync_sdk.create(timeout=6)
    end = sandbox.get_info().end_at
    sandbox.pause()
    eventually(lambda: datetime.now(timezone.utc) > end, within=10)
    again = sync_sdk.connect(sandbox.sandbox_id, timeout=60)
    assert again.commands.run("echo alive").stdout == "alive\n"


def test_without_memory_only_the_disk_is_kept(sdk):
    sandbox = sdk.create(timeout=120, envs={"A": "b"})
    sandbox.files.write("kept", "here")
    sandbox.commands.run("exec sleep 300", background=True, timeout=0)
    assert sandbox.pause(mode="filesystem") is True
    again = sdk.connect(sandbox.sandbox_id, timeout=60)
    assert again.files.read("kept") == "here"
    assert not again.commands.run("pgrep -x sleep || true").stdout
    assert again.commands.run("echo $A; whoami").stdout == "b\nuser\n"


def test_a_sandbox_pauses_at_its_timeout_when_asked_to(sdk):
    sandbox = sdk.create(timeout=1, lifecycle={"on_timeout": "pause"})
    assert sandbox.get_info().lifecycle["on_timeout"] == "pause"
    eventually(lambda: sdk.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED, within=10)
    again = sdk.connect(sandbox.sandbox_id, timeout=60)
    assert again.commands.run("echo back").stdout == "back\n"


def test_traffic_wakes_it_when_asked_to(server, sync_sdk):
    sandbox = sync_sdk.create(timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True})
    serve_http(sandbox)
    sandbox.set_timeout(0)
    eventually(lambda: sync_sdk.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED, within=15)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    assert httpx.get(f"{server.url}/wake", headers=headers, timeout=20).text == "GET /wake"
    assert sync_sdk.get_info(sandbox.sandbox_id).state == SandboxState.RUNNING


@pytest.mark.timeout(180)
def test_paused_sandboxes_outlive_the_server(own_server):
    server = own_server().start()
    with_memory = Sandbox.create(timeout=300, **server.sdk)
    without = Sandbox.create(timeout=300, **server.sdk)
    handle = with_memory.commands.run("exec sleep 300", background=True, timeout=0)
    for each in (with_memory, without):
        each.files.write("kept", each.sandbox_id)
    with_memory.pause()
    without.pause(mode="filesystem")
    server.kill9()
    server.start()
    sdk = Sdk("sync", server.sdk, None)
    assert {each.state for each in sdk.list_all()} == {SandboxState.PAUSED}
    again = sdk.connect(with_memory.sandbox_id, timeout=60)
    assert handle.pid in [each.pid for each in again.commands.list()]
    for each in (with_memory, without):
        assert sdk.connect(each.sandbox_id, timeout=60).files.read("kept") == each.sandbox_id
        assert each.kill()


@pytest.mark.timeout(180)
def test_pausing_and_waking_many_times_loses_no_write(sync_sdk):
    sandbox = sync_sdk.create(timeout=300)
    for number in range(10):
        sandbox.commands.run(f"echo {number} >> log")
        assert sandbox.pause() is True
        sandbox = sync_sdk.connect(sandbox.sandbox_id, timeout=300)
    assert sandbox.files.read("log").split() == [str(number) for number in range(10)]
