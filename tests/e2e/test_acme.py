"""Certificates from a real ACME server, on the loopback."""

import json
import os
import socket
import ssl
import stat

import httpx
import pytest

from support.acme import pebble
from support.server import free_ports
from support.waiting import eventually

DOMAIN = "sbx.soulbox-test.example"


@pytest.fixture(scope="module")
def authority(scratch):
    with pebble(scratch / "pebble") as authority:
        yield authority


def dns01(authority, hook=None, **more):
    words = ["--acme-challenge", "dns-01", "--acme-dns-hook", str(hook or authority.hook())]
    return {"domain": DOMAIN, "extra": [*words, *common(authority)], **more}


def http01(authority):
    # Pebble asks on a port of its own instead of 80.
    words = ["--acme-challenge", "http-01", "--acme-http", f"127.0.0.1:{authority.http}"]
    return {"domain": DOMAIN, "extra": [*words, *common(authority)]}


def common(authority):
    return [
        "--acme-directory", authority.directory,
        "--acme-ca", str(authority.ca),
        "--acme-email", "operator@soulbox-test.example",
    ]  # fmt: skip


def presented(server, name):
    """The certificate that a client gets that asks for this name, and checks nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", server.https_port), timeout=10) as raw:
        with context.wrap_socket(raw, server_hostname=name) as connection:
            return connection.getpeercert(binary_form=True)


def is_trusted(server, name, root: str) -> bool:
    """Whether one who trusts this authority, and no other, gets an answer under this name."""
    context = ssl.create_default_context(cadata=root)
    try:
        with socket.create_connection(("127.0.0.1", server.https_port), timeout=10) as raw:
            with context.wrap_socket(raw, server_hostname=name) as connection:
                connection.sendall(f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                return b" 20" in connection.recv(100)
    except ssl.SSLCertVerificationError:
        return False


def metric(server, name: str) -> float | None:
    for line in httpx.get(f"{server.admin_url}/metrics").text.splitlines():
        if line.startswith(f"soulbox_{name} "):
            return float(line.split()[-1])
    return None


def test_dns_01_gives_a_wildcard_which_sandboxes_use(own_server, authority):
    server = own_server(**dns01(authority, authority.hook("dns-hook"))).start()
    root = authority.root()
    eventually(lambda: is_trusted(server, f"api.{DOMAIN}", root), within=60, what="the certificate is in use")
    for name in [DOMAIN, f"8000-iabc.{DOMAIN}"]:
        certificate = presented(server, name)
        assert certificate == presented(server, f"api.{DOMAIN}")
    # The record of each of the two names was made and taken away again.
    calls = (authority.folder / "dns-hook.log").read_text().split("\n")
    actions = [call.split()[:2] for call in calls if call]
    assert sorted(actions) == sorted([["present", f"_acme-challenge.{DOMAIN}"], ["cleanup", f"_acme-challenge.{DOMAIN}"]] * 2)
    # By address, which no ACME server certifies, it is the local CA's still.
    assert is_trusted(server, "localhost", (server.data / "tls/ca.pem").read_text())
    assert metric(server, "acme_certificates_total") == 1
    assert "certificate=\"acme\"" in httpx.get(f"{server.admin_url}/metrics").text
    for name in ["account.json", "certificate.pem"]:
        assert stat.S_IMODE(os.stat(server.data / "acme" / name).st_mode) == 0o600
    names = json.loads((server.data / "tls/names.json").read_text())
    assert names["local_ca"] is False

    # The next start has it at once, and asks nobody.
    before = presented(server, DOMAIN)
    server.terminate()
    server.start()
    assert presented(server, DOMAIN) == before
    assert metric(server, "acme_certificates_total") == 0


def test_http_01_gives_the_two_names_that_it_can(own_server, authority):
    server = own_server(**http01(authority)).start()
    root = authority.root()
    local = (server.data / "tls/ca.pem").read_text()
    for name in [f"api.{DOMAIN}", f"sandbox.{DOMAIN}"]:
        eventually(lambda: is_trusted(server, name, root), within=60, what=f"the certificate of {name}")
    # No wildcard: what get_host returns is certified by the local CA.
    assert not is_trusted(server, f"8000-iabc.{DOMAIN}", root)
    context = ssl.create_default_context(cadata=local)
    with socket.create_connection(("127.0.0.1", server.https_port)) as raw:
        context.wrap_socket(raw, server_hostname=f"8000-iabc.{DOMAIN}").close()
    env = server.env_tls
    assert env["E2B_API_URL"] == f"https://api.{server.tls_domain}"
    assert env["E2B_SANDBOX_URL"] == f"https://sandbox.{server.tls_domain}"
    # Everybody else who comes to that port is sent to HTTPS.
    answer = httpx.get(f"http://127.0.0.1:{authority.http}/x", headers={"Host": f"api.{DOMAIN}"})
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://api.{server.tls_domain}/x")


def test_it_is_renewed_after_two_thirds_and_no_connection_is_dropped(own_server, scratch):
    with pebble(scratch / "pebble-short", lifetime=30) as authority:
        server = own_server(**dns01(authority)).start()
        root = authority.root()
        eventually(lambda: is_trusted(server, f"api.{DOMAIN}", root), within=60, what="the first certificate")
        first = presented(server, DOMAIN)
        context = ssl.create_default_context(cadata=root)
        with socket.create_connection(("127.0.0.1", server.https_port)) as raw:
            with context.wrap_socket(raw, server_hostname=f"api.{DOMAIN}") as open_since:
                eventually(lambda: presented(server, DOMAIN) != first, within=60, what="a second certificate")
                assert is_trusted(server, f"api.{DOMAIN}", root)
                open_since.sendall(f"GET /health HTTP/1.1\r\nHost: api.{DOMAIN}\r\n\r\n".encode())
                assert b" 20" in open_since.recv(100)
        assert metric(server, "acme_certificates_total") >= 2


def test_a_failing_hook_is_told_and_the_local_ca_serves(own_server, authority):
    hook = authority.hook("failing-hook", failing=True)
    server = own_server(**dns01(authority, hook)).start()
    eventually(lambda: metric(server, "acme_failures_total"), within=30, what="the failure is counted")
    told = server.log.read_text()
    assert "no certificate from the ACME server" in told and "no such zone" in told, told
    assert is_trusted(server, f"api.{DOMAIN}", (server.data / "tls/ca.pem").read_text())
    # It was asked to take back what it may have done.
    assert [line.split()[0] for line in (authority.folder / "failing-hook.log").read_text().splitlines()] == ["present", "cleanup"]


def test_a_server_that_is_not_there_prevents_no_start_and_takes_no_certificate_away(own_server, authority):
    server = own_server(**dns01(authority)).start()
    root = authority.root()
    eventually(lambda: is_trusted(server, f"api.{DOMAIN}", root), within=60, what="the certificate is in use")
    server.terminate()
    (closed,) = free_ports(1)
    at = server.extra.index("--acme-directory") + 1
    server.extra[at] = f"https://127.0.0.1:{closed}/dir"
    server.start()
    assert is_trusted(server, f"api.{DOMAIN}", root)
    other = own_server(name="other", **dns01(authority))
    other.extra[at] = server.extra[at]
    other.start()
    eventually(lambda: metric(other, "acme_failures_total"), within=30, what="the failure is counted")
    assert is_trusted(other, f"api.{DOMAIN}", (other.data / "tls/ca.pem").read_text())


def test_what_http_01_cannot_do_is_refused_before_the_start(own_server, authority):
    server = own_server(extra=["--acme-challenge", "http-01"])
    server.spawn()
    assert server.process.wait(30) == 1
    assert "nobody issues certificates for sbx.localhost" in server.log_tail()
