"""Storms against a real server: bursts of creates while the server, envd and sandboxes are killed.

After every round each request must have ended with a true answer, every acknowledged sandbox must
be there with its witness or have ended for a reason that the plan knows, and nothing may be left.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from storm.series import run, server_for  # noqa: E402
from storm.tally import Tally  # noqa: E402


def main() -> int:
    options = argparse.ArgumentParser(prog="./storm", description=__doc__)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--round", type=int, help="only this one, as another run numbered it")
    options.add_argument("--creates", type=int, default=1000, help="at once, in each round")
    options.add_argument("--seed", type=int, help="of the plan; drawn and printed when left out")
    options.add_argument("--bin", type=Path, help="the server's program, instead of SOULBOX_BIN")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the counts there too")
    chosen = options.parse_args()
    if chosen.bin:
        os.environ["SOULBOX_BIN"] = str(chosen.bin.resolve())
    for name in [each for each in os.environ if each.startswith("E2B_")]:
        del os.environ[name]
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    numbers = [chosen.round] if chosen.round else range(1, chosen.rounds + 1)
    print(f"storm: seed {seed}, {len(numbers)} rounds of {chosen.creates} creates at once", flush=True)

    def say(number: int, tally: Tally) -> None:
        print(f"round {number}: {tally.seconds:.1f} s; {tally}", flush=True)
        for each in [*tally.problems[:12], *sorted(set(tally.remarks))[:5]]:
            print(f"    {each}", flush=True)
        if tally.bad:
            print(f"    again: ./storm --seed {seed} --creates {chosen.creates} --round {number}", flush=True)
        told.append({"round": number} | tally.report())

    told: list[dict] = []
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-storm-"))
    server = server_for(scratch / "data", chosen.creates)
    bad = 1
    try:
        whole = run(server, seed, numbers, chosen.creates, say)
        print(f"all {len(numbers)} rounds: {whole}", flush=True)
        bad = whole.bad
        if chosen.json:
            totals = whole.report() | {"seed": seed, "creates_per_round": chosen.creates, "rounds": told}
            chosen.json.write_text(json.dumps(totals, indent=1))
    finally:
        server.finish()
        if bad:
            print(f"the server's log: {server.log}", flush=True)
            shutil.rmtree(server.data, ignore_errors=True)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
