"""What a sandbox reaches and what it does not."""

import ipaddress
import json
import socket
import subprocess
import threading

import pytest
from e2b import CommandExitException

from support.reach import reaches
from support.waiting import eventually


def host_addresses():
    out = subprocess.run(["ip", "-j", "addr"], capture_output=True, text=True, check=True, timeout=10)
    found = [
        info["local"]
        for link in json.loads(out.stdout)
        for info in link["addr_info"]
        if not ipaddress.ip_address(info["local"]).is_link_local
    ]
    return found


@pytest.fixture
def listener():
    """A server of the host on every address."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        accepted = []

        def accept():
            while True:
                try:
                    accepted.append(listening.accept()[1])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], accepted


@pytest.fixture(scope="session")
def registries():
    probe = subprocess.run(
        "d=$(mktemp -d); python3 -m pip download --no-deps --no-cache-dir -q -d $d six==1.17.0; code=$?; rm -r $d; exit $code",
        shell=True, capture_output=True, timeout=90,
    )  # fmt: skip
    if probe.returncode != 0:
        pytest.skip("the host itself cannot reach the package registries")


def test_loopback_is_up_and_private(box):
    result = box.commands.run("cat /sys/class/net/lo/operstate; ip -o addr show lo | head -1")
    assert "127.0.0.1" in result.stdout


def test_a_sandbox_has_one_address_and_a_default_route(box):
    addresses = box.commands.run("ip -o -4 addr show scope global").stdout.splitlines()
    assert len(addresses) == 1
    assert box.commands.run("ip route show default").stdout.startswith("default via")


def test_the_hosts_addresses_are_unreachable(box, listener):
    port, accepted = listener
    for address in host_addresses() + ["127.0.0.1"]:
        assert not reaches(box, address, port), address
    gateway = box.commands.run("ip route show default").stdout.split()[2]
    assert not reaches(box, gateway, port), "gateway"
    assert accepted == []


def test_the_servers_own_ports_are_unreachable_from_inside(server, box):
    gateway = box.commands.run("ip route show default").stdout.split()[2]
    for address in host_addresses() + [gateway]:
        for port in (server.http_port, server.https_port, server.admin_port):
            assert not reaches(box, address, port), (address, port)


def test_neighbours_are_unreachable(sync_sdk):
    first, second = sync_sdk.create(), sync_sdk.create()
    first.commands.run("exec python3 -m http.server 8000 --bind 0.0.0.0", background=True, timeout=0)
    address = first.commands.run("hostname -I").stdout.split()[0]
    eventually(lambda: first.commands.run(f"curl -s -o /dev/null {address}:8000 && echo up || true").stdout)
    assert not reaches(second, address, 8000)
    with pytest.raises(CommandExitException):
        second.commands.run(f"ping -c1 -W2 {address}")


ECHO = """
import socket, struct
def echo(checksum):
    return struct.pack("!BBHHH", 8, 0, checksum, 0, 1) + bytes(16)
total = sum(struct.unpack("!12H", echo(0)))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as pinger:
    pinger.settimeout(10)
    pinger.sendto(echo(~(total % 0xFFFF) & 0xFFFF), ("127.0.0.1", 0))
    print(pinger.recv(64)[0])
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_ping_needs_no_capability(box, user):
    box.files.write("/tmp/echo.py", ECHO)
    assert box.commands.run("python3 /tmp/echo.py", user=user).stdout == "0\n", "an echo reply"


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00::1"])
def test_private_and_metadata_ranges_are_unreachable(box, address):
    assert not reaches(box, address, 80)


def test_names_are_resolved_by_the_nodes_forwarder(box):
    resolver = box.commands.run("cat /etc/resolv.conf").stdout
    assert "nameserver" in resolver
    own = box.commands.run("getent hosts $(hostname)").stdout
    assert own.strip()


def test_a_closed_sandbox_reaches_nothing_and_still_works(sdk):
    sandbox = sdk.create(allow_internet_access=False)
    assert sandbox.get_info().allow_internet_access is False
    assert not reaches(sandbox, "1.1.1.1", 443)
    assert sandbox.commands.run("curl -s -m 3 http://1.1.1.1 || echo closed").stdout == "closed\n"
    sandbox.files.write("f", "x")
    assert sandbox.files.read("f") == "x"


LOOKUP = """
import socket, time
started = time.monotonic()
try:
    print("found", socket.getaddrinfo("name.example", 80))
except socket.gaierror:
    print(time.monotonic() - started)
"""


def test_a_closed_sandbox_is_told_at_once_that_it_may_not_ask_for_names(sync_sdk):
    sandbox = sync_sdk.create(allow_internet_access=False)
    for _ in range(2):
        # The resolver library would wait for five seconds.
        assert float(sandbox.commands.run(f"python3 -c '{LOOKUP}'").stdout) < 2


def test_the_extra_certificates_of_the_host_are_offered(box):
    assert int(box.commands.run("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt").stdout) > 0


@pytest.mark.timeout(300)
@pytest.mark.registries
def test_pip_really_installs(registries, sync_sdk):
    box = sync_sdk.create(timeout=300)
    box.commands.run(
        "python3 -m venv v && v/bin/pip install -q six==1.17.0 && v/bin/python -c 'import six; print(six.__version__)'",
        timeout=200,
    )
    assert box.commands.run("v/bin/python -c 'import six; print(six.__version__)'").stdout == "1.17.0\n"


@pytest.mark.timeout(300)
@pytest.mark.registries
def test_npm_really_installs(registries, sync_sdk):
    box = sync_sdk.create(timeout=300)
    if not box.commands.run("command -v npm || true").stdout:
        pytest.skip("the host has no npm")
    box.commands.run("mkdir p && cd p && npm init -y >/dev/null && npm install --no-audit --no-fund is-odd@3.0.1", timeout=200)
    assert box.commands.run("cd p && node -e 'console.log(require(\"is-odd\")(3))'").stdout == "true\n"


@pytest.mark.timeout(300)
@pytest.mark.registries
def test_apt_really_installs(registries, sync_sdk):
    box = sync_sdk.create(timeout=300)
    if not box.commands.run("command -v apt-get || true").stdout:
        pytest.skip("the host is not a Debian")
    assert not box.commands.run("command -v cowsay || true").stdout
    box.commands.run(
        "sudo apt-get update -q && sudo DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends cowsay",
        timeout=250,
    )
    assert "moo" in box.commands.run("/usr/games/cowsay moo").stdout


@pytest.mark.registries
def test_a_closed_sandbox_cannot_install(registries, sync_sdk):
    box = sync_sdk.create(allow_internet_access=False)
    with pytest.raises(CommandExitException):
        box.commands.run("python3 -m venv v && v/bin/pip install --retries 0 --timeout 3 -q six==1.17.0", timeout=60)
