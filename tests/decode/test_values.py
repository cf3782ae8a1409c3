from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError, LosslessError
from ladder.ttype import TType


def test_values_are_sorted_with_minus_zero_first():
    values = ValueSet.of(TType("t", 2, values=[0.0, -0.0, 3, -1]))
    assert values.codes == (3, 1, 0, 2)
    assert values.values == (-1, 0, 0, 3)


def test_codes_without_a_number_are_told_apart():
    values = ValueSet.of(TType("t", 3, values=[0, 1, None, np.nan, np.inf, -np.inf, 2, None]))
    assert values.others == (2, 3, 4, 5, 7)
    assert [code for code, _ in values.special] == [3, 4, 5]
    assert values.missing == 5


def test_the_name_takes_no_part_in_equality():
    one, other = (ValueSet.of(TType(name, 1, values=[0, 1])) for name in ("a", "b"))
    assert one == other
    assert hash(one) == hash(other)


def test_values_are_exact():
    assert ValueSet.of(TType("t", 1, values=[0.1, 1e300])).values[0] == Fraction(0.1)


def test_rounding_is_refused_where_it_overflows():
    values = ValueSet.of(TType("t", 1, values=[0, 65520]))
    assert ValueSet.of(TType("t", 1, values=[0, 65519])).rounded(FLOAT16).largest == 65504
    assert values.rounded(BFLOAT16).largest == 65536
    with pytest.raises(LosslessError) as error:
        values.rounded(FLOAT16)
    assert str(error.value) == (
        "code 1 of t means 65520.0, beyond the largest float16 (65504.0)\n"
        "  at: decode of t to float16\n"
        "  hint: compute in bfloat16, or declare the values divided by a power of two and put that into the scale"
    )


class Wrong:
    name, bits, values, unused = "wrong", 9, np.zeros(512), ()


def test_what_is_no_element_is_refused():
    with pytest.raises(DecodeError, match="9-bit codes have no decode"):
        ValueSet.of(Wrong())
    few = Wrong()
    few.bits = 3
    with pytest.raises(DecodeError, match="512 values for 3-bit codes"):
        ValueSet.of(few)
    empty = Wrong()
    empty.bits, empty.values = 1, np.array([np.nan, np.inf])
    with pytest.raises(DecodeError, match="no code has a finite value"):
        ValueSet.of(empty)
