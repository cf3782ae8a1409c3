from __future__ import annotations

from math import comb

import pytest

from ladder.decode.forms import grids
from ladder.decode.holes import candidates, every_end, first_ends, more_ends
from ladder.decode.lanes import FLOAT16


@pytest.mark.parametrize("missing", range(20))
def test_both_stages_are_all_ways_and_meet_in_none(missing):
    first, more = first_ends(missing), more_ends(missing)
    assert set(first) | set(more) == set(every_end(missing))
    assert not set(first) & set(more)
    assert len(every_end(missing)) == comb(missing + 2, 2)
    assert bool(more) == (missing > 3)


def test_candidates_are_those_of_the_grids():
    for bits in (1, 2, 4):
        assert sum(len(grid.constant) for grid in grids(bits, FLOAT16)) == candidates(bits)
