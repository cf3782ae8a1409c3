"""Meanings of register instructions against definitions in Python integers and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.codegen import semantics as s

#: overflow is part of what is tested; the emulator silences NumPy's warnings
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

WORD = st.integers(0, 0xFFFFFFFF)
HALF = st.integers(0, 0xFFFF)
#: zeros, subnormals, normals near both ends, infinities and NaN of float16 and of bfloat16
SPECIAL16 = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00)
SPECIAL_BF = (0, 0x8000, 1, 0x7F, 0x80, 0x3F80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0)


def words(*values):
    return np.array(values, np.uint32)


def test_lop3_is_its_truth_table():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 1 << 32, (3, 2), dtype=np.uint64).astype(np.uint32)
    for table in range(256):
        got = s.lop3(a, b, c, table)
        for i in range(2):
            want = 0
            for bit in range(32):
                x, y, z = (int(v[i]) >> bit & 1 for v in (a, b, c))
                want |= (table >> (x << 2 | y << 1 | z) & 1) << bit
            assert got[i] == want


def test_lop3_tables_of_the_operands_are_the_isas():
    a, b, c = words(0xF0), words(0xCC), words(0xAA)
    for table in range(256):
        assert s.lop3(a, b, c, table)[0] & 0xFF == table


@given(WORD, WORD, WORD)
def test_prmt_picks_bytes_and_signs(a, b, selector):
    pool = [a >> 8 * i & 255 for i in range(4)] + [b >> 8 * i & 255 for i in range(4)]
    want = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = pool[nibble & 7]
        want |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * i
    assert s.prmt(words(a), words(b), words(selector))[0] == want


@given(WORD, WORD)
def test_the_larger_of_two_integers_in_either_half(a, b):
    def signed(word):
        return [(word >> shift & 0xFFFF ^ 0x8000) - 0x8000 for shift in (0, 16)]

    low, high = map(max, zip(signed(a), signed(b), strict=True))
    assert s.max_s16x2(words(a), words(b))[0] == (high & 0xFFFF) << 16 | low & 0xFFFF


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("clamp", [True, False])
@given(WORD, WORD, st.integers(0, 80))
def test_funnel_shifts(left, clamp, low, high, count):
    wide = high << 32 | low
    n = min(count, 32) if clamp else count & 31
    want = (wide << n >> 32 if left else wide >> n) & 0xFFFFFFFF
    assert s.shf(words(low), words(high), words(count), left=left, clamp=clamp)[0] == want


@given(WORD, st.integers(0, 70))
def test_shifts_beyond_the_width_give_zero(a, count):
    assert s.shl(words(a), words(count))[0] == (a << count & 0xFFFFFFFF if count < 32 else 0)
    assert s.shr(words(a), words(count))[0] == (a >> count if count < 32 else 0)
    assert (
        s.rotate(words(a), count % 32)[0]
        == ((a << count % 32) | (a >> (32 - count % 32))) & 0xFFFFFFFF
    )


def exact(code, exponent_bits, mantissa_bits):
    """A finite code as a fraction; None for infinity and NaN."""
    sign = -1 if code >> (exponent_bits + mantissa_bits) else 1
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent == (1 << exponent_bits) - 1:
        return None
    if exponent == 0:
        return sign * Fraction(mantissa) * Fraction(2) ** (1 - bias - mantissa_bits)
    return (
        sign
        * Fraction(mantissa + (1 << mantissa_bits))
        * Fraction(2) ** (exponent - bias - mantissa_bits)
    )


def nearest(value, exponent_bits, mantissa_bits):
    """The code nearest to a fraction that is not zero, ties to the even code."""
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    low, high = 0, infinity  # codes are ordered by magnitude
    size = abs(value)
    top = exact(infinity - 1, exponent_bits, mantissa_bits)
    step = top - exact(infinity - 2, exponent_bits, mantissa_bits)
    if size >= top + step / 2:
        code = infinity
    else:
        while high - low > 1:
            middle = (low + high) // 2
            if middle < infinity and exact(middle, exponent_bits, mantissa_bits) <= size:
                low = middle
            else:
                high = middle
        below = size - exact(low, exponent_bits, mantissa_bits)
        above = (
            top + step if high == infinity else exact(high, exponent_bits, mantissa_bits)
        ) - size
        code = low if below < above or (below == above and low % 2 == 0) else high
    return code | (1 << (exponent_bits + mantissa_bits) if value < 0 else 0)


def check_fma(function, a, b, c, exponent_bits, mantissa_bits):
    got = int(function(words(a), words(b), words(c))[0]) & 0xFFFF
    x, y, z = (exact(v, exponent_bits, mantissa_bits) for v in (a, b, c))
    if x is None or y is None or z is None:
        return
    value = x * y + z
    if value == 0:
        assert got & 0x7FFF == 0
    else:
        assert got == nearest(value, exponent_bits, mantissa_bits), (hex(a), hex(b), hex(c))


@given(HALF, HALF, HALF)
def test_half_fma_rounds_once(a, b, c):
    check_fma(s.fma_f16x2, a, b, c, 5, 10)


@given(HALF, HALF, HALF)
def test_bfloat_fma_rounds_once(a, b, c):
    check_fma(s.fma_bf16x2, a, b, c, 8, 7)


def test_fma_of_special_operands():
    for a in SPECIAL16:
        for b in SPECIAL16:
            for c in SPECIAL16:
                check_fma(s.fma_f16x2, a, b, c, 5, 10)
    for a in SPECIAL_BF:
        for b in SPECIAL_BF:
            for c in SPECIAL_BF:
                check_fma(s.fma_bf16x2, a, b, c, 8, 7)


@pytest.mark.parametrize(
    "a, b, c",
    [
        (0x3C01, 0x3C01, 0x0001),
        (0x7BFF, 0x3C00, 0x4C00),
        (0x0401, 0x1001, 0x0001),
        (0x1400, 0x13FF, 0x8001),
    ],
)
def test_half_fma_near_ties(a, b, c):
    check_fma(s.fma_f16x2, a, b, c, 5, 10)
    check_fma(s.fma_f16x2, a, b | 0x8000, c, 5, 10)


def test_bfloat_fma_where_float32_would_round_twice():
    """1.0078125**2 + a half ulp of bfloat16 plus or minus one part in 2**40."""
    for c in (0x3B80, 0x3B81, 0x2B80, 0xAB80, 0x0001, 0x8001):
        check_fma(s.fma_bf16x2, 0x3F81, 0x3F81, c, 8, 7)


@pytest.mark.parametrize(
    "name, function",
    [("add", Fraction.__add__), ("sub", Fraction.__sub__), ("mul", Fraction.__mul__)],
)
@given(HALF, HALF)
def test_packed_arithmetic_rounds_once(name, function, a, b):
    for kind, bits in (("f16x2", (5, 10)), ("bf16x2", (8, 7))):
        x, y = exact(a, *bits), exact(b, *bits)
        if x is None or y is None:
            continue
        got = int(s.MEANINGS[f"{name}_{kind}"](words(a << 16), words(b << 16))[0]) >> 16
        value = function(x, y)
        if value == 0:
            assert got & 0x7FFF == 0
        else:
            assert got == nearest(value, *bits)


@pytest.mark.parametrize("function", [s.fma_f16x2, s.fma_bf16x2])
def test_invalid_operations_give_the_canonical_nan(function):
    infinity = 0x7C00 if function is s.fma_f16x2 else 0x7F80
    got = function(words(infinity), words(0), words(0))
    assert got[0] & 0xFFFF == 0x7FFF


def test_eight_bit_floats_widen_exactly():
    codes = np.arange(256, dtype=np.uint32)
    for function, dtype in (
        (s.e4m3x2_to_f16x2, ml_dtypes.float8_e4m3fn),
        (s.e5m2x2_to_f16x2, ml_dtypes.float8_e5m2),
    ):
        got = s.halves(function(codes | codes << 8))
        want = codes.astype(np.uint8).view(dtype).astype(np.float64)
        for half in range(2):
            np.testing.assert_array_equal(got[:, half].astype(np.float64), want)


def test_conversions_put_the_first_operand_high():
    high, low = np.array([1.5], np.float32), np.array([-2.0], np.float32)
    assert s.f32x2_to_f16x2(high, low)[0] == 0x3E00C000
    assert s.f32x2_to_bf16x2(high, low)[0] == 0x3FC0C000


@given(st.integers(0, 0xFFFFFFFF))
def test_bfloat_rounding_is_ml_dtypes(bits):
    x = np.array([bits], np.uint32).view(np.float32)
    want = x.astype(ml_dtypes.bfloat16)
    got = s.bf16_bits(x)
    if np.isnan(x[0]):
        assert got[0] == 0x7FFF
    else:
        assert got[0] == want.view(np.uint16)[0]


@given(WORD, WORD, WORD)
def test_single_fma_rounds_once(a, b, c):
    x, y, z = (exact(v, 8, 23) for v in (a, b, c))
    if x is None or y is None or z is None:
        return
    got = s.fma_f32(*(words(v).view(np.float32) for v in (a, b, c)))
    value = x * y + z
    if value == 0:
        assert got[0] == 0
    else:
        assert int(got.view(np.uint32)[0]) == nearest(value, 8, 23)


@pytest.mark.parametrize(
    "pair, codes, infinity", [("f16x2", SPECIAL16, 0x7C00), ("bf16x2", SPECIAL_BF, 0x7F80)]
)
def test_greatest_magnitudes_are_in_the_order_of_their_bits(pair, codes, infinity):
    """A NaN counts as the greatest, and is the canonical one."""
    greatest, magnitude = s.MEANINGS[f"max_nan_{pair}"], s.MEANINGS[f"abs_{pair}"]

    def ordered(code):
        return 0x7FFF if code & 0x7FFF > infinity else code & 0x7FFF

    for a in codes:
        for b in codes:
            one, other = magnitude(words(a << 16 | b)), magnitude(words(b << 16 | a))
            assert greatest(one, words(0))[0] == ordered(a) << 16 | ordered(b)
            assert greatest(one, other)[0] == max(ordered(a), ordered(b)) * 0x10001


def test_arguments_are_left_alone():
    a, b, c = words(1, 2), words(3, 4), words(5, 6)
    for name in ("prmt", "fma_f16x2", "add_f16x2", "shl"):
        s.MEANINGS[name](*(a, b, c)[: 3 if name in ("prmt", "fma_f16x2") else 2])
    assert (a == [1, 2]).all()
    assert (b == [3, 4]).all()
    assert (c == [5, 6]).all()
