"""Whether a sandbox reaches an address and a name outside: `reach.py ADDRESS NAME`. Answers in JSON."""

import json
import sys

from e2b import Sandbox

address, name = sys.argv[1:]
with Sandbox.create(timeout=600) as sandbox:

    def asks(host: str) -> bool:
        line = f"curl -s -m 15 -o /dev/null http://{host}/ && echo yes || echo no"
        return sandbox.commands.run(line, timeout=60).stdout == "yes\n"

    print(json.dumps({"address": asks(address), "name": asks(name)}))
