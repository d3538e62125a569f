"""The short form of `./storm`: one small round, always of the same plan.

Another plan: SOULBOX_STORM_SEED=7 ./test storm
"""

import os

import pytest

from storm.plan import Fate, Target, draw
from storm.power import disk_for
from storm.series import run, server_for
from storm.stopping import leave_nothing

# Warm sandboxes, a server that is killed twice and again in the end, and a power cut after seven pauses.
USUAL = 109
SEED = int(os.environ.get("SOULBOX_STORM_SEED", USUAL))
ROUNDS = 1
CREATES = 50

pytestmark = pytest.mark.timeout(600)


def test_storms_lose_nothing_leave_nothing_and_answer_the_truth(scratch):
    place = scratch / "storm"
    place.mkdir()
    disk = disk_for(place, CREATES)
    server = server_for(disk.path / "data", CREATES, place / "server.log")
    failures: list[str] = []

    def note(number, tally):
        print(f"round {number}: {tally}")
        again = f"again: ./storm --seed {SEED} --creates {CREATES} --round {number}"
        if tally.bad:
            failures.append("\n".join([f"round {number}: {tally}", *tally.problems[:20], again]))

    try:
        whole = run(server, SEED, range(1, ROUNDS + 1), CREATES, note, disk=disk)
    finally:
        told = server.log_tail()
        leave_nothing(server, disk, place)
    assert not failures, "\n\n".join(failures) + f"\n\n{told}"
    assert whole.acknowledged > ROUNDS * CREATES // 2, f"too little was made to have tested much: {whole}"
    assert whole.server_kills >= ROUNDS and whole.struck > 0 and whole.cut > 0, f"there was no storm: {whole}"
    assert whole.power_cuts == ROUNDS and whole.told_of > 0, f"nobody was told anything before the power cut: {whole}"
    assert whole.at_rest > 0 or SEED != USUAL, f"none was paused before the power cut: {whole}"


def test_a_seed_gives_the_same_plan_again_and_another_seed_another():
    assert draw(7, 3, 50) == draw(7, 3, 50)
    assert draw(7, 3, 50) != draw(8, 3, 50)
    assert draw(7, 3, 50) != draw(7, 4, 50)


def test_a_plan_of_a_thousand_has_every_fate_and_every_target():
    plan = draw(1, 1, 1000)
    assert {planned.fate for planned in plan.sandboxes} == set(Fate)
    assert {blow.target for blow in plan.blows} == set(Target)
    assert [blow.after for blow in plan.blows] == sorted(blow.after for blow in plan.blows)
    assert all(blow.after <= 1000 for blow in plan.blows)
