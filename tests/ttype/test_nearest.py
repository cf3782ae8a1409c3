"""The search structure behind encoding."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ladder.ttype.nearest import Nearest, prefer_upper


@pytest.mark.parametrize(
    "lower,upper,wins", [(0, 1, False), (1, 2, True), (4, 2, True), (2, 4, False), (7, 3, True)]
)
def test_ties_go_to_the_even_code_and_then_to_the_lower(lower, upper, wins) -> None:
    assert prefer_upper(lower, upper) is wins


def test_thresholds_are_the_first_inputs_of_the_upper_value() -> None:
    nearest = Nearest.of(np.array([0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, -0.0, 1.0]))
    assert nearest.codes.tolist() == [4, 6, 0, 1, 2, 3]
    assert nearest.values.tolist() == [-math.inf, 0, 0, 1, 2, math.inf]
    lowest = math.nextafter(-math.inf, 0)
    assert nearest.thresholds.tolist() == [lowest, 0.0, math.nextafter(0.5, 1), 1.5, math.inf]


def test_overflow_begins_half_a_step_beyond_the_end() -> None:
    even = Nearest.of(np.array([1.0, 2.0, 4.0]))  # the largest value has code 2
    assert even.overflows(np.array([5.0, math.nextafter(5, 6), 0.5, 0.4])).tolist() == [
        False,
        True,
        False,
        True,
    ]
    odd = Nearest.of(np.array([1.0, 3.0]))
    assert odd.overflows(np.array([4.0, math.nextafter(4, 0)])).tolist() == [True, False]
    single = Nearest.of(np.array([1.0, math.nan]))
    assert single.overflows(np.array([1.0, 1.1])).tolist() == [False, True]
    assert single.encode(np.array([-5.0, 9.0])).tolist() == [0, 0]
