#!/usr/bin/env python3
"""Memory of idle envds: proportional set size and private dirty pages, with 1 and with 20 sandboxes.

    SOULBOX_BIN=target/release/soulbox python bench/envd_memory.py [--json FILE]

PSS counts a page that is shared by n processes as 1/n of it; private dirty is what nobody else
shares and what would be gained if the process ended. Both from /proc/PID/smaps_rollup, after the
sandboxes have been created and one command has been run in each.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.server import Server  # noqa: E402


def envds(server: Server) -> list[int]:
    """The first processes of this server's sandboxes, and of no other server's."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            program = os.stat(f"/proc/{pid}/exe")
        except OSError:
            continue
        if any(os.path.samestat(program, each.stat()) for each in (server.data / "bin").glob("*/soulbox-envd")):
            found.append(pid)
    return found


def kib(pid: int) -> dict[str, int]:
    values = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, number, *_ = line.split()
        values[name.rstrip(":")] = int(number)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    from e2b import Sandbox

    scratch = Path(tempfile.mkdtemp(prefix="soulbox-bench-"))
    server = Server(scratch / "data", extra=["--log", "warn"])
    figures = {}
    try:
        server.start()
        made = []
        print("| idle envd, KiB each (median) | PSS | private dirty | private clean | RSS |\n|---|---|---|---|---|")
        for count in (1, 20):
            while len(made) < count:
                made.append(Sandbox.create(timeout=600, **server.sdk))
                made[-1].commands.run("true")
            samples = [kib(pid) for pid in envds(server)]
            assert len(samples) == count, f"{len(samples)} envds for {count} sandboxes"
            row = {
                name: statistics.median(each[name] for each in samples)
                for name in ("Pss", "Private_Dirty", "Private_Clean", "Rss")
            }
            figures[str(count)] = row
            print(f"| {count} sandbox{'es' if count > 1 else ''} | " + " | ".join(f"{each:.0f}" for each in row.values()) + " |")
    finally:
        server.finish()
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
