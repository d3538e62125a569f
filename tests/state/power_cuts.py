"""The long form of test_power_cut.py: `power_cuts.py [--cuts 200] [--seed N] [--folder DIR]`.

As root. A server works on a disk in a file; that file is copied at moments of chance, without anything
being flushed for it, and another server is started on each copy. Nothing that was answered may be
missing, nothing removed. Exit code 1 if something is; the folder stays then. About 4 s per cut.
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
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options.add_argument("--folder", help="where the disks go: 2 GiB and some, in memory for speed")
    chosen = options.parse_args()
    for name in [each for each in os.environ if each.startswith("E2B_")]:
        del os.environ[name]
    resolve_localhost_names()
    print(f"seed {chosen.seed}", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-power-", dir=chosen.folder))
    began = time.monotonic()
    broken = rounds(scratch, chosen.cuts, chosen.per_life, chosen.seed, progress=say)
    print(f"{chosen.cuts} cuts in {time.monotonic() - began:.0f} s, {len(broken)} promises not kept")
    if broken:
        print("\n".join(broken))
        print(f"kept for a look: {scratch}")
        return 1
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


def say(of: tuple) -> None:
    number, found, done = of
    total = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    print(f"cut {number}: {len(found)} not kept (after {total})", flush=True)
    for each in found:
        print(f"  {each}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
