"""A sandbox rests and wakes, is kept as a snapshot, and becomes three.

    pip install e2b
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/pause_snapshot_fork.py
"""

from e2b import Sandbox

mine: list[Sandbox] = []
snapshot = None
try:
    sandbox = Sandbox.create(timeout=300)
    mine.append(sandbox)
    sandbox.files.write("work.txt", "half done")
    sleeper = sandbox.commands.run("sleep 300", background=True)

    # Memory and processes are kept, no cpu is used, and it does not count as running.
    sandbox.pause()
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    alive = [process.pid for process in sandbox.commands.list()]
    print("after the pause:", sandbox.files.read("work.txt"), "| process still there:", sleeper.pid in alive)

    # Its files at this moment, under a name that new sandboxes can start from. It goes on meanwhile.
    snapshot = sandbox.create_snapshot()
    sandbox.files.write("work.txt", "all done")
    later = Sandbox.create(snapshot.snapshot_id, timeout=300)
    mine.append(later)
    print("from the snapshot:", later.files.read("work.txt"), "| the source:", sandbox.files.read("work.txt"))

    # Two copies at once, each on its own from here on. One that failed would be an exception.
    for number, copy in enumerate(sandbox.fork(count=2, timeout=300)):
        if isinstance(copy, Exception):
            raise copy
        mine.append(copy)
        copy.files.write("work.txt", f"copy {number}")
    print("forks:", [each.files.read("work.txt") for each in mine[2:]], "| the source:", sandbox.files.read("work.txt"))
finally:
    for each in mine:
        each.kill()
    if snapshot:
        Sandbox.delete_snapshot(snapshot.snapshot_id)
