"""Rules for one sandbox: what it may reach, and who may reach it."""

import httpx
import pytest
from e2b import SandboxException

from support.guest import serve_http
from support.sdk import Sdk
from support.waiting import eventually

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 443), 4).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


@pytest.fixture
def somewhere(sync_sdk):
    """Two addresses outside that answer; skipped where there are none."""
    box = sync_sdk.create(timeout=60)
    found = []
    for name in ("pypi.org", "registry.npmjs.org"):
        out = box.commands.run(f"getent ahostsv4 {name} || true").stdout.split()
        if out and reaches(box, out[0]):
            found.append(out[0])
    box.kill()
    if len(set(found)) < 2:
        pytest.skip("this machine reaches no two addresses outside to try rules on")
    return found


def reaches(sandbox, address):
    sandbox.files.write("/tmp/connect.py", CONNECT)
    return sandbox.commands.run(f"python3 /tmp/connect.py {address}", timeout=20).stdout.startswith("open")


def test_a_denied_address_is_closed_and_others_are_open(sdk, somewhere):
    first, second = somewhere
    sandbox = sdk.create(network={"deny_out": [first]})
    assert not reaches(sandbox, first)
    assert reaches(sandbox, second)


def test_an_allowed_address_is_open_although_all_are_denied(sdk, somewhere):
    first, second = somewhere
    sandbox = sdk.create(network={"deny_out": ["0.0.0.0/0"], "allow_out": [first]})
    assert reaches(sandbox, first)
    assert not reaches(sandbox, second)


def test_rules_change_while_it_runs_and_what_is_left_out_is_cleared(sdk, somewhere):
    first, second = somewhere
    sandbox = sdk.create()
    assert reaches(sandbox, first)
    sandbox.update_network({"deny_out": [f"{first}/32"]})
    assert not reaches(sandbox, first)
    assert reaches(sandbox, second)
    sandbox.update_network({})
    assert reaches(sandbox, first)


def test_rules_hold_across_pause_and_restart(own_server, somewhere):
    first, second = somewhere
    server = own_server().start()
    sdk = Sdk("sync", server.sdk, None)
    sandbox = sdk.create(network={"deny_out": [first]})
    sandbox.pause()
    server.kill9()
    server.start()
    again = sdk.connect(sandbox.sandbox_id, timeout=60)
    assert not reaches(again, first)
    assert reaches(again, second)
    again.kill()


def test_private_ranges_stay_closed_whatever_is_allowed(sdk):
    sandbox = sdk.create(network={"allow_out": ["10.0.0.0/8", "169.254.169.254", "172.16.0.0/12"]})
    for address in ("10.0.0.1", "169.254.169.254", "172.16.0.1"):
        assert not reaches(sandbox, address)


@pytest.mark.parametrize(
    "network",
    [{"deny_out": ["example.com"]}, {"deny_out": ["1.2.3.4/99"]}, {"allow_out": ["example.com"]}, {"deny_out": ["x y"]}],
    ids=str,
)
def test_rules_that_cannot_be_are_refused(sdk, network):
    with pytest.raises(SandboxException, match="400"):
        sdk.create(network=network)


def test_a_sandbox_that_is_not_public_asks_for_its_token(server, sdk):
    sandbox = sdk.create(network={"allow_public_traffic": False})
    serve_http(sandbox)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    token = sandbox.traffic_access_token
    assert token
    with httpx.Client(base_url=server.url, headers=headers, timeout=20) as http:
        assert http.get("/").status_code == 403
        assert http.get("/", headers={"e2b-traffic-access-token": "wrong"}).status_code == 403
        assert http.get("/x", headers={"e2b-traffic-access-token": token}).text == "GET /x"
    # envd has its own token.
    assert sandbox.commands.run("echo fine").stdout == "fine\n"


def test_a_public_sandbox_has_no_traffic_token(sandbox):
    assert not sandbox.traffic_access_token


def test_the_host_that_a_server_inside_sees_can_be_masked(server, sdk):
    sandbox = sdk.create(network={"mask_request_host": "custom.example.com:${PORT}"})
    serve_http(sandbox)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    seen = eventually(lambda: httpx.get(f"{server.url}/headers", headers=headers, timeout=20).text.lower())
    assert "\nhost: custom.example.com:8000" in f"\n{seen}"
    assert "x-forwarded-host: 127.0.0.1" in seen
