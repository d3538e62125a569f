"""The long form of test_pause_cycles.py, on a server of its own: `soak.py [--cycles 200]`.

Runs the cycles once with a server that stays, and once with one that is killed in each.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from state.cycles import Summary, run_cycles  # noqa: E402
from support.server import Server  # noqa: E402


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cycles", type=int, default=200)
    options.add_argument("--only", choices=["steady", "killed"])
    chosen = options.parse_args()
    for name in [each for each in os.environ if each.startswith("E2B_")]:
        del os.environ[name]
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-test-"))
    server = Server(scratch / "data")
    try:
        server.start()
        for name in [chosen.only] if chosen.only else ["steady", "killed"]:
            began = time.monotonic()
            summary = run_cycles(server, chosen.cycles, kill=name == "killed", progress=say)
            print(f"{name}: {summary}; {time.monotonic() - began:.0f} s in all", flush=True)
    finally:
        server.finish()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def say(summary: Summary) -> None:
    if summary.cycles % 20 == 0:
        print(f"  {summary.cycles} cycles, counted to {summary.counted}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
