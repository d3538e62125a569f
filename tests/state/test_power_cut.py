"""What was answered outlives the machine's power: the short form of power_cuts.py."""

import pytest

from state.promises import rounds

pytestmark = pytest.mark.timeout(180)


def test_nothing_that_was_answered_is_missing_after_a_power_cut(tmp_path_factory):
    broken = rounds(tmp_path_factory.mktemp("soulbox-power"), cuts=4, per_life=4, seed=12)
    assert not broken, "\n".join(broken)
