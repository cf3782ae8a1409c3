from __future__ import annotations

from fractions import Fraction

import numpy as np

from ladder.decode.exact import Exact
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.program import Affine
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def exact(values, fmt=FLOAT16):
    return Exact.of(ValueSet.of(TType("t", len(values).bit_length() - 1, values=values)), fmt)


def test_a_candidate_is_checked_in_rational_numbers():
    magic = 0x6400  # 1024, whose last bits count ones
    found = exact([0, 1, 2, 3]).form((0, 1), magic, (0, 0), mirrored=False)
    assert (found.deferred, found.stored) == (Affine(Fraction(1), Fraction(-1024)), (0, 1, 2, 3))
    near = [0, 1, 2 + 2.0**-50, 3]
    assert exact(near).form((0, 1), magic, (0, 0), mirrored=False) is None


def test_thirds_and_small_bfloat16_lanes_are_exact():
    found = exact([0, 1 / 3, 2 / 3, 1 / 3 + 2 / 3], BFLOAT16).form(
        (0, 1), 0, (0, 0), mirrored=False
    )
    assert found is None  # 1/3 and 2/3 are rounded: no affine image of 0 .. 3
    found = exact([0, 2.0**-133, 2.0**-132, 3 * 2.0**-133], BFLOAT16)
    assert found.form((0, 1), 0, (0, 0), mirrored=False).deferred.is_identity


def test_mirrored_lanes_set_the_sign():
    found = exact([-5, -1, 1, 3]).form((0, 1), 0x6400, (0, 0), mirrored=True)
    assert found is None
    found = exact([-3, -2, -1, 0]).form((0, 1), 0x6400, (0, 0), mirrored=True)
    assert found.constant == 0xE400
    assert found.stored == (3, 2, 1, 0)
    assert found.deferred == Affine(Fraction(1), Fraction(1024))


def test_special_codes_get_lanes_of_their_kind():
    top = 0x7800  # exponent 30; with its lowest bit: infinity, with a mantissa bit too: NaN
    found = exact([0, np.inf, 1, np.nan]).form((0, 10), top, (0, 2), mirrored=False)
    assert found.carried == (1, 3)
    assert sorted(found.stored) == [0, 1, 2, 3]
