"""Types that were hard to search: few values, and NaN, infinite and unused codes wherever they can be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ladder.decode import derive as module
from ladder.decode.derive import search_program
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.prove import prove
from ladder.decode.values import ValueSet
from ladder.decode.work import Work
from ladder.errors import LosslessError
from ladder.ttype import TType

NAN, INF = np.nan, np.inf
#: they took minutes once
SLOW = [
    [-3, 0, NAN, INF],
    [None, 0, 1, NAN],
    [0, 1, 3, NAN, None, None, INF, -INF],
]


def drawn(seed):
    """A table of 1 to 3 bits with a value at least, from pools where values are close to what lanes give."""
    rng = random.Random(seed)
    size = 1 << rng.choice([1, 2, 2, 2, 3])
    pools = [
        lambda: float(rng.randint(-8, 8)),
        lambda: float(rng.choice([0, 1, -1, 2, -2, 4, 0.5])),
        lambda: rng.uniform(-3, 3),
        lambda: rng.choice([1, -1]) * 2.0 ** rng.randint(-20, 14),
    ]
    pool = rng.choice(pools)
    finite = rng.randint(max(1, size - 4), size)
    values = [pool() for _ in range(finite)]
    values += [rng.choice([None, NAN, INF, -INF]) for _ in range(size - finite)]
    rng.shuffle(values)
    return TType(f"drawn{seed}", size.bit_length() - 1, values=values)


@pytest.fixture
def steps(monkeypatch):
    """Steps of the placements of each search since the start."""
    made = []

    class Counted(Work):
        def __init__(self, limit):
            super().__init__(limit)
            made.append(self)

    monkeypatch.setattr(module, "Work", Counted)
    return made


def search(element, compute):
    try:
        return search_program(ValueSet.of(element), compute)
    except LosslessError:
        return None


@pytest.mark.parametrize("compute", LANE_FORMATS)
@pytest.mark.parametrize("values", SLOW, ids=str)
def test_types_that_were_slow_take_few_steps(values, compute, steps):
    element = TType("slow", len(values).bit_length() - 1, values=values)
    program = search(element, compute)
    assert prove(program, element)
    assert program.exhausted or element.bits > 2
    limit = module.PLACE_WORK[element.bits > 4]
    assert sum(work.spent for work in steps) < limit * 5 // 4  # what one set of rotations may add


@pytest.mark.parametrize("seed", range(20))
def test_any_mix_of_codes_without_a_value_is_derived_and_proven(seed, steps):
    element = drawn(seed)
    compute = list(LANE_FORMATS)[seed % 2]
    program = search(element, compute)
    if program is not None:
        assert prove(program, element)
        assert program.exhausted == (not any(work.cut for work in steps))


def test_a_search_cut_short_says_so_is_proven_and_repeats(monkeypatch):
    monkeypatch.setattr(module, "PLACE_WORK", (40, 40))
    element = TType("cut", 2, values=[-3, 0, NAN, INF])
    first, second = search(element, "float16"), search(element, "float16")
    assert not first.exhausted
    assert first == second
    assert prove(first, element)
    assert "the search ended at its budget" in str(first)
