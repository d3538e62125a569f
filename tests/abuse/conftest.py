"""Every attack runs as `user` and as `root`, beside a neighbour that must stay responsive."""

import threading
import time

import pytest
from e2b import CommandExitException, Sandbox

from support.sdk import Sdk
from support.waiting import eventually

# A probe is create-free: one command through proxy and envd. On an idle machine it takes about
# 10 ms; two orders of magnitude above that, the neighbour is being starved.
NEIGHBOUR_WITHIN = 5.0


class Neighbour:
    """A sandbox that is asked for a sign of life all the time."""

    def __init__(self, server) -> None:
        self.sandbox = Sandbox.create(timeout=3600, **server.sdk)
        self.slowest = 0.0
        self.failures: list[str] = []
        self.probes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._thread.start()

    def _probe(self) -> None:
        while not self._stop.wait(0.1):
            began = time.monotonic()
            try:
                out = self.sandbox.commands.run("echo alive", timeout=30, request_timeout=30).stdout
                if out != "alive\n":
                    self.failures.append(f"answered {out!r}")
            except Exception as error:
                self.failures.append(repr(error))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.probes += 1

    def begin(self) -> None:
        self.slowest, self.failures, self.probes = 0.0, [], 0

    def check(self) -> None:
        assert self.failures == [], f"the neighbour failed: {self.failures[:3]}"
        assert self.slowest < NEIGHBOUR_WITHIN, f"the neighbour waited {self.slowest:.1f} s"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(40)
        self.sandbox.kill()


@pytest.fixture(scope="session")
def _neighbour(server):
    neighbour = Neighbour(server)
    yield neighbour
    neighbour.stop()


@pytest.fixture(autouse=True)
def neighbour(_neighbour):
    """The neighbour and the host's own load are looked at after each attack."""
    _neighbour.begin()
    yield _neighbour
    _neighbour.check()


@pytest.fixture(params=["user", "root"])
def attacker(request, server):
    """A sandbox and the account to attack from."""
    sdk = Sdk("sync", server.sdk, None)
    sandbox = sdk.create(timeout=300)
    yield Attacker(sandbox, request.param)
    sdk.finish()


class Attacker:
    def __init__(self, sandbox, user: str) -> None:
        self.sandbox = sandbox
        self.user = user

    def run(self, command: str, **kwargs):
        """Runs and never raises for an exit code."""
        try:
            return self.sandbox.commands.run(command, user=self.user, **({"timeout": 60} | kwargs))
        except CommandExitException as failed:
            return failed

    def starts(self, command: str):
        """Starts something that may never end, and lets go of it."""
        handle = self.sandbox.commands.run(command, background=True, user=self.user, timeout=0)
        handle.disconnect()
        return handle

    def python(self, program: str, **kwargs):
        """Runs a Python program inside."""
        path = f"/tmp/attack-{abs(hash(program)) % 10**9}.py"
        self.sandbox.files.write(path, PREAMBLE + program, user=self.user)
        return self.run(f"python3 {path}", **kwargs)

    def survives(self) -> None:
        """envd of the attacked sandbox itself still answers."""
        def answers():
            try:
                return self.sandbox.commands.run("echo still here", timeout=10).stdout == "still here\n"
            except Exception as error:
                raise AssertionError(repr(error)) from error

        eventually(answers, within=30, what="the attacked sandbox answers again")


PREAMBLE = r"""
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)

def syscall(number, *args):
    '''The raw call: (result, errno name).'''
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *converted)
    return result, ("" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "?"))

def refused(what, result):
    value, name = result
    print(f"{what}: {'DONE ' + str(value) if value >= 0 else 'refused ' + name}")

def attempt(what, action):
    try:
        print(f"{what}: DONE {action()!r}")
    except OSError as error:
        print(f"{what}: refused {errno.errorcode.get(error.errno, error)}")
"""


def all_refused(result) -> None:
    """Every line of an attack's output says that it was refused."""
    lines = [line for line in result.stdout.splitlines() if line]
    assert lines, f"the attack did not run: {result.stderr}"
    done = [line for line in lines if "DONE" in line]
    assert not done, done
    assert "Traceback" not in result.stderr, result.stderr


@pytest.fixture
def refused():
    return all_refused


@pytest.fixture(autouse=True)
def host_is_unharmed():
    """What a broken jail would change on the host; put back, so that one failure is only one."""
    before = {path: read(path) for path in WATCHED}
    yield
    changed = {path: read(path) for path in WATCHED if read(path) != before[path]}
    for path in changed:
        with open(path, "w") as file:
            file.write(before[path])
    assert not changed, f"changed on the host: {changed}"


WATCHED = [
    "/etc/passwd",
    "/etc/resolv.conf",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/panic",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/vm/overcommit_memory",
]


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
