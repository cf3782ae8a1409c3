"""The array helpers: frozen memory, exact rounding, and where something is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import TypeDeclarationError
from ladder.ttype.arrays import as_values, float_limits, read_only, round_mantissa, where


def test_read_only_copies_what_others_can_write_to() -> None:
    given = np.arange(4)
    frozen = read_only(given)
    given[0] = 9
    assert frozen[0] == 0
    assert not frozen.flags.writeable
    assert read_only(frozen) is frozen
    assert read_only(frozen, np.int8).dtype == np.int8
    assert read_only(frozen[::2]) is not frozen


def test_where_counts_and_points_at_the_first() -> None:
    assert where(np.array([[False, False], [True, True]])) == "2 of 4, first at [1, 0]"
    assert where(np.array(True)) == "1 of 1, first at []"


def test_values_are_real_numbers() -> None:
    assert as_values([1, 2], at="t").dtype == np.float64
    with pytest.raises(TypeDeclarationError, match="found an array of dtype complex128") as caught:
        as_values([1j], at="here")
    assert caught.value.at == "here"


def test_limits_are_plain_numbers() -> None:
    assert float_limits(np.dtype(np.float16)) == (-65504.0, 65504.0, 2.0**-24, 10, -14)


def test_mantissas_round_to_even_and_subnormals_share_an_ulp() -> None:
    halves = np.array([1 + 2**-11, 1 + 3 * 2**-11, 2.0**-25, 3 * 2.0**-25, 0.0, np.inf])
    want = [1, 1 + 2**-9, 0, 2 * 2.0**-24, 0, np.inf]
    assert round_mantissa(halves, 10, -14).tolist() == want
    assert np.signbit(round_mantissa(np.array([-0.0, -(2.0**-30)]), 10, -14)).all()
