"""Finds sandboxes that were left: `find.py memory|files ID…`. With `memory` they count on."""

import sys
import time

from e2b import Sandbox

kept, ids = sys.argv[1], sys.argv[2:]

for each in ids:
    sandbox = Sandbox.connect(each, timeout=600)
    assert sandbox.files.read("witness") == each
    assert sandbox.get_info().metadata == {"left": "yes"}
    if kept == "memory":
        before, end = int(sandbox.files.read("count")), time.monotonic() + 60
        while int(sandbox.files.read("count")) == before:
            assert time.monotonic() < end, f"{each} does not count on"
            time.sleep(0.2)
    assert sandbox.commands.run("echo here", timeout=60).stdout == "here\n"
