from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.lanes import BFLOAT16, FLOAT16, small_float_table

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ALL = np.arange(1 << 16, dtype=np.uint32)


def by_dtype(fmt):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return ALL.astype(np.uint16).view(DTYPES[fmt.name]).astype(np.float64)


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_every_pattern_means_what_the_dtype_says(fmt):
    want = by_dtype(fmt)
    np.testing.assert_array_equal(fmt.table, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(fmt.table[number]), np.signbit(want[number]))


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_patterns_invert_values(fmt):
    numbers = ALL[~np.isnan(fmt.table)]
    np.testing.assert_array_equal(fmt.patterns(fmt.values(numbers)), numbers)
    assert int(fmt.patterns(np.float64("nan"))) == 0x7FFF


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_one_pattern_is_that_of_the_array(fmt):
    finite = np.unique(fmt.table[np.isfinite(fmt.table)][::7])
    want = fmt.patterns(finite + 0.0)
    assert [fmt.pattern(Fraction(float(x))) for x in finite] == want.tolist()
    assert all(fmt.holds(Fraction(float(x))) for x in finite)


def nearest_even(x, fmt):
    """The format's value nearest to a rational number, by looking at all of them."""
    finite = np.unique(fmt.table[np.isfinite(fmt.table)])
    ulp = finite[-1] - finite[-2]
    if abs(x) >= Fraction(float(finite[-1] + ulp / 2)):
        return np.inf if x > 0 else -np.inf
    i = int(np.searchsorted(finite, float(x)))
    near = [float(f) for f in finite[max(0, i - 2) : i + 2]]
    distance = min(abs(Fraction(f) - x) for f in near)
    best = [f for f in near if abs(Fraction(f) - x) == distance]
    return min(best, key=lambda f: fmt.pattern(Fraction(f)) & 1)


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@given(data=st.data())
def test_rounding_is_to_nearest_even(fmt, data):
    edges = [
        fmt.table[p]
        for p in (0, 1, 2, 3, 0x0400, 0x03FF, 0x0080, 0x007F, 0x7BFF, 0x7F7F, 0x3C01, 0x3F81)
    ]
    edges = [float(e) for e in edges if np.isfinite(e)]
    middle = st.sampled_from(edges).map(lambda e: e + float(np.spacing(e)) / 2)
    between = st.tuples(st.sampled_from(edges), st.sampled_from(edges)).map(
        lambda p: (p[0] + p[1]) / 2
    )
    x = data.draw(
        st.floats(-3.5e38, 3.5e38)
        | st.floats(-1e5, 1e5)
        | st.floats(-1e-6, 1e-6)
        | middle
        | between
    )
    assert float(fmt.round(np.float64(x))) == nearest_even(Fraction(x), fmt)


def test_rounding_to_float16_agrees_with_numpy():
    x = np.random.default_rng(0).integers(0, 1 << 63, 200_000).view(np.float64)
    x = np.concatenate([x[np.isfinite(x)], np.random.default_rng(1).normal(size=100_000) * 1e-5])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(FLOAT16.round(x), want)


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_a_format_holds_its_values_and_nothing_between(fmt):
    one = fmt.table[fmt.pattern(Fraction(1))]
    above = fmt.table[fmt.pattern(Fraction(1)) + 1]
    assert fmt.holds(Fraction(float(above)))
    assert not fmt.holds((Fraction(float(one)) + Fraction(float(above))) / 2)
    assert fmt.holds(Fraction(fmt.max))
    assert not fmt.holds(Fraction(fmt.max) * 2)
    assert not fmt.holds(Fraction(1, 3))
    assert not fmt.holds(Fraction(10) ** 400)


@pytest.mark.parametrize(
    "exponent, mantissa, finite, name",
    [(4, 3, True, "float8_e4m3fn"), (5, 2, False, "float8_e5m2")],
)
def test_byte_floats_agree_with_ml_dtypes(exponent, mantissa, finite, name):
    want = (
        np.arange(256, dtype=np.uint8).view(np.dtype(getattr(ml_dtypes, name))).astype(np.float64)
    )
    np.testing.assert_array_equal(small_float_table(exponent, mantissa, finite=finite), want)
