"""The long form of test_power_cut.py: `power_cuts.py [--cuts 200] [--seed N] [--folder DIR]`.

As root. A server works on a disk in a file; that file is copied at moments of chance, without anything
being flushed for it, and another server is started on each copy. Nothing that was answered may be
missing, nothing removed. Exit code 1 if something is; the folder stays then. Two servers beside each
other make it about 1 s per cut with a release build on two cores.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from state.promises import rounds  # noqa: E402
from support.names import resolve_localhost_names  # noqa: E402


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cuts", type=int, default=200)
    options.add_argument("--per-life", type=int, default=5, help="cuts while one server works (5)")
    options.add_argument("--at-once", type=int, default=2, help="servers beside each other (2), each on a disk of its own")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options.add_argument("--folder", help="where the disks go: 2 GiB and some, in memory for speed")
    chosen = options.parse_args()
    for name in [each for each in os.environ if each.startswith("E2B_")]:
        del os.environ[name]
    resolve_localhost_names()
    print(f"seed {chosen.seed}", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-power-", dir=chosen.folder))
    began, looked_at = time.monotonic(), 0

    def say(number: int, found: list[str], done: dict[str, int]) -> None:
        nonlocal looked_at
        looked_at += 1
        total = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
        after = f"{looked_at} of {chosen.cuts} after {time.monotonic() - began:.0f} s"
        print("\n  ".join([f"{after}: cut {number}, {len(found)} not kept (of {total})", *found]), flush=True)

    broken = rounds(scratch, chosen.cuts, chosen.per_life, chosen.seed, chosen.at_once, say)
    print(f"{looked_at} cuts in {time.monotonic() - began:.0f} s, {len(broken)} promises not kept")
    if broken:
        print("\n".join(broken))
        print(f"kept for a look: {scratch}")
        return 1
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
