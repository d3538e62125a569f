"""Names of hosts in allow_out: what they open, what stays closed, and that nothing of it is forgotten."""

import json
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import pytest
from e2b import ALL_TRAFFIC, SandboxException

from support.outside import ADDRESSES, outside
from support.sdk import Sdk
from support.server import Server
from support.waiting import eventually

pytestmark = pytest.mark.timeout(180)

FIRST, SECOND = ADDRESSES
NAMES = ["one.example.test", "two.example.test", "deep.er.wild.test", "wild.test", "inner.test"]
HOSTS = {
    "one.example.test": FIRST,
    "two.example.test": SECOND,
    "deep.er.wild.test": FIRST,
    "wild.test": FIRST,
    "inner.test": "10.0.0.1",
    "metadata.test": "169.254.169.254",
}


@pytest.fixture(scope="module")
def internet(scratch):
    with outside(scratch / "outside", NAMES) as made:
        made.know(HOSTS)
        yield made


@pytest.fixture(scope="module")
def named_server(scratch, internet):
    """A server that asks the test's own name server."""
    server = Server(scratch / "by-name", starter=internet.starter)
    try:
        yield server.start()
    finally:
        server.finish()


@pytest.fixture
def named_sdk(named_server):
    sdk = Sdk("sync", named_server.sdk, None)
    yield sdk
    sdk.finish()


def only(*names: str) -> dict:
    return {"allow_out": list(names), "deny_out": [ALL_TRAFFIC]}


def create(sdk, internet, *names: str, **options):
    sandbox = sdk.create(timeout=300, network=only(*names), **options)
    sandbox.files.write("/home/user/ca.pem", internet.certificate)
    return sandbox


def curl(sandbox, url: str, *options: str) -> str:
    """What a server answered, or curl's exit code."""
    words = " ".join(f"'{option}'" for option in options)
    return sandbox.commands.run(f"curl -sS -m 20 --cacert ca.pem {words} '{url}' 2>&1 || echo exit $?", timeout=40).stdout


def test_a_listed_name_is_open_by_tls_and_http_and_others_are_not(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    assert curl(sandbox, "https://one.example.test/") == f"{FIRST} one.example.test"
    assert curl(sandbox, "http://one.example.test/") == f"{FIRST} one.example.test"
    # Not even its address is told.
    assert "exit 6" in curl(sandbox, "https://two.example.test/")
    # With an address from elsewhere it is still the name that counts.
    known = ("--resolve", f"two.example.test:443:{SECOND}", "--resolve", f"two.example.test:80:{SECOND}")
    assert "exit 35" in curl(sandbox, "https://two.example.test/", *known)
    refused = curl(sandbox, "http://two.example.test/", "-i", *known)
    assert refused.startswith("HTTP/1.1 403 Forbidden")
    assert refused.rstrip().endswith("this host is not in the sandbox's allowOut.")
    assert "two.example.test" not in internet.asked


def test_a_listed_name_leads_to_its_own_host_whatever_address_is_dialled(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    for elsewhere in (SECOND, "203.0.113.250"):
        lie = ("--connect-to", f"one.example.test:443:{elsewhere}:443")
        assert curl(sandbox, "https://one.example.test/", *lie) == f"{FIRST} one.example.test"


def test_an_address_without_a_name_is_closed_unless_it_is_listed(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test", SECOND)
    assert "exit 35" in curl(sandbox, f"https://{FIRST}/", "-k")
    assert curl(sandbox, f"http://{FIRST}/", "-i").startswith("HTTP/1.1 403")
    assert curl(sandbox, f"https://{SECOND}/", "-k") == f"{SECOND} {SECOND}"
    assert curl(sandbox, f"http://{SECOND}:8080/") == f"{SECOND} {SECOND}:8080"


def test_other_ports_of_a_listed_name_are_closed(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    assert "exit 7" in curl(sandbox, "http://one.example.test:8080/")


def test_a_wildcard_opens_all_names_below_and_not_the_name_itself(named_sdk, internet):
    sandbox = create(named_sdk, internet, "*.Wild.test")
    assert curl(sandbox, "https://deep.er.wild.test/") == f"{FIRST} deep.er.wild.test"
    assert "exit 35" in curl(sandbox, "https://wild.test/", "--resolve", f"wild.test:443:{FIRST}")
    everything = create(named_sdk, internet, "*")
    assert curl(everything, "https://two.example.test/") == f"{SECOND} two.example.test"
    assert "exit 35" in curl(everything, f"https://{SECOND}/", "-k")


def test_a_listed_name_does_not_open_private_networks(named_sdk, internet):
    sandbox = create(named_sdk, internet, "inner.test", "metadata.test")
    for name in ("inner.test", "metadata.test"):
        # The sandbox itself must not try the private address: what is dialled is anything.
        there = ("--connect-to", f"{name}:80:203.0.113.250:80")
        assert "addresses that no sandbox may reach" in curl(sandbox, f"http://{name}/", *there)


DNS = """
import socket, struct, sys
name, kind = sys.argv[1], int(sys.argv[2])
server = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")][0]
labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.settimeout(15)
    asking.sendto(query, (server, 53))
    answer = asking.recv(2048)
print(answer[3] & 15, struct.unpack("!H", answer[6:8])[0])
"""


def test_names_carry_no_data_out(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    sandbox.files.write("/home/user/dns.py", DNS)

    def ask(name, kind):
        return sandbox.commands.run(f"python3 dns.py {name} {kind}").stdout.strip()

    assert ask("one.example.test", 1) == "0 1"
    assert ask("one.example.test", 16) == "0 0", "TXT"
    assert ask("one.example.test", 65) == "0 0", "HTTPS, with keys of Encrypted Client Hello"
    assert ask("c2VjcmV0.one.example.test", 1) == "2 0"
    assert ask("c2VjcmV0.tunnel.test", 16) == "2 0"
    assert not [name for name in internet.asked if "c2vjcmv0" in name]


def test_names_change_while_it_runs_and_what_is_left_out_is_cleared(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    sandbox.update_network(only("two.example.test"))
    assert curl(sandbox, "https://two.example.test/") == f"{SECOND} two.example.test"
    assert "exit 6" in curl(sandbox, "https://one.example.test/")
    sandbox.update_network({})
    assert curl(sandbox, "https://one.example.test/") == f"{FIRST} one.example.test"
    assert curl(sandbox, "http://one.example.test:8080/") == f"{FIRST} one.example.test:8080"
    sandbox.update_network({"allow_internet_access": False})
    assert "exit 6" in curl(sandbox, "https://one.example.test/")


def test_pause_snapshot_and_fork_keep_the_names(named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    sandbox.pause()
    sandbox = named_sdk.connect(sandbox.sandbox_id, timeout=300)
    (fork,) = sandbox.fork(count=1, timeout=120)
    for each in (sandbox, fork):
        assert curl(each, "https://one.example.test/") == f"{FIRST} one.example.test"
        known = ("--resolve", f"two.example.test:443:{SECOND}")
        assert "exit 35" in curl(each, "https://two.example.test/", *known)
    info = sandbox.get_info()
    assert info.network["allow_out"] == ["one.example.test"]
    assert fork.kill()


def test_a_killed_server_opens_nothing_and_the_next_one_knows_the_names(own_server, internet):
    server = own_server(starter=internet.starter).start()
    sdk = Sdk("sync", server.sdk, None)
    sandbox = create(sdk, internet, "one.example.test")
    loop = (
        "while :; do "
        f"curl -sk -m 2 -o /dev/null --resolve two.example.test:443:{SECOND} https://two.example.test/ && echo leak >> leaks; "
        f"curl -sk -m 2 -o /dev/null https://{SECOND}/ && echo leak >> leaks; "
        f"curl -s -m 2 -o /dev/null http://{SECOND}:8080/ && echo leak >> leaks; echo round >> rounds; done"
    )
    sandbox.commands.run(loop, background=True, timeout=0)
    eventually(lambda: sandbox.files.exists("rounds"))
    assert elements(server) == 1
    server.kill9()
    server.start()
    eventually(lambda: curl(sandbox, "https://one.example.test/") == f"{FIRST} one.example.test")
    rounds = len(sandbox.files.read("rounds").splitlines())
    eventually(lambda: len(sandbox.files.read("rounds").splitlines()) > rounds + 2, within=30)
    assert not sandbox.files.exists("leaks")
    assert sandbox.kill()
    eventually(lambda: elements(server) == 0, what="the firewall has forgotten it")


def elements(server) -> int:
    """How many sandboxes the firewall sends to the listeners for names."""
    tag = json.loads((server.data / "instance.json").read_text())["tag"]
    command = ["nft", "-j", "list", "set", "inet", f"soulbox_{tag}", "by_domain"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)
    return len(listed["nftables"][1]["set"].get("elem", []))


def test_a_connection_ends_with_its_sandbox(named_server, named_sdk, internet):
    sandbox = create(named_sdk, internet, "one.example.test")
    hold = (
        "import socket, time; s = socket.create_connection(('one.example.test', 80)); "
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: one.example.test\\r\\n\\r\\n'); s.recv(9); print('open', flush=True); time.sleep(600)"
    )
    handle = sandbox.commands.run(f'python3 -c "{hold}"', background=True, timeout=0)
    assert "open" in next(iter(handle))[0]
    assert by_name(named_server, "open") == 1
    sandbox.kill()
    eventually(lambda: by_name(named_server, "open") == 0)


def by_name(server, what: str) -> int:
    text = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    (value,) = [line.split()[1] for line in text.splitlines() if line.startswith(f"soulbox_by_name_{what}")]
    return int(float(value))


def test_names_need_everything_else_denied_in_the_words_that_clients_know(sdk):
    words = (
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."
    )
    with pytest.raises(SandboxException) as refused:
        sdk.create(network={"allow_out": ["example.com"]})
    assert words in str(refused.value)
    sandbox = sdk.create()
    with pytest.raises(SandboxException) as refused:
        sandbox.update_network({"allow_out": ["*.example.com"], "deny_out": ["1.1.1.1"]})
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["exa mple.com", "*.*.com", "example.com:443", "https://example.com", "1.1.1.1.1"])
def test_what_is_no_name_is_refused(sync_sdk, name):
    with pytest.raises(SandboxException, match="400.*allowOut"):
        sync_sdk.create(network=only(name))


@pytest.fixture
def index():
    """The host of the package index that pip uses here, if this machine reaches it."""
    asked = "from pip._internal.commands import create_command as c; o, _ = c('download').parse_args(['x']); print(o.index_url)"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60).stdout.strip()
    url = urlsplit(found)
    if url.scheme != "https" or url.port not in (None, 443) or not url.hostname:
        pytest.skip("pip has no index by HTTPS here")
    command = ["curl", "-sS", "-m", "20", "-o", "/dev/null", found]
    if subprocess.run(command, capture_output=True, timeout=40).returncode != 0:
        pytest.skip("the host itself does not reach the package index")
    return url


def test_a_real_host_is_reached_by_its_name(sync_sdk, index):
    url, code = index.geturl(), "-sS -m 20 -o /dev/null -w '%{http_code}'"
    sandbox = sync_sdk.create(timeout=120, network=only(index.hostname))
    assert int(sandbox.commands.run(f"curl {code} '{url}'", timeout=40).stdout) > 0
    sandbox.update_network(only("example.invalid"))
    done = sandbox.commands.run(f"curl {code} '{url}' || true", timeout=40)
    assert done.stdout == "000"
