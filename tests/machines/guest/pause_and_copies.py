"""Pause, resume, snapshot and fork, as the quick start shows them."""

from e2b import Sandbox

sandbox = Sandbox.create(timeout=600)
sandbox.files.write("work.txt", "half done")
counter = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.2; done"
pid = sandbox.commands.run(counter, background=True, timeout=0).pid
sandbox.pause()
assert sandbox.get_info().state == "paused"
sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=600)
assert sandbox.files.read("work.txt") == "half done"
assert pid in [each.pid for each in sandbox.commands.list()], "its processes did not come back"

snapshot = sandbox.create_snapshot()
later = Sandbox.create(snapshot.snapshot_id, timeout=600)
assert later.files.read("work.txt") == "half done"

left, right = sandbox.fork(count=2, timeout=600)
left.files.write("work.txt", "done")
assert left.files.read("work.txt") == "done"
assert right.files.read("work.txt") == "half done"

for each in (sandbox, later, left, right):
    assert each.kill()
assert Sandbox.delete_snapshot(snapshot.snapshot_id)
