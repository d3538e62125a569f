"""Leaves sandboxes behind, for what happens to the server next: `leave.py COUNT [pause]`.

Each has a file, a counter that goes on, and its id on a line of the output.
"""

import sys

from e2b import Sandbox

for _ in range(int(sys.argv[1])):
    sandbox = Sandbox.create(timeout=3600, metadata={"left": "yes"})
    sandbox.files.write("witness", sandbox.sandbox_id)
    counter = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.2; done"
    sandbox.commands.run(counter, background=True, timeout=0).disconnect()
    sandbox.commands.run("until [ -s count ]; do sleep 0.1; done", timeout=60)
    if "pause" in sys.argv:
        sandbox.pause()
    print(sandbox.sandbox_id)
