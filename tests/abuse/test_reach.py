"""The host, other sandboxes and envd itself, as seen from inside."""

import http.server
import threading

import pytest

pytestmark = pytest.mark.timeout(120)

REACH = """
import concurrent.futures, itertools
targets = {targets!r}
def knock(target):
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect(target)
        return target
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    futures = {{target: pool.submit(knock, tuple(target)) for target in map(tuple, targets)}}
    for target, future in futures.items():
        try:
            future.result()
            print(target, "DONE")
        except OSError as error:
            print(target, "refused", error)
"""


def test_the_hosts_ports_are_closed_to_it(attacker, refused, server):
    hits = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            hits.append(self.client_address)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        gateway = attacker.run("ip route show default").stdout.split()[2]
        network = gateway.rsplit(".", 1)[0]
        addresses = {gateway, "127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", f"{network}.1", f"{network}.255"}
        ports = (listening.server_address[1], server.http_port, server.https_port, server.admin_port, 22)
        refused(attacker.python(REACH.format(targets=[(a, p) for a in addresses for p in ports])))
        assert hits == []
    finally:
        listening.shutdown()
        listening.server_close()


def test_the_neighbour_is_out_of_reach(attacker, refused, neighbour):
    address = neighbour.sandbox.commands.run("hostname -I").stdout.split()[0]
    refused(attacker.python(REACH.format(targets=[(address, 49983), (address, 22), (address, 80)])))


def test_addresses_cannot_be_taken_over(attacker):
    before = attacker.run("ip -o addr").stdout
    attacker.run(
        "ip addr add 10.99.99.99/8 dev eth0; ip link set eth0 down; ip route add 0.0.0.0/1 dev lo;"
        " ip link add x type veth; ip neigh flush all; sysctl -w net.ipv4.ip_forward=1"
    )
    after = attacker.run("ip -o addr").stdout
    strip = lambda text: [line for line in text.splitlines() if "valid_lft" not in line]
    assert strip(after) == strip(before)


@pytest.mark.parametrize("route", ["init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "upgrade"])
def test_envds_control_routes_are_closed_from_inside(attacker, route):
    code = attacker.run(
        f"curl -s -m 5 -o /dev/null -w '%{{http_code}}' -X POST -H 'Content-Type: application/json'"
        f" -d '{{\"accessToken\": null, \"envVars\": {{\"OWNED\": \"1\"}}}}' http://127.0.0.1:49983/{route}"
    ).stdout
    assert code in ("401", "403", "404", "405"), code
    assert attacker.run("echo [$OWNED]").stdout == "[]\n"


def test_envd_asks_for_its_token_from_inside_too(attacker):
    code = attacker.run(
        "curl -s -m 5 -o /dev/null -w '%{http_code}' 'http://127.0.0.1:49983/files?path=/etc/passwd'"
    ).stdout
    assert code == "401"


def test_the_token_is_nowhere_to_be_found_inside(attacker, server):
    token = server.api().get(f"/sandboxes/{attacker.sandbox.sandbox_id}").json()["envdAccessToken"]
    found = attacker.run(
        "sudo cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n';"
        " sudo grep -rIs -m1 -l e2b_ /etc /run /home /root /tmp /var 2>/dev/null; env",
        timeout=60,
    ).stdout
    assert token not in found
    assert server.key not in found
