"""What a storm takes for true, and what not: a judge that lets everything pass would find nothing."""

import asyncio
import base64
import json
from types import SimpleNamespace

import pytest

from storm.client import TrackedSandbox, Refused, Sandbox, end_reason, output
from storm.judging import reasons_for
from storm.plan import Fate, PlannedSandbox
from storm.rounds import Round
from storm.tally import Tally
from storm.victims import Struck
from storm.wire import Answer


def gone(message):
    return Answer(404, {}, json.dumps({"code": 404, "message": message}).encode(), 0.1)


def stream(*messages, flag=0):
    frames = [json.dumps(each).encode() for each in messages]
    return b"".join(bytes([flag]) + len(each).to_bytes(4) + each for each in frames)


def printed(text):
    return {"event": {"data": {"stdout": base64.b64encode(text).decode()}}}


def test_the_reason_of_an_end_is_read_from_the_answer():
    text = 'Sandbox "i1" doesn\'t exist or you don\'t have access to it'
    assert end_reason(gone(f"{text} (ended at 2026-01-01T00:00:00.000Z, died: signal 9)")) == "died"
    assert end_reason(gone(f"{text} (ended, killed)")) == "killed"
    assert end_reason(gone(text)) is None


@pytest.mark.parametrize("end_asked, struck, may", [
    (True, False, {"killed"}),
    (False, True, {"died"}),
    (True, True, {"killed", "died"}),
])  # fmt: skip
def test_what_is_gone_has_the_reason_of_who_ended_it(end_asked, struck, may):
    assert reasons_for(end_asked, struck) == may


def told(reason, *heard, creations=1):
    """What a storm says of a sandbox that it struck and that is gone."""
    text = 'Sandbox "i1" doesn\'t exist or you don\'t have access to it'
    created = {"type": "sandbox.lifecycle.created", "eventData": {}}
    ends = [{"type": "sandbox.lifecycle.killed", "eventData": {"reason": each}} for each in heard]
    events = json.dumps([created] * creations + ends).encode()

    class Client:
        async def insist(self, *_):
            return Answer(200, {}, events, 0.1), False

    judging = SimpleNamespace(struck=Struck(sandboxes={"i1"}), client=Client())
    tracked_one, answer = TrackedSandbox(planned(keyed=False), "1-1"), gone(f"{text} (ended, {reason})" if reason else text)
    return asyncio.run(Round.why_not_well_told(judging, tracked_one, Sandbox("i1", ""), answer))


def test_an_end_is_told_by_one_event_for_the_same_reason():
    assert told("died: signal 9", "died") == ("untrue", "")
    for heard in ([], ["killed"], ["died", "died"]):
        kind, problem = told("died: signal 9", *heard)
        assert kind == "untrue" and problem


def test_a_beginning_is_told_by_one_event():
    for creations in (0, 2):
        kind, problem = told("died: signal 9", "died", creations=creations)
        assert kind == "untrue" and problem


@pytest.mark.parametrize("reason", [None, "lost: nothing of it was there any more", "expired"])
def test_a_sandbox_that_was_struck_and_is_reported_otherwise_is_lost(reason):
    kind, problem = told(reason)
    assert kind == "lost" and problem


def test_a_command_that_did_not_end_well_has_no_output():
    ended = {"event": {"end": {"exited": True, "status": "exit status 0"}}}
    assert output(stream(printed(b"wit"), printed(b"ness"), ended)) == "witness"
    with pytest.raises(Refused):
        output(stream(printed(b"half")))
    with pytest.raises(Refused):
        output(stream(printed(b"half"), {"event": {"end": {"exitCode": 1}}}))
    with pytest.raises(Refused):
        output(stream(printed(b"half")) + stream({"error": {"code": "unavailable"}}, flag=2))


def planned(keyed):
    return PlannedSandbox(number=1, fate=Fate.STAY, keyed=keyed, delay=0.1, witness="w", started=False)


def strays_of(tracked_one, count):
    judged = SimpleNamespace(tracked=[tracked_one], tally=Tally())
    Round.count_strays(judged, [{"metadata": {"storm": tracked_one.name}}] * count)
    return judged.tally.leaked


@pytest.mark.parametrize("keyed, unknown, keys, may", [
    (False, 0, [], 0),  # it was refused or answered: it has left nothing else
    (False, 2, [], 2),  # cut twice: each attempt may have made one
    (True, 3, ["a"], 1),  # one key, one sandbox, however often it was cut
    (True, 3, ["a", "b"], 2),
])  # fmt: skip
def test_creates_leave_only_the_sandboxes_that_their_answers_allow(keyed, unknown, keys, may):
    tracked_one = TrackedSandbox(planned(keyed), "1-1", unknown=unknown, keys=keys)
    assert strays_of(tracked_one, may) == 0
    assert strays_of(tracked_one, may + 1) == 1


def test_a_sandbox_of_no_known_create_is_a_leak():
    tracked_one = TrackedSandbox(planned(keyed=False), "1-1")
    judged = SimpleNamespace(tracked=[tracked_one], tally=Tally())
    Round.count_strays(judged, [{"metadata": {}}])
    assert judged.tally.leaked == 1
