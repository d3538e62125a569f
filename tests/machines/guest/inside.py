"""Prints what a command says in a new sandbox: `inside.py COMMAND`."""

import sys

from e2b import Sandbox

with Sandbox.create(timeout=600) as sandbox:
    print(sandbox.commands.run(sys.argv[1], timeout=120).stdout, end="")
