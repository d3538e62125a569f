"""Storms against a real server: bursts of creates while the server, envd and sandboxes are killed.

After every round each request must have ended with a true answer, every acknowledged sandbox must
be there with its witness or have ended for a reason that the plan knows, and nothing may be left.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from storm.keeper import Unusable  # noqa: E402
from storm.options import UNUSABLE, duration, parser  # noqa: E402
from storm.power import disk_for  # noqa: E402
from storm.series import run, server_for  # noqa: E402
from storm.stopping import Stop, leave_nothing  # noqa: E402
from storm.tally import Tally  # noqa: E402
from support.server import binary  # noqa: E402


def main() -> int:
    stop = Stop()
    options = parser()
    chosen = options.parse_args()
    if chosen.bin:
        os.environ["SOULBOX_BIN"] = str(chosen.bin)
    try:
        binary()
    except RuntimeError as error:
        options.error(str(error))
    for name in [each for each in os.environ if each.startswith("E2B_")]:
        del os.environ[name]
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    numbers = [chosen.round] if chosen.round else range(1, chosen.rounds + 1)
    print(f"storm: seed {seed}, {len(numbers)} rounds of {chosen.creates} creates at once; ./storm --help explains the counts", flush=True)
    lasting = duration(len(numbers), chosen.creates, chosen.power_cuts)
    cuts = "one a round" if chosen.power_cuts else "none"
    print(f"on two cores this takes about {lasting}; power cuts: {cuts}", flush=True)

    def say(number: int, tally: Tally) -> None:
        print(f"round {number}: {tally.seconds:.1f} s; {tally}", flush=True)
        for each in [*tally.problems[:12], *sorted(set(tally.remarks))[:5]]:
            print(f"    {each}", flush=True)
        if tally.bad:
            print(f"    again: ./storm --seed {seed} --creates {chosen.creates} --round {number}", flush=True)
        told.append({"round": number} | tally.report())

    told: list[dict] = []
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-storm-"))
    log = scratch / "server.log"
    code, keep_log = 1, True
    disk = server = None
    try:
        disk = disk_for(scratch, chosen.creates) if chosen.power_cuts else None
        server = server_for((disk.path if disk else scratch) / "data", chosen.creates, log)
        whole = run(server, seed, numbers, chosen.creates, say, stop, disk)
        print(f"all {len(numbers)} rounds: {whole}", flush=True)
        code = 1 if whole.bad else 0
        keep_log = bool(whole.bad)
        if chosen.json:
            totals = whole.report() | {"seed": seed, "creates_per_round": chosen.creates, "rounds": told}
            chosen.json.write_text(json.dumps(totals, indent=1))
    except Unusable as error:
        code = UNUSABLE
        print(f"storm: {error}", file=sys.stderr, flush=True)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        code, keep_log = 128 + stop.signal, False
    finally:
        keep_log = keep_log and log.exists() and log.stat().st_size > 0
        leave_nothing(server, disk, scratch, [log] if keep_log else [])
        if keep_log:
            print(f"the server's log: {log}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
