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
    socket.create_connection((sys.argv[1], 80), 4).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


@pytest.fixture
def somewhere(sync_sdk):
    """An address outside that answers; skipped where there is none."""
    box = sync_sdk.create(timeout=60)
    # The machine's own package source is a name that it surely reaches, if it reaches any.
    entries = "/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources"
    source = f"grep -hE '^(URIs|deb )' {entries} 2>/dev/null | grep -om1 '://[^/ ]*' | cut -c4-"
    found = box.commands.run(f"getent ahostsv4 $({source}) || true").stdout.split()
    if not found or not reaches(box, found[0]):
        pytest.skip("this machine reaches nothing outside to try rules on")
    return found[0]


ELSEWHERE = "192.0.2.0/24"


def reaches(sandbox, address):
    sandbox.files.write("/tmp/connect.py", CONNECT)
    return sandbox.commands.run(f"python3 /tmp/connect.py {address}", timeout=20).stdout.startswith("open")


def test_a_denied_address_is_closed_and_others_are_open(sdk, somewhere):
    assert not reaches(sdk.create(network={"deny_out": [somewhere]}), somewhere)
    assert reaches(sdk.create(network={"deny_out": [ELSEWHERE]}), somewhere)


def test_an_allowed_address_is_open_although_all_are_denied(sdk, somewhere):
    everything = ["0.0.0.0/0"]
    assert reaches(sdk.create(network={"deny_out": everything, "allow_out": [somewhere]}), somewhere)
    assert not reaches(sdk.create(network={"deny_out": everything, "allow_out": [ELSEWHERE]}), somewhere)


def test_rules_change_while_it_runs_and_what_is_left_out_is_cleared(sdk, somewhere):
    sandbox = sdk.create()
    assert reaches(sandbox, somewhere)
    sandbox.update_network({"deny_out": [f"{somewhere}/32"]})
    assert not reaches(sandbox, somewhere)
    sandbox.update_network({"deny_out": [ELSEWHERE]})
    assert reaches(sandbox, somewhere)
    sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
    assert not reaches(sandbox, somewhere)
    sandbox.update_network({})
    assert reaches(sandbox, somewhere)


def test_rules_hold_across_pause_and_restart(own_server, somewhere):
    server = own_server().start()
    sdk = Sdk("sync", server.sdk, None)
    closed = sdk.create(network={"deny_out": [somewhere]})
    open_ = sdk.create(network={"deny_out": [ELSEWHERE]})
    closed.pause()
    server.kill9()
    server.start()
    assert not reaches(sdk.connect(closed.sandbox_id, timeout=60), somewhere)
    assert reaches(open_, somewhere)
    assert closed.kill() and open_.kill()


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
