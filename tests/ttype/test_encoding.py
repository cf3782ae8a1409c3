"""Encodings write down the tables that their formats define."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import TypeDeclarationError
from ladder.ttype import (
    Bipolar,
    Codebook,
    Encoding,
    Float,
    Integer,
    Offset,
    PowerOfTwo,
    SignMagnitude,
    Ternary,
)

WIDTHS = range(1, 9)


def table(encoding: Encoding) -> np.ndarray:
    return np.array([math.nan if v is None else v for v in encoding.table()])


@pytest.mark.parametrize("bits", WIDTHS)
def test_twos_complement_is_the_sum_of_weighted_bits(bits) -> None:
    codes = np.arange(2**bits)
    weights = [2**i for i in range(bits - 1)] + [-(2 ** (bits - 1))]
    want = sum(w * ((codes >> i) & 1) for i, w in enumerate(weights))
    np.testing.assert_array_equal(table(Integer(bits, signed=True)), want)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_other_integers_follow_their_formulas(bits) -> None:
    codes = np.arange(2**bits)
    np.testing.assert_array_equal(table(Integer(bits, signed=False)), codes)
    np.testing.assert_array_equal(table(Offset(bits)), codes - 2 ** (bits - 1))
    np.testing.assert_array_equal(
        table(Bipolar(bits)), sum(2**i * np.where(codes >> i & 1, 1, -1) for i in range(bits))
    )


@pytest.mark.parametrize("bits", WIDTHS)
def test_sign_magnitude_negates_by_its_top_bit_and_keeps_minus_zero(bits) -> None:
    values = table(SignMagnitude(bits))
    half = 2 ** (bits - 1)
    np.testing.assert_array_equal(values[:half], np.arange(half))
    np.testing.assert_array_equal(values[half:], -values[:half])
    assert np.signbit(values).tolist() == [False] * half + [True] * half


def test_one_bit_integers_are_what_the_docs_say() -> None:
    assert Integer(1).table() == (0.0, -1.0)
    assert Integer(1, signed=False).table() == (0.0, 1.0)
    assert Offset(1).table() == (-1.0, 0.0)
    assert Bipolar(1).table() == (-1.0, 1.0)
    assert [math.copysign(1, v) for v in SignMagnitude(1).table()] == [1, -1]


def test_ternary_leaves_code_3_unused() -> None:
    assert Ternary().table() == (-1.0, 0.0, 1.0, None)


FLOATS = [
    (Float(2, 1, 1), ml_dtypes.float4_e2m1fn),
    (Float(2, 3, 1), ml_dtypes.float6_e2m3fn),
    (Float(3, 2, 3), ml_dtypes.float6_e3m2fn),
    (Float(4, 3, 7, "fn"), ml_dtypes.float8_e4m3fn),
    (Float(4, 3, 7, "ieee"), ml_dtypes.float8_e4m3),
    (Float(3, 4, 3, "ieee"), ml_dtypes.float8_e3m4),
    (Float(5, 2, 15, "ieee"), ml_dtypes.float8_e5m2),
    (Float(4, 3, 8, "fnuz"), ml_dtypes.float8_e4m3fnuz),
    (Float(5, 2, 16, "fnuz"), ml_dtypes.float8_e5m2fnuz),
    (Float(4, 3, 11, "fnuz"), ml_dtypes.float8_e4m3b11fnuz),
    (PowerOfTwo(), ml_dtypes.float8_e8m0fnu),
]


@pytest.mark.parametrize("encoding, dtype", FLOATS, ids=lambda p: getattr(p, "__name__", ""))
def test_floats_agree_with_ml_dtypes_on_every_code(encoding, dtype) -> None:
    want = np.arange(2**encoding.bits, dtype=np.uint8).view(dtype).astype(np.float64)
    got = table(encoding)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def test_fn_and_fnuz_place_zero_one_and_nan_differently() -> None:
    """C23: bytes 0x00, 0x38, 0x7F, 0x80, 0xFF of e4m3 in the fn and the fnuz reading."""
    fn, fnuz = table(Float(4, 3, 7, "fn")), table(Float(4, 3, 8, "fnuz"))
    picked = [0x00, 0x38, 0x7F, 0x80, 0xFF]
    np.testing.assert_array_equal(fn[picked], [0.0, 1.0, np.nan, 0.0, np.nan])
    assert np.signbit(fn[0x80])
    np.testing.assert_array_equal(fnuz[picked], [0.0, 0.5, 240.0, np.nan, -240.0])


def test_codebooks_take_numbers_of_any_kind_that_float64_holds() -> None:
    given = [1, 0.5, np.float16(0.1), ml_dtypes.bfloat16(3), Fraction(3, 8), Decimal("0.25"), None]
    assert Codebook.of(given).table() == (1, 0.5, float(np.float16(0.1)), 3, 0.375, 0.25, None)
    assert math.isnan(Codebook.of([math.nan, 1]).values[0])


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), 2**53 + 1, 10**400, "1.0", b"1", 1j, True, [1], object()]
)
def test_codebooks_refuse_what_float64_does_not_hold(value) -> None:
    with pytest.raises(TypeDeclarationError, match="exactly, found") as caught:
        Codebook.of([0, value], at="mine")
    assert caught.value.at == "code 1 of mine"


def test_a_function_becomes_its_table() -> None:
    assert Codebook.from_function(lambda c: 2.0**-c, 2) == Codebook((1.0, 0.5, 0.25, 0.125))


@pytest.mark.parametrize("bits", [0, 9, -1, 2.0, True, "4"])
def test_widths_out_of_1_to_8_are_refused(bits) -> None:
    for encoding in (Integer, Offset, SignMagnitude, Bipolar, PowerOfTwo):
        with pytest.raises(TypeDeclarationError, match="1 to 8 bits, found"):
            encoding(bits)


@pytest.mark.parametrize(
    "arguments, what",
    [
        ((5, 3, 1), "1 to 8 bits"),
        ((0, 3, 1), "at least 1 exponent"),
        ((4, 3, 7, "inf"), "specials"),
    ],
)
def test_impossible_floats_are_refused(arguments, what) -> None:
    with pytest.raises(TypeDeclarationError, match=what):
        Float(*arguments)


def test_encodings_are_values() -> None:
    assert Float(2, 1, 1) == Float(2, 1, 1) != Float(2, 1, 2)
    assert len({Integer(4), Integer(4), Integer(4, signed=False), Offset(4)}) == 3
    assert isinstance(Ternary(), Encoding)
