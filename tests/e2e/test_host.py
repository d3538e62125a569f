"""get_host: services inside, reached by name over HTTPS."""

import asyncio
import socket
import ssl
import subprocess

import httpx
import pytest
import websockets

from support.guest import serve_http
from support.server import binary, clean_environment, free_ports
from support.waiting import eventually


@pytest.fixture
def web(server):
    context = ssl.create_default_context(cafile=server.env_tls["SSL_CERT_FILE"])
    with httpx.Client(verify=context, timeout=30, http2=True) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def sandbox(request, server, loop):
    """Through names and TLS, as with a real domain."""
    from support.sdk import Sdk

    sdk = Sdk(request.param, server.sdk_tls, loop)
    yield sdk.create(timeout=120)
    sdk.finish()


@pytest.fixture
def box(tls_sdk):
    return tls_sdk.create(timeout=120)


def test_everything_works_over_tls_too(sandbox):
    assert sandbox.commands.run("echo tls").stdout == "tls\n"
    sandbox.files.write("f", "x" * 100_000)
    assert len(sandbox.files.read("f")) == 100_000
    assert sandbox.is_running()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_server_inside_is_reached_by_its_host_name(server, sandbox, web, address):
    serve_http(sandbox, address)
    host = sandbox.get_host(8000)
    assert host == f"8000-{sandbox.sandbox_id}.{server.tls_domain}"
    answer = web.get(f"https://{host}/some/path?q=1")
    assert (answer.status_code, answer.text) == (200, "GET /some/path?q=1")
    assert answer.http_version == "HTTP/2"


def test_a_server_bound_to_ipv6_loopback_is_reached_or_refused_clearly(box, web):
    box.commands.run("python3 -m http.server 8001 --bind ::1 >/dev/null 2>&1", background=True, timeout=0)
    eventually(lambda: box.commands.run("curl -s -o /dev/null '[::1]:8001' && echo up || true").stdout)
    assert web.get(f"https://{box.get_host(8001)}/").status_code == 200


def test_http_1_0_servers_work(box, web):
    box.commands.run("python3 -m http.server 8002 >/dev/null 2>&1", background=True, timeout=0, cwd="/usr")
    eventually(lambda: box.commands.run("curl -s -o /dev/null 127.0.0.1:8002 && echo up || true").stdout)
    assert "share" in web.get(f"https://{box.get_host(8002)}/").text


def test_the_service_sees_the_name_that_the_client_asked_for(box, web):
    serve_http(box)
    seen = web.get(f"https://{box.get_host(8000)}/headers").text.lower()
    assert f"host: {box.get_host(8000)}" in seen


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
def test_any_method_passes(box, web, method):
    serve_http(box)
    assert web.request(method, f"https://{box.get_host(8000)}/x").text == f"{method} /x"


def test_large_bodies_pass_whole_in_both_framings(box, web):
    import hashlib

    serve_http(box)
    body = bytes(range(256)) * 40_000
    want = hashlib.sha256(body).hexdigest()
    url = f"https://{box.get_host(8000)}/post"
    assert web.post(url, content=body).text == want
    assert web.post(url, content=(body[i : i + 65536] for i in range(0, len(body), 65536))).text == want


def test_events_arrive_one_by_one(box, web):
    serve_http(box)
    host = box.get_host(8000)
    with web.stream("GET", f"https://{host}/events") as stream:
        lines = stream.iter_lines()
        for number in range(3):
            assert next(line for line in lines if line) == f"data: {number}"
            assert web.put(f"https://{host}/seen/{number}").text == "noted"


def test_websockets_carry_messages_both_ways(server, box):
    serve_http(box)
    context = ssl.create_default_context(cafile=server.env_tls["SSL_CERT_FILE"])

    async def talk():
        uri = f"wss://{box.get_host(8000)}/ws"
        async with websockets.connect(uri, ssl=context, open_timeout=20, proxy=None) as socket:
            for message in ["hello", "x" * 20_000, b"\x00\x01"]:
                await asyncio.wait_for(socket.send(message), 10)
                assert await asyncio.wait_for(socket.recv(), 10) == message

    asyncio.run(talk())


def test_a_killed_sandbox_answers_not_found_at_once(box, web):
    serve_http(box)
    url = f"https://{box.get_host(8000)}/"
    assert web.get(url).status_code == 200
    box.kill()
    answer = web.get(url)
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": box.sandbox_id, "message": "The sandbox was not found", "code": 502,
    }  # fmt: skip


def test_a_page_in_one_sandbox_cannot_steer_to_another_by_header(tls_sdk, web):
    first, second = tls_sdk.create(), tls_sdk.create()
    serve_http(first)
    headers = {"E2b-Sandbox-Id": second.sandbox_id, "E2b-Sandbox-Port": "49983"}
    assert web.get(f"https://{first.get_host(8000)}/mine", headers=headers).text == "GET /mine"


def test_answers_carry_the_domain_that_was_asked_for(server, web):
    headers = {"X-API-Key": server.key}
    made = web.post(
        f"https://api.{server.tls_domain}/v2/sandboxes", json={"templateID": "base"}, headers=headers
    ).json()
    try:
        assert made["domain"] == server.tls_domain
    finally:
        web.delete(f"https://api.{server.tls_domain}/sandboxes/{made['sandboxID']}", headers=headers)


def test_the_certificate_is_a_leaf_under_the_local_ca(server):
    context = ssl.create_default_context(cafile=server.env_tls["SSL_CERT_FILE"])
    with socket.create_connection(("127.0.0.1", server.https_port), 10) as raw:
        with context.wrap_socket(raw, server_hostname=f"1-x.{server.domain}") as tls:
            names = {name for _, name in tls.getpeercert()["subjectAltName"]}
    assert {server.domain, f"*.{server.domain}"} <= names


def test_soulbox_dns_answers_the_wildcard_on_loopback(server):
    (port,) = free_ports(1)
    dns = subprocess.Popen(
        [str(binary()), "dns", "--listen", f"127.0.0.1:{port}", "--domain", server.domain],
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(
            bytes([len(label)]) + label for label in b"8000-iabc.sbx.localhost".split(b".")
        ) + b"\x00\x00\x01\x00\x01"  # fmt: skip

        def answered():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.settimeout(1)
                udp.sendto(query, ("127.0.0.1", port))
                try:
                    return udp.recv(512)
                except OSError:
                    assert dns.poll() is None, dns.stderr.read().decode()
                    return b""

        answer = eventually(answered)
        assert answer[:2] == b"\x12\x34" and answer.endswith(bytes([127, 0, 0, 1]))
    finally:
        dns.terminate()
        dns.wait(10)
