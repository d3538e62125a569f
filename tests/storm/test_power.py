"""What the look after a power cut lets pass, and what not."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from storm.client import TrackedSandbox, Sandbox
from storm.plan import Fate, PlannedSandbox
from storm.power import Check, Cut
from storm.wire import Answer

CUT, OLD, YOUNG = 100.0, 90.0, 99.9
RUNNING = {"told_at": OLD}
JUST_MADE = {"told_at": YOUNG}
PAUSED = {"told_at": OLD, "paused": True}
PAUSING = {"told_at": OLD, "changing": True}
RESUMING = {"told_at": OLD, "paused": True, "changing": True}
KILLED = {"told_at": OLD, "end_asked": True, "ended_at": OLD}
JUST_KILLED = {"told_at": OLD, "end_asked": True, "ended_at": YOUNG}
BEING_KILLED = {"told_at": OLD, "end_asked": True}


def there(state="paused"):
    return Answer(200, {}, json.dumps({"state": state}).encode(), 0.1)


def gone(reason=None, code=None):
    message = "Sandbox doesn't exist" + (f" (ended at 2026-01-01T00:00:00.000Z, {reason})" if reason else "")
    return Answer(404, {}, json.dumps({"code": 404, "message": message, "error_code": code}).encode(), 0.1)


BROKEN = gone(code="sandbox_broken")


def judged(told, answer, had_disk=True, has_disk=True, struck=False):
    planned = PlannedSandbox(number=1, fate=Fate.STAY, keyed=False, delay=0.1, witness="w", started=False)
    tracked_one = TrackedSandbox(planned, "1-1", sandbox=Sandbox("i1", ""), **told)
    cut = Cut(Path("cut.img"), CUT, [tracked_one], {"i1"} if struck else set())
    keeper = SimpleNamespace(server=SimpleNamespace(key="k"))
    return Check(keeper, None, cut).why_not_kept(tracked_one, answer, had_disk, has_disk)


@pytest.mark.parametrize("told", [RUNNING, JUST_MADE, PAUSED, PAUSING, RESUMING, BEING_KILLED, JUST_KILLED])
def test_what_is_there_and_rests_on_its_disk_is_kept(told):
    assert judged(told, there()) == ""
    assert judged(told, there("running"))
    assert judged(told, there(), has_disk=False)


def test_what_was_killed_stays_so():
    assert judged(KILLED, gone("killed"), has_disk=False) == ""
    for answer in (there(), gone(), gone("lost: nothing was there"), BROKEN):
        assert judged(KILLED, answer)


@pytest.mark.parametrize("answer", [gone(), gone("lost: nothing was there"), gone("killed"), gone("died"), BROKEN])
def test_what_was_paused_is_there(answer):
    assert judged(PAUSED, answer)
    assert judged(PAUSED, answer, had_disk=False)


@pytest.mark.parametrize("told", [RUNNING, PAUSING, RESUMING])
def test_what_ran_may_be_broken_or_lost_with_a_reason_but_never_a_disk_that_was_there(told):
    assert judged(told, BROKEN) == ""
    assert judged(told, gone("lost: nothing was there"), had_disk=False, has_disk=False) == ""
    assert judged(told, gone("lost: nothing was there"))
    for answer in (BROKEN, gone("lost: nothing was there"), gone()):
        assert judged(told, answer, has_disk=False)
    assert judged(told, gone(), had_disk=False, has_disk=False)
    assert judged(told, gone("expired"))


def test_only_what_was_just_made_may_be_unknown():
    assert judged(JUST_MADE, gone(), has_disk=False) == ""
    assert judged(RUNNING, gone(), has_disk=False)
    assert judged(JUST_MADE, Answer(500, {}, b"", 0.1))


def test_what_was_struck_may_have_died_and_only_that():
    assert judged(RUNNING, gone("died: signal 9"), has_disk=False, struck=True) == ""
    assert judged(PAUSED, gone("died: signal 9"), has_disk=False, struck=True) == ""
    assert judged(RUNNING, gone("died: signal 9"), has_disk=False)
    assert judged(RUNNING, gone("killed"), has_disk=False, struck=True)


def test_a_kill_under_way_may_be_done_or_not():
    for told in (BEING_KILLED, JUST_KILLED):
        assert judged(told, gone("killed"), has_disk=False) == ""
        assert judged(told, gone("died"), has_disk=False)
