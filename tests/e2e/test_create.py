"""Making sandboxes."""

import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from e2b import SandboxException

from support.waiting import eventually


def test_a_new_sandbox_runs_commands_at_once(sdk):
    sandbox = sdk.create()
    assert re.fullmatch(r"i[a-z0-9]{20}", sandbox.sandbox_id)
    assert sandbox.is_running()
    assert sandbox.commands.run("echo hello").stdout == "hello\n"


def test_defaults_are_those_of_e2b(sandbox):
    result = sandbox.commands.run("whoami; pwd; id -u; id -g; echo $HOME; umask")
    assert result.stdout.split() == ["user", "/home/user", "1000", "1000", "/home/user", "0022"]


def test_sandbox_variables_reach_every_command(sdk):
    sandbox = sdk.create(envs={"COLOUR": "grün & blau", "EMPTY": ""})
    assert sandbox.commands.run("printf %s \"$COLOUR\"").stdout == "grün & blau"
    assert sandbox.commands.run("echo ${EMPTY-unset}").stdout == "\n"
    env = sandbox.commands.run("env").stdout.splitlines()
    assert "E2B_SANDBOX=true" in env
    assert f"E2B_SANDBOX_ID={sandbox.sandbox_id}" in env


def test_metadata_of_any_script_comes_back(sdk):
    metadata = {"name": "Ünï çödé", "クラス": "a=b&c", "empty": ""}
    sandbox = sdk.create(metadata=metadata)
    assert sandbox.get_info().metadata == metadata


def test_the_timeout_sets_the_end(sdk):
    sandbox = sdk.create(timeout=77)
    info = sandbox.get_info()
    assert abs(info.end_at - info.started_at - timedelta(seconds=77)) < timedelta(seconds=2)


def test_an_unknown_template_is_refused_by_name(sdk):
    with pytest.raises(SandboxException, match="404.*no-such-template"):
        sdk.create(template="no-such-template")


@pytest.mark.parametrize("timeout", [0, -5])
def test_a_timeout_that_is_not_positive_is_refused(server, timeout):
    with server.api() as api:
        answer = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": timeout})
    assert answer.status_code == 400
    assert answer.json()["code"] == 400
    assert "imeout" in answer.json()["message"]


def test_a_timeout_beyond_the_longest_life_is_refused(server):
    with server.api() as api:
        answer = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 2**31 - 1})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("path", ["/sandboxes", "/v2/sandboxes"])
def test_whoever_names_a_tier_gets_that_one_or_an_error(server, path):
    with server.api() as api:
        jail = api.post(path, json={"templateID": "base", "tier": "jail"})
        assert jail.status_code == 201, jail.text
        api.delete(f"/sandboxes/{jail.json()['sandboxID']}")

        for tier in ("gvisor", "microvm", "docker"):
            absent = api.post(path, json={"templateID": "base", "tier": tier})
            assert absent.status_code == 501, absent.text
            assert absent.json()["error_code"] == "tier_unavailable"
            assert tier in absent.json()["message"]

        unknown = api.post(path, json={"templateID": "base", "tier": "firecracker"})
        assert unknown.status_code == 400, unknown.text
        for name in ("docker", "jail", "gvisor", "microvm"):
            assert name in unknown.json()["message"]


def test_the_same_idempotency_key_gives_the_same_sandbox(sdk):
    key = str(uuid.uuid4())
    first = sdk.create(idempotency_key=key, metadata={"n": "1"})
    again = sdk.create(idempotency_key=key, metadata={"n": "1"})
    assert again.sandbox_id == first.sandbox_id
    with pytest.raises(SandboxException, match="422"):
        sdk.create(idempotency_key=key, metadata={"n": "other"})


def test_version_one_of_the_api_creates_too(server):
    with server.api() as api:
        answer = api.post("/sandboxes", json={"templateID": "base", "timeout": 60, "secure": True})
        assert answer.status_code == 201, answer.text
        made = answer.json()
        assert made["envdAccessToken"] and made["envdVersion"] and made["clientID"]
        assert api.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204


def test_version_one_lives_fifteen_seconds_unless_told(server):
    with server.api() as api:
        made = api.post("/sandboxes", json={"templateID": "base"}).json()
        detail = api.get(f"/sandboxes/{made['sandboxID']}").json()
        api.delete(f"/sandboxes/{made['sandboxID']}")
    started, end = (datetime.fromisoformat(detail[key]) for key in ("startedAt", "endAt"))
    assert timedelta(seconds=14) < end - started < timedelta(seconds=17)


def test_eight_at_once_are_all_different(server, sync_sdk):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: sync_sdk.create(timeout=60), range(8)))
    assert len({each.sandbox_id for each in made}) == 8
    names = [each.commands.run("cat /proc/sys/kernel/hostname; hostname -I").stdout for each in made]
    addresses = {each.split()[1] for each in names}
    assert len(addresses) == 8


@pytest.mark.parametrize(
    "field",
    [
        {"iam": {"tokens": {"t": {"audience": "x", "tokenType": "JWT-SVID"}}}},
        {"network": {"egressProxy": {"address": "proxy.example.com:1080"}}},
        {"network": {"rules": {"example.com": [{"transform": {"headers": {"A": "b"}}}]}}},
    ],
    ids=["iam", "egressProxy", "rules"],
)
def test_what_is_not_built_yet_is_refused_and_not_ignored(server, field):
    with server.api() as api:
        answer = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 30} | field)
        if answer.status_code == 201:
            api.delete(f"/sandboxes/{answer.json()['sandboxID']}")
    assert answer.status_code in (400, 403, 501), answer.text
    body = answer.json()
    assert body["code"] == answer.status_code and body["message"]


def test_unknown_fields_are_ignored(server):
    with server.api() as api:
        answer = api.post("/v2/sandboxes", json={"templateID": "base", "futureField": {"a": 1}})
        assert answer.status_code == 201, answer.text
        api.delete(f"/sandboxes/{answer.json()['sandboxID']}")


def test_the_new_sandbox_is_listed_before_create_returns(sdk):
    sandbox = sdk.create(metadata={"listed": "at-once"})
    assert sandbox.sandbox_id in [each.sandbox_id for each in sdk.list_all()]


def test_the_log_of_a_sandbox_tells_its_beginning(server, box):
    with server.api() as api:

        def logged():
            v1 = api.get(f"/sandboxes/{box.sandbox_id}/logs").json()
            v2 = api.get(f"/v2/sandboxes/{box.sandbox_id}/logs").json()
            return v1["logs"] and v2["logs"] and (v1, v2)

        v1, _ = eventually(logged, within=10)
    for line in v1["logs"]:
        assert isinstance(json.loads(line["line"])["level"], str)
