"""How long a storm waits for its server: as long as it tracked, up to a bound, and a slow one counts as stuck."""

import asyncio
from types import SimpleNamespace

import pytest

from storm import keeper as keeping
from storm import wire
from storm.keeper import Keeper
from storm.tally import Tally


class Starting:
    """A server that answers when it was asked so often, or never; its processes end as told."""

    def __init__(self, monkeypatch, answers_at=None, exits=()):
        self.http_port, self.environment, self.asked = 1, {}, 0
        self.exits, self.answers_at = list(exits), answers_at
        monkeypatch.setattr(wire, "call", self.call)

    def spawn(self):
        code = self.exits.pop(0) if self.exits else None
        return SimpleNamespace(poll=lambda: code, returncode=code)

    def log_tail(self, _lines):
        return "what it said last"

    async def call(self, *_words, **_options):
        self.asked += 1
        if self.answers_at is None or self.asked < self.answers_at:
            raise wire.Unreachable("nobody listens")
        return wire.Answer(204, {}, b"", 0.0)


def started(server) -> tuple[Keeper, Tally]:
    async def start():
        keeper, tally = Keeper(server), Tally()
        try:
            await keeper.start(tally)
        except RuntimeError as error:
            tally.remarks.append(str(error))
        return keeper, tally

    return asyncio.run(asyncio.wait_for(start(), 30))


def test_a_usual_start_is_not_worth_a_word(monkeypatch):
    keeper, tally = started(Starting(monkeypatch, answers_at=1))
    assert keeper.up.is_set() and keeper.lateness == 0
    assert (tally.slow_starts, tally.bad, tally.remarks) == (0, 0, [])


def test_a_slow_start_counts_as_stuck_but_the_storm_goes_on(monkeypatch):
    monkeypatch.setattr(keeping, "SLOW_FROM", 0.01)
    keeper, tally = started(Starting(monkeypatch, answers_at=4))
    assert keeper.up.is_set() and keeper.lateness > 0
    assert (tally.slow_starts, tally.stuck, tally.bad, tally.remarks) == (1, 1, 1, [])
    assert "slow starts 1" in str(tally) and tally.report()["slow_starts"] == 1


def test_a_server_that_is_silent_beyond_the_bound_ends_the_storm(monkeypatch):
    monkeypatch.setattr(keeping, "BACK_WITHIN", 0.1)
    keeper, tally = started(Starting(monkeypatch))
    assert not keeper.up.is_set()
    assert (tally.slow_starts, tally.stuck) == (0, 1) and "does not come back" in tally.remarks[0]


@pytest.mark.parametrize("times", [1, 2])
def test_a_server_that_ends_instead_of_starting_is_a_problem_each_time(monkeypatch, times):
    keeper, tally = started(Starting(monkeypatch, answers_at=times + 2, exits=[101] * times))
    assert keeper.up.is_set()
    assert tally.stuck == times and "ended with 101" in tally.problems[0]
