"""`soulbox trust`, as a new user on a machine that nobody has set up: names and certificates by one command,
and the machine as it was by another."""

import shutil
import subprocess
import sys

import pytest

from support.fresh_machine import fresh_machine
from support.server import Server, binary
from support.waiting import eventually

# Whatever another test installs meanwhile would be taken for ours.
pytestmark = pytest.mark.alone

RESOLV_CONF = "search lan\nnameserver 192.0.2.53\noptions timeout:1 attempts:1\n"

# The unmodified SDK with nothing but the domain: no address of a server.
OPEN_FROM_PYTHON = """
import sys, time, urllib.request, httpx
from e2b import Sandbox

sandbox = Sandbox.create(timeout=120)
print(sandbox.commands.run("echo by name").stdout, end="")
sandbox.commands.run("mkdir -p w && echo hello > w/index.html")
sandbox.commands.run("cd w && python3 -m http.server 8000 --bind 127.0.0.1 > /dev/null 2>&1", background=True, timeout=0)
url = f"https://{sandbox.get_host(8000)}/"
end = time.monotonic() + 20
while True:
    try:
        print(urllib.request.urlopen(url, timeout=10).read().decode(), end="")
        break
    except urllib.error.HTTPError:  # it does not listen yet
        if time.monotonic() > end:
            raise
        time.sleep(0.1)
print(httpx.get(url).text, end="")
print(url)
"""


@pytest.fixture
def machine(scratch, request):
    with fresh_machine(scratch / f"fresh-{request.node.name[:40]}") as machine:
        machine.write("/etc/resolv.conf", RESOLV_CONF)
        # What an administrator installed by hand becomes what this makes of it, with or without us.
        machine.run("update-ca-certificates", check=True)
        yield machine


@pytest.fixture
def here(scratch, machine, request):
    """A server on that machine."""
    server = Server(scratch / f"trust-{request.node.name[:40]}", starter=machine.enter)
    start(server, machine)
    yield server
    if server.process.poll() is None:
        machine.run(str(binary()), "kill", "--all", "--data-dir", str(server.data))
        server.terminate()


def start(server, machine):
    server.spawn()

    def ready():
        assert server.process.poll() is None, server.log_tail()
        return machine.run("curl", "-sf", f"{server.url}/health").returncode == 0

    eventually(ready, within=60, what="the server answers")


def trust(machine, server, *words):
    return machine.run(str(binary()), "trust", "--data-dir", str(server.data), *words, timeout=180)


def by_name(server) -> dict[str, str]:
    """What `. env.tls` gives, without the addresses that the SDKs are about to drop."""
    return {name: value for name, value in server.env_tls.items() if not name.endswith("_URL")}


def test_after_one_command_python_node_and_curl_open_what_get_host_returns(machine, here):
    before = machine.everything()
    probe = f"8000-x.{here.domain}"
    assert machine.run(sys.executable, "-c", f"import socket; socket.gethostbyname('{probe}')").returncode != 0

    done = trust(machine, here, "-y")
    assert done.returncode == 0, done.stderr
    assert "update-ca-certificates" in done.stdout and "nameserver 127.0.83.66" in done.stdout

    env = by_name(here)
    python = machine.run(sys.executable, "-c", OPEN_FROM_PYTHON, env=env, timeout=120)
    assert python.returncode == 0, python.stderr
    *texts, url = python.stdout.splitlines()
    assert texts == ["by name", "hello", "hello"]

    # curl and Python's own library read the system's store: they need no variable at all.
    curl = machine.run("curl", "-sS", url)
    assert (curl.stdout, curl.returncode) == ("hello\n", 0), curl.stderr
    system = machine.run("/usr/bin/python3", "-c", f"import urllib.request as u; print(u.urlopen('{url}').read())")
    assert system.stdout == "b'hello\\n'\n", system.stderr
    if shutil.which("node"):
        script = f"fetch({url!r}).then(r => r.text()).then(t => process.stdout.write(t))"
        node = machine.run("node", "-e", script, env=env)
        assert node.stdout == "hello\n", node.stderr
    else:
        print("skipped: no node here")

    again = trust(machine, here, "-y")
    assert again.returncode == 0 and "already" in again.stderr
    undone = trust(machine, here, "--remove", "-y")
    assert undone.returncode == 0, undone.stderr
    assert changed(before, machine.everything()) == {}
    refused = machine.run("curl", "-sS", url)
    assert "certificate" in refused.stderr


# Java's own store, which ca-certificates-java keeps: it has the time of every change in it.
OF_JAVA = "/etc/ssl/certs/java/cacerts"


def changed(before, after):
    paths = (before.keys() | after.keys()) - {OF_JAVA}
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def test_a_dry_run_shows_everything_and_changes_nothing(machine, here):
    before = machine.everything()
    shown = trust(machine, here, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    fingerprint = subprocess.run(
        ["openssl", "x509", "-in", here.data / "tls/ca.pem", "-noout", "-fingerprint", "-sha256"],
        capture_output=True, text=True, check=True,
    ).stdout.strip().split("=")[1]  # fmt: skip
    assert fingerprint in shown.stdout
    for part in ["/usr/local/share/ca-certificates/soulbox-sbx.localhost.crt", "/etc/resolv.conf"]:
        assert part in shown.stdout
    assert changed(before, machine.everything()) == {}


def test_nobody_to_ask_is_no_consent(machine, here):
    before = machine.everything()
    asked = trust(machine, here)
    assert asked.returncode == 1 and "--yes" in asked.stderr
    assert changed(before, machine.everything()) == {}


def test_a_resolver_is_never_pointed_to_a_server_that_does_not_answer(machine, here):
    assert here.terminate() == 0
    before = machine.everything()
    refused = trust(machine, here, "-y")
    assert refused.returncode == 1 and "does not answer" in refused.stderr, refused.stderr
    assert changed(before, machine.everything()) == {}


def test_other_names_are_found_as_before(machine, here):
    """Ours refuses them, and the next server is asked: here one that knows a name of its own."""
    other = subprocess.Popen(
        [*machine.enter, str(binary()), "dns", "--listen", "127.0.0.99:53", "--domain", "corp.test", "--answer", "192.0.2.80"],
        env=machine.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout.readline().startswith("Answering")
        machine.write("/etc/resolv.conf", "nameserver 127.0.0.99\n")
        assert trust(machine, here, "-y").returncode == 0
        lookup = "import socket, sys; print(*(socket.gethostbyname(name) for name in sys.argv[1:]))"
        found = machine.run(sys.executable, "-c", lookup, "www.corp.test", "1-x.sbx.localhost")
        assert found.stdout == "192.0.2.80 127.0.0.1\n", found.stderr
        # Also while ours is away.
        assert here.terminate() == 0
        found = machine.run(sys.executable, "-c", lookup, "www.corp.test")
        assert found.stdout == "192.0.2.80\n", found.stderr
    finally:
        other.terminate()
        other.wait(10)
        other.stdout.close()


def test_what_a_dhcp_client_wrote_since_is_kept(machine, here):
    assert trust(machine, here, "-y").returncode == 0
    machine.write("/etc/resolv.conf", "nameserver 192.0.2.99\n")
    undone = trust(machine, here, "--remove", "-y")
    assert undone.returncode == 0 and "/etc/resolv.conf was changed by others" in undone.stderr
    assert machine.read("/etc/resolv.conf") == "nameserver 192.0.2.99\n"


INIT = """#!/bin/sh
# What Debian's does, for this test's own dnsmasq.
[ -s /etc/dnsmasq.pid ] && kill "$(cat /etc/dnsmasq.pid)" && while kill -0 "$(cat /etc/dnsmasq.pid)" 2>/dev/null; do sleep 0.05; done
[ "$1" = stop ] || exec dnsmasq --conf-file=/etc/dnsmasq.conf --conf-dir=/etc/dnsmasq.d --pid-file=/etc/dnsmasq.pid --user=root
"""


def test_dnsmasq_learns_the_wildcard_and_forgets_it(machine, here):
    if not shutil.which("dnsmasq", path="/usr/sbin:/usr/bin") or not shutil.which("service", path="/usr/sbin:/usr/bin"):
        pytest.skip("skipped: dnsmasq (package dnsmasq-base) or service is not here")
    machine.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    machine.write("/etc/dnsmasq.conf", "no-resolv\nlisten-address=127.0.0.1\nbind-interfaces\n")
    machine.write("/etc/dnsmasq.d/README", "")
    machine.write("/etc/init.d/dnsmasq", INIT)
    machine.run("chmod", "755", "/etc/init.d/dnsmasq", check=True)
    try:
        machine.run("/etc/init.d/dnsmasq", "start", check=True)
        before = machine.everything()
        done = trust(machine, here, "-y", "--only", "names")
        assert done.returncode == 0, done.stderr
        assert "address=/sbx.localhost/127.0.0.1" in machine.read("/etc/dnsmasq.d/soulbox-sbx.localhost.conf")
        assert machine.run("getent", "ahostsv4", "8000-any.sbx.localhost").stdout.startswith("127.0.0.1 ")
        assert trust(machine, here, "--remove", "-y").returncode == 0
        assert set(changed(before, machine.everything())) <= {"/etc/dnsmasq.pid"}
        assert machine.run("getent", "ahostsv4", "8000-any.sbx.localhost").returncode != 0
    finally:
        machine.run("/etc/init.d/dnsmasq", "stop")


def test_a_domain_of_ones_own_works_the_same(machine, scratch):
    server = Server(scratch / "trust-own-domain", domain="boxes.test", starter=machine.enter)
    try:
        start(server, machine)
        done = trust(machine, server, "-y")
        assert done.returncode == 0, done.stderr
        api = machine.run("curl", "-sS", f"https://api.{server.tls_domain}/health")
        assert api.returncode == 0, api.stderr
    finally:
        if server.process.poll() is None:
            server.terminate()


def test_a_mac_gets_a_script(machine, here):
    script = trust(machine, here, "--for", "macos", "--dns", "192.0.2.7:53")
    assert script.returncode == 0, script.stderr
    assert (here.data / "tls/ca.pem").read_text().strip() in script.stdout
    assert "/etc/resolver/sbx.localhost" in script.stdout
    checked = subprocess.run(["sh", "-n"], input=script.stdout, text=True)
    assert checked.returncode == 0


def test_a_server_that_shall_answer_names_where_it_cannot_does_not_start(machine, scratch):
    server = Server(scratch / "trust-dns-taken", starter=machine.enter, extra=["--dns", "192.0.2.9:53"])
    server.spawn()
    assert server.process.wait(60) == 1
    assert "--dns" in server.log_tail()
