"""Pausing keeps memory and files, however often and whatever happens to the server.

The long form, with 200 cycles of each, is `soak.py`.
"""

import pytest

from state.cycles import run_cycles

pytestmark = pytest.mark.timeout(300)


def test_fifteen_pauses_lose_nothing(server):
    assert run_cycles(server, 15, kill=False).cycles == 15


def test_pauses_with_the_server_killed_in_each_cycle_lose_nothing(own_server):
    summary = run_cycles(own_server().start(), 4, kill=True)
    assert (summary.cycles, summary.kills) == (4, 4)
