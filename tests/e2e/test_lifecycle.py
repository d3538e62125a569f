"""connect, set_timeout, expiry, get_info, get_metrics, kill."""

import time
from datetime import datetime, timedelta, timezone

import pytest
from e2b import NotFoundException, SandboxException, SandboxState

from support.waiting import eventually


def test_connecting_gives_a_working_handle_to_the_same_sandbox(sdk):
    sandbox = sdk.create()
    sandbox.files.write("kept", "here")
    again = sdk.connect(sandbox.sandbox_id)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.files.read("kept") == "here"


def test_connecting_never_shortens_and_can_lengthen(sdk):
    sandbox = sdk.create(timeout=100)
    before = sandbox.get_info().end_at
    sdk.connect(sandbox.sandbox_id, timeout=10)
    assert sandbox.get_info().end_at == before
    sdk.connect(sandbox.sandbox_id, timeout=500)
    assert sandbox.get_info().end_at > before


def test_connecting_to_a_killed_or_unknown_one_is_not_found(sdk):
    sandbox = sdk.create()
    sandbox.kill()
    for sandbox_id in (sandbox.sandbox_id, "i" + "0" * 20):
        with pytest.raises(NotFoundException):
            sdk.connect(sandbox_id)


def test_the_timeout_moves_the_end_both_ways(sdk):
    sandbox = sdk.create(timeout=100)
    for seconds in (20, 600):
        sandbox.set_timeout(seconds)
        left = sandbox.get_info().end_at - datetime.now(timezone.utc)
        assert abs(left.total_seconds() - seconds) < 5


@pytest.mark.alone
def test_a_sandbox_ends_on_time(sdk):
    sandbox = sdk.create(timeout=100)
    sandbox.set_timeout(2)
    began = time.monotonic()
    eventually(lambda: not sandbox.is_running(), within=10)
    assert 1 < time.monotonic() - began < 4
    with pytest.raises(NotFoundException):
        sdk.get_info(sandbox.sandbox_id)


def test_a_timeout_of_zero_ends_it_now(sdk):
    sandbox = sdk.create(timeout=100)
    sandbox.set_timeout(0)
    eventually(lambda: not sandbox.is_running())


def test_info_tells_what_was_asked_for(sdk):
    sandbox = sdk.create(metadata={"a": "b"}, timeout=90)
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.name == "base"
    assert info.metadata == {"a": "b"}
    assert info.state == SandboxState.RUNNING
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert abs(info.started_at - datetime.now(timezone.utc)) < timedelta(seconds=30)
    assert info.allow_internet_access in (None, True)
    assert tuple(map(int, info.envd_version.split("."))) >= (0, 6, 7)


def test_metrics_appear_and_are_plausible(sdk):
    sandbox = sdk.create()
    sample = eventually(lambda: sandbox.get_metrics(), within=30)[-1]
    info = sandbox.get_info()
    assert sample.cpu_count == info.cpu_count
    assert sample.mem_total == info.memory_mb * 1024 * 1024
    assert 0 < sample.mem_used <= sample.mem_total
    assert 0 < sample.disk_used < sample.disk_total
    assert 0 <= sample.cpu_used_pct <= 100 * sample.cpu_count + 50
    hour = timedelta(hours=1)
    now = datetime.now(timezone.utc)
    assert sandbox.get_metrics(start=now - 2 * hour, end=now - hour) == []


def test_metrics_follow_what_happens_inside(box):
    box.commands.run("head -c 100000000 /dev/zero > f; sync", timeout=60)
    eventually(lambda: any(each.disk_used > 90_000_000 for each in box.get_metrics()), within=30)


def test_killing_is_true_once(sdk):
    sandbox = sdk.create()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert sdk.kill(sandbox.sandbox_id) is False


def test_a_killed_sandbox_is_gone_everywhere_at_once(sdk):
    sandbox = sdk.create()
    sandbox.kill()
    assert not sandbox.is_running()
    with pytest.raises(NotFoundException):
        sdk.get_info(sandbox.sandbox_id)
    with pytest.raises(NotFoundException):
        sdk.set_timeout(sandbox.sandbox_id, 10)
    with pytest.raises(SandboxException):
        sandbox.commands.run("true")


def test_refreshes_only_extend(server, sync_sdk):
    sandbox = sync_sdk.create(timeout=100)
    before = sandbox.get_info().end_at
    with server.api() as api:
        assert api.post(f"/sandboxes/{sandbox.sandbox_id}/refreshes", json={"duration": 20}).status_code == 204
        assert sandbox.get_info().end_at == before
        api.post(f"/sandboxes/{sandbox.sandbox_id}/refreshes", json={"duration": 900})
    assert sandbox.get_info().end_at > before


def test_the_legacy_composite_id_is_understood(server, sync_sdk):
    sandbox = sync_sdk.create()
    with server.api() as api:
        assert api.get(f"/sandboxes/{sandbox.sandbox_id}-6532622b").status_code == 200
        assert api.get(f"/sandboxes/{sandbox.sandbox_id}-a-b").status_code == 400


@pytest.mark.parametrize(("method", "path"), [("POST", "/access-tokens"), ("GET", "/nodes")])
def test_what_is_not_built_yet_says_so(server, method, path):
    with server.api() as api:
        answer = api.request(method, path, json={"name": "x"})
    assert answer.status_code in (400, 403, 501), answer.text
    assert answer.json()["code"] == answer.status_code
    assert "not supported" in answer.json()["message"]


def test_processes_that_outlive_their_parent_are_reaped(box):
    box.commands.run("for i in $(seq 50); do (true &) ; done; (sleep 0.2 &)")
    eventually(lambda: box.commands.run("ps -eo stat= | grep -c ^Z || true").stdout.strip() == "0")
