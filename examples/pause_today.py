"""A long computation is paused today and goes on tomorrow, across a restart of the server.

    pip install e2b
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/pause_today.py today             # prints the sandbox's id, and leaves it paused
                                                      # stop the server, or kill it, and start it again
    python3 examples/pause_today.py tomorrow ID       # goes on with the same process
    python3 examples/pause_today.py after-reboot ID   # the same from the files alone
"""

import sys

from e2b import Sandbox

# Counts primes. What it has found is in its memory; a file has it every thousand primes.
COUNTING = """
import json, os, pathlib
kept = pathlib.Path("primes.json")
found, number = json.loads(kept.read_text()) if kept.exists() else ([], 1)
while True:
    number += 1
    root = int(number ** 0.5)
    if all(number % each for each in found if each <= root):
        found.append(number)
        if len(found) % 1000 == 0:
            pathlib.Path("primes.new").write_text(json.dumps([found, number]))
            os.replace("primes.new", kept)
            print(len(found), found[-1], flush=True)
"""


def start(sandbox: Sandbox) -> int:
    # timeout=0: without an end of its own. It ends with the sandbox.
    return sandbox.commands.run("exec python3 count.py", background=True, timeout=0).pid


def watch(sandbox: Sandbox, pid: int) -> int:
    """How many it has found, by the next line that it prints."""
    counting = sandbox.commands.connect(pid, timeout=0)
    for stdout, _stderr, _terminal in counting:
        if stdout and stdout.endswith("\n"):
            counting.disconnect()
            count, prime = stdout.split()[-2:]
            print(f"process {pid}: {count} primes, the last is {prime}")
            return int(count)
    raise SystemExit("it has ended")


def today() -> None:
    sandbox = Sandbox.create(timeout=3600, metadata={"example": "pause today"})
    sandbox.files.write("count.py", COUNTING)
    pid = start(sandbox)
    watch(sandbox, pid)
    # Memory and processes stay where they are, without using cpu. A paused sandbox has no end.
    sandbox.pause()
    print("paused:", sandbox.sandbox_id)


def tomorrow(sandbox_id: str) -> None:
    # Connecting resumes it, with a new timeout.
    sandbox = Sandbox.connect(sandbox_id, timeout=3600)
    (counting,) = [each for each in sandbox.commands.list() if "count.py" in " ".join(each.args)]
    watch(sandbox, counting.pid)
    # Its files at this moment, as something new sandboxes can start from. It goes on meanwhile.
    snapshot = sandbox.create_snapshot()
    print("snapshot:", snapshot.snapshot_id)
    copy = Sandbox.create(snapshot.snapshot_id, timeout=300)
    print("a copy from it has:", [each.name for each in copy.files.list(".") if not each.name.startswith(".")])
    copy.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)
    # Only the files: this is also what is left of any pause after the machine was restarted.
    sandbox.pause(mode="filesystem")
    print("paused without memory:", sandbox_id)


def after_reboot(sandbox_id: str) -> None:
    sandbox = Sandbox.connect(sandbox_id, timeout=3600)
    print("processes:", len(sandbox.commands.list()))
    # The computation begins with its file, not from nothing.
    watch(sandbox, start(sandbox))
    sandbox.kill()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["today"]:
            today()
        case ["tomorrow", sandbox_id]:
            tomorrow(sandbox_id)
        case ["after-reboot", sandbox_id]:
            after_reboot(sandbox_id)
        case _:
            sys.exit(__doc__)
