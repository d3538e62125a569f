"""Other people's firewalls: the server says once what helps, and following it to the letter helps.

The internet is a namespace on the machine, with addresses of 203.0.113.0/24: of the ranges for
documentation the one that sandboxes may reach.
"""

import json
import re

import pytest

from machines.serving import Serving

ADDRESS, GATEWAY, NAME = "203.0.113.10", "203.0.113.1", "somewhere.example"

INTERNET = f"""
ip netns add internet
ip link add uplink type veth peer name eth0 netns internet
ip addr add {GATEWAY}/24 dev uplink
ip link set uplink up
ip -n internet addr add {ADDRESS}/24 dev eth0
ip -n internet link set lo up
ip -n internet link set eth0 up
cp /etc/resolv.conf /run/resolv.conf.before
echo nameserver {ADDRESS} > /etc/resolv.conf
systemd-run -q --unit=internet ip netns exec internet python3 /opt/checks/guest/internet.py {ADDRESS}
for _ in $(seq 120); do curl -s -m 5 -o /dev/null http://{ADDRESS}/ && exit 0; sleep 0.5; done; exit 1
"""
NO_INTERNET = """
systemctl stop internet
ip link delete uplink; ip netns delete internet
cp /run/resolv.conf.before /etc/resolv.conf
"""

# The example that comes with nftables, made strict.
DROPPING = """
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        tcp dport 22 accept
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
    }
}
"""


@pytest.fixture(scope="module")
def internet(machine):
    machine.run(INTERNET)
    yield
    machine.run(NO_INTERNET)


@pytest.fixture
def nftables(machine):
    machine.write("/run/strict.nft", DROPPING)
    machine.run("nft -f /run/strict.nft")
    yield ["inet filter forward", "inet filter input"]
    machine.run("nft delete table inet filter")


@pytest.fixture
def docker(machine):
    # As after a boot: it drops what is forwarded only where it is the one who switches forwarding on.
    machine.run("sysctl -qw net.ipv4.ip_forward=0 && systemctl start docker")
    assert "-P FORWARD DROP" in machine.run("iptables -S FORWARD")
    yield ["ip filter FORWARD"]
    machine.run("systemctl stop docker.service docker.socket containerd")
    machine.run("iptables -P FORWARD ACCEPT; iptables -F; iptables -t nat -F")


def reached(client) -> dict:
    return json.loads(client.run("reach", ADDRESS, NAME))


def commands_in(log: str) -> list[str]:
    return [each for each in re.findall(r"`([^`]+)`", log) if each.split()[0] in ("nft", "iptables", "iptables-nft")]


def test_without_a_firewall_a_sandbox_reaches_addresses_and_names(internet, machine, client):
    serving = Serving(machine)
    serving.start()
    assert reached(client) == {"address": True, "name": True}
    assert commands_in(serving.log()) == [], "advice that nobody needs"
    serving.stop()


@pytest.mark.parametrize("firewall", ["nftables", "docker"])
def test_the_advice_is_given_once_and_helps_to_the_letter(internet, machine, client, firewall, request):
    chains = request.getfixturevalue(firewall)
    serving = Serving(machine)
    serving.start()
    try:
        assert not reached(client)["address"], "the firewall is not in the way: the check would show nothing"
        log = serving.log()
        for chain in chains:
            assert log.count(f"`{chain}`") == 1, log
        advice = commands_in(log)
        assert advice, log
        for command in advice:
            machine.run(command)
        assert reached(client) == {"address": True, "name": True}, advice
        serving.stop()
        serving.start()
        assert commands_in(serving.log()) == [], "it was followed"
    finally:
        if serving.is_running():
            serving.stop()
