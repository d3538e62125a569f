"""Memory of the kernel that is charged to nobody: what waits in sockets and is never read."""

import threading
import time

import httpx
import pytest

from support.sdk import Sdk
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.alone]

MIB = 2**20

# Each holds at most LIMIT bytes, tries for 20 s, and then keeps what it has.
HOARD = """
import resource, socket, struct, sys, time
LIMIT = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept, held, began = [], 0, time.monotonic()

def hungry():
    return held < LIMIT and time.monotonic() - began < 20

def opened(*kind):
    each = socket.socket(*kind)
    each.setblocking(False)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        each.setsockopt(socket.SOL_SOCKET, buffer, 1 << 30)
    kept.append(each)
    return each
"""

# The kernel sends back what it does not understand.
NETLINK = """
request = struct.pack("=IHHII", 1 << 17, 999, 5, 1, 0) + bytes((1 << 17) - 16)
while hungry():
    each = opened(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    for _ in range(60):
        try:
            held += each.send(request)
        except OSError:
            break
time.sleep(60)
"""

PING = """
echo = struct.pack(">BBHHH", 8, 0, 0, 0, 1) + bytes(60_000)
while hungry():
    each = opened(socket.AF_INET, socket.SOCK_DGRAM, 1)
    for _ in range(130):
        try:
            held += each.sendto(echo, ("127.0.0.1", 0))
        except OSError:
            break
time.sleep(60)
"""

CONNECTIONS = """
data = bytes(1 << 20)
while hungry():
    if len(kept) % 1000 == 0:
        listener = opened()
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
    each = opened()
    each.connect_ex(listener.getsockname())
    try:
        while hungry():
            held += each.send(data)
    except OSError:
        pass
time.sleep(60)
"""


@pytest.fixture(scope="module")
def idle() -> int:
    """What is unexplained before anybody attacks."""
    return unexplained()


@pytest.fixture(autouse=True)
def idle_is_measured_first(idle):
    pass


@pytest.mark.parametrize(
    "attack", [NETLINK, PING, CONNECTIONS], ids=["answers of netlink", "replies to pings", "connections"]
)
def test_a_sandbox_that_holds_the_kernels_memory_is_ended_and_told_why(attacker, server, neighbour, attack):
    before, evicted = unexplained(), evictions(server)
    began = time.monotonic()
    with Peak() as peak, Transfers(neighbour.sandbox) as transfers:
        start(attacker.sandbox, attacker.user, attack, 2 * step())
        told = eventually(lambda: end_of(server, attacker.sandbox), within=30, what="the sandbox is ended")
        took = time.monotonic() - began
        freed = lambda: unexplained() < before + step() // 2
        eventually(freed, within=30, what="the machine has its memory back")
    print(f"ended after {took:.2f} s; the kernel held {(peak.most - before) // MIB} MiB more at most: {told}")
    assert peak.most - before > step() // 2, "the attack did not work"
    assert "evicted: it held " in told and "MiB of the server's memory" in told
    with server.api() as api:
        (heard,) = api.get(f"/events/sandboxes/{attacker.sandbox.sandbox_id}", params={"types": "killed"}).json()
        assert heard["eventData"]["reason"] == "evicted"
    logs = server.cli("logs", attacker.sandbox.sandbox_id)
    assert b"sandbox ended (evicted): it held " in logs.stdout
    assert evictions(server) == evicted + 1
    assert transfers.done > 0 and transfers.failures == []


def test_what_a_paused_sandbox_holds_counts_as_well(server, neighbour, idle):
    """Neither of both has enough alone."""
    # Of an attack before, up to half a step may still be on its way back.
    eventually(lambda: unexplained() < idle + step() // 8, within=30, what="the machine is idle")
    sdk, before = Sdk("sync", server.sdk, None), unexplained()
    paused, other = [sdk.create(timeout=300) for _ in range(2)]
    start(paused, "user", NETLINK, step() * 6 // 10)
    eventually(lambda: unexplained() > before + step() // 2, within=30, what="the first one holds its part")
    paused.pause()
    start(other, "user", PING, step() * 6 // 10)
    for each in (paused, other):
        told = eventually(lambda: end_of(server, each), within=30, what="both are ended")
        assert "evicted: it held " in told
    eventually(lambda: unexplained() < before + step() // 4, within=30, what="the machine has its memory back")
    sdk.finish()


def test_who_only_works_much_is_left_alone(attacker, neighbour):
    """Busy sockets, many of them: some megabytes wait at any time."""
    result = attacker.python(
        """
import threading, time
listener = socket.create_server(("127.0.0.1", 0), backlog=200)

def echo(connection):
    while data := connection.recv(1 << 16):
        connection.sendall(data)

def serve():
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

def ask():
    with socket.create_connection(listener.getsockname()) as connection:
        for _ in range(100):
            connection.sendall(bytes(1 << 16))
            received = 0
            while received < 1 << 16:
                received += len(connection.recv(1 << 16))

threading.Thread(target=serve, daemon=True).start()
workers = [threading.Thread(target=ask) for _ in range(50)]
[each.start() for each in workers]
[each.join() for each in workers]
print("done")
""",
        timeout=120,
    )
    assert result.stdout == "done\n", result
    attacker.survives()


def start(sandbox, user: str, attack: str, limit: int) -> None:
    sandbox.files.write("/tmp/hoard.py", HOARD + attack, user=user)
    handle = sandbox.commands.run(f"python3 /tmp/hoard.py {limit}", background=True, user=user, timeout=0)
    handle.disconnect()


def end_of(server, sandbox) -> str | None:
    """What is told of it, once its end is on record."""
    with server.api() as api:
        answer = api.get(f"/sandboxes/{sandbox.sandbox_id}")
    message = answer.json().get("message", "")
    return message if answer.status_code == 404 and "(ended at " in message else None


def evictions(server) -> int:
    page = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    (line,) = [line for line in page.splitlines() if line.startswith("soulbox_sandboxes_evicted_total ")]
    return int(line.split()[1])


def meminfo() -> dict[str, int]:
    with open("/proc/meminfo") as file:
        return {name: int(value.split()[0]) * 1024 for name, value in (line.split(":") for line in file)}


def unexplained() -> int:
    """What is in use and neither a program's nor page cache, nor kept free by a cpu for itself."""
    told = meminfo()
    with open("/proc/zoneinfo") as zones:
        of_cpus = sum(int(line.split()[1]) * 4096 for line in zones if line.lstrip().startswith("count:"))
    known = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "KReclaimable", "KernelStack", "PageTables")
    return told["MemTotal"] - sum(told[name] for name in known) - told.get("Percpu", 0) - of_cpus


def step() -> int:
    """From how much on the server asks whose it is."""
    return max(meminfo()["MemTotal"] // 32, 128 * MIB)


class Peak:
    """The most that was unexplained."""

    def __enter__(self):
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.most = max(self.most, unexplained())

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(10)


class Transfers:
    """What somebody else copies out of a sandbox meanwhile."""

    SIZE = 8 * MIB

    def __init__(self, sandbox) -> None:
        self.sandbox, self.done, self.failures, self._stop = sandbox, 0, [], threading.Event()
        sandbox.files.write("/tmp/large", bytes(self.SIZE))

    def __enter__(self):
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()
        return self

    def _copy(self) -> None:
        while not self._stop.is_set():
            try:
                found = len(self.sandbox.files.read("/tmp/large", format="bytes", request_timeout=30))
                if found != self.SIZE:
                    self.failures.append(f"{found} bytes came")
            except Exception as error:
                self.failures.append(repr(error))
            self.done += 1

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(60)
