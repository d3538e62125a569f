"""What a sandbox is held to. The first word says which limit; figures go out as JSON."""

import json
import sys
import time

from e2b import CommandExitException, Sandbox

WITHIN = 240

EAT = "data = []\nwhile True: data.append(b'x' * (16 << 20))\n"
FORK = """
import os, signal, sys
children = []
try:
    while len(children) < 5000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError as error:
    print(error.strerror)
print(len(children))
for each in children:
    os.kill(each, signal.SIGKILL)
"""


def memory(sandbox: Sandbox) -> dict:
    sandbox.files.write("eat.py", EAT)
    try:
        sandbox.commands.run("exec python3 eat.py", timeout=WITHIN)
    except CommandExitException as ended:
        told = f"{ended} {ended.error} {ended.stderr}"
        alive = sandbox.commands.run("echo alive", timeout=WITHIN).stdout
        return {"code": ended.exit_code, "told": told, "after": alive}
    return {"code": 0, "told": "", "after": ""}


def pids(sandbox: Sandbox) -> dict:
    sandbox.files.write("fork.py", FORK)
    done = sandbox.commands.run("python3 fork.py", timeout=WITHIN)
    error, _, made = done.stdout.strip().rpartition("\n")
    alive = sandbox.commands.run("echo alive", timeout=WITHIN).stdout
    return {"error": error, "made": int(made), "after": alive}


def cpu(sandbox: Sandbox) -> dict:
    """How much of one cpu two busy processes get, by the kernel's own account."""
    busy = [sandbox.commands.run("exec sha256sum /dev/zero", background=True, timeout=0) for _ in range(2)]
    ticks = " ".join(f"/proc/{each.pid}/stat" for each in busy)

    def used() -> float:
        lines = sandbox.commands.run(f"cut -d' ' -f14,15 {ticks}", timeout=WITHIN).stdout.split()
        return sum(map(int, lines)) / 100

    began, before = time.monotonic(), used()
    sandbox.commands.run("sleep 15", timeout=WITHIN)
    took, after = time.monotonic() - began, used()
    for each in busy:
        each.kill()
    return {"share": (after - before) / took}


def disk(sandbox: Sandbox) -> dict:
    done = sandbox.commands.run("head -c 400M /dev/zero > full; echo $?; stat -c %s full; rm full", timeout=WITHIN)
    again = sandbox.commands.run("echo room > small && cat small", timeout=WITHIN).stdout
    code, size = done.stdout.split()
    return {"code": int(code), "said": done.stderr, "size": int(size), "after": again}


with Sandbox.create(timeout=900) as sandbox:
    print(json.dumps(globals()[sys.argv[1]](sandbox)))
