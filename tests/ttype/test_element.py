"""Elements: the table, its codes, and encoding to nearest, against ml_dtypes and exact fractions."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import TypeDeclarationError
from ladder.ttype import Float, Integer, Ternary, TType, types

ELEMENTS = [t for t in types.values() if isinstance(t, TType)]
FLOAT16 = np.arange(2**16, dtype=np.uint16).view(np.float16)
FINITE16 = FLOAT16[np.isfinite(FLOAT16)]
FLOATS = {
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
E4M3, E5M2, FP4 = types["fp8_e4m3fn"], types["fp8_e5m2"], types["fp4_e2m1"]


def nearest_code(t: TType, x: float) -> int:
    """The definition, in exact arithmetic: least distance, a zero of x's own sign, even code, lowest code."""
    lowest: dict[tuple[float, float], int] = {}  # of equal values the lowest code stands for all
    for code in t.number_codes:
        value = float(t.values[code])
        lowest.setdefault((value, math.copysign(1, value)), code)
    if {(0.0, 1.0), (0.0, -1.0)} <= set(lowest):
        del lowest[0.0, -math.copysign(1, x)]
    distance = {
        code: abs(Fraction(value) - Fraction(x))
        for (value, _), code in lowest.items()
        if math.isfinite(value)
    }
    return min(distance, key=lambda code: (distance[code], code % 2, code))


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_every_number_encodes_to_its_own_code(t) -> None:
    codes = np.array(t.number_codes, np.uint8)
    np.testing.assert_array_equal(t.encode(t.decode(codes)), codes)
    assert t.encode(t.values[codes]).dtype == np.uint8


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_nearest_by_definition_at_and_around_every_midpoint(t) -> None:
    finite = np.unique(t.values[np.isfinite(t.values)])
    middle = (finite[:-1] + finite[1:]) / 2
    around = np.concatenate(
        [middle, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf), finite, [0.0, -0.0]]
    )
    around = np.concatenate([around, [-1e300, 1e300, -5e-324, 5e-324]])
    if len(around) > 120:
        around = around[np.random.default_rng(0).choice(len(around), 120, replace=False)]
    want = [nearest_code(t, x) for x in around.tolist()]
    np.testing.assert_array_equal(t.encode(around), want)


@pytest.mark.parametrize("name", FLOATS)
def test_float16_inputs_round_as_ml_dtypes_does(name) -> None:
    """All 63488 finite float16 values, ties among them; ml_dtypes overflows where this saturates."""
    t = types[name]
    want = FINITE16.astype(FLOATS[name]).astype(np.float64)
    beyond = ~np.isfinite(want)
    want[beyond] = np.copysign(t.max, FINITE16[beyond].astype(np.float64))
    got = t.decode(t.encode(FINITE16))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("t", [E4M3, E5M2], ids=str)
def test_casts_without_saturation_overflow_as_ml_dtypes_does(t) -> None:
    got = t.decode(t.encode(FINITE16, saturate=False))
    np.testing.assert_array_equal(got, FINITE16.astype(FLOATS[t.name]).astype(np.float64))


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4"])
def test_integers_agree_with_ml_dtypes_on_every_code(name) -> None:
    t = types[name]
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(2**t.bits, dtype=np.uint8)
    np.testing.assert_array_equal(t.values, codes.view(dtype).astype(np.float64))
    in_range = np.arange(t.min, t.max + 1)
    want = in_range.astype(dtype).view(np.uint8) & (2**t.bits - 1)
    np.testing.assert_array_equal(t.encode(in_range), want)


def test_e8m0_rounds_as_ml_dtypes_does_but_for_ties() -> None:
    t = types["e8m0"]
    positive = FINITE16[FINITE16 > 0]
    fraction, _ = np.frexp(positive)
    want = positive.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    got, tie = t.encode(positive), fraction == 0.75
    np.testing.assert_array_equal(got[~tie], want[~tie])
    assert np.all(got[tie] % 2 == 0)
    assert np.all(np.abs(got[tie].astype(int) - want[tie]) <= 1)


@given(
    values=st.lists(
        st.floats(-8, 8, width=16) | st.sampled_from([math.nan, math.inf, -math.inf, None, -0.0]),
        min_size=8,
        max_size=8,
    ).filter(lambda vs: any(v is not None and math.isfinite(v) for v in vs)),
    x=st.floats(-10, 10) | st.floats(-8, 8, width=16),
)
def test_any_table_encodes_to_the_nearest(values, x) -> None:
    t = TType("any", 3, values)
    code = int(t.encode(x))
    finite = t.values[np.isfinite(t.values)]
    best = min(abs(Fraction(v) - Fraction(x)) for v in finite.tolist())
    assert abs(Fraction(float(t.values[code])) - Fraction(x)) == best
    assert code not in t.unused
    assert code == int(np.flatnonzero(t.values == t.values[code])[0]) or t.values[code] == 0


def test_a_midpoint_that_float64_cannot_hold_is_not_rounded_the_wrong_way() -> None:
    low, high = 1.0, 1.0 + 2**-52
    t = TType("close", 1, [low, high])
    assert t.encode([low, high]).tolist() == [0, 1]
    wide = TType("wide", 1, [2.0**-60, 1.0])
    middle = (Fraction(2.0**-60) + 1) / 2  # 0.5 and a bit
    assert Fraction(0.5) < middle < Fraction(math.nextafter(0.5, 1))
    assert wide.encode([0.5, math.nextafter(0.5, 1)]).tolist() == [0, 1]
    wide = TType("wide", 1, [-(2.0**-60), 1.0])  # now it is 0.5 less a bit, and rounds up to 0.5
    assert wide.encode([math.nextafter(0.5, 0), 0.5]).tolist() == [0, 1]


def test_nibbles_of_int4_round_trip_for_all_256_pairs() -> None:
    """C08: pairs (lo, hi) = (-1, -8), (-8, 7), (-1, 0) give bytes 0x8F, 0x78, 0x0F."""
    int4 = types["int4"]
    low, high = (a.ravel() for a in np.meshgrid(np.arange(-8, 8), np.arange(-8, 8)))
    packed = int4.encode(low) | (int4.encode(high) << 4)
    found = {(int(lo), int(hi)): int(b) for lo, hi, b in zip(low, high, packed, strict=True)}
    assert [found[-1, -8], found[-8, 7], found[-1, 0]] == [0x8F, 0x78, 0x0F]
    np.testing.assert_array_equal(int4.decode(packed & 15), low)
    np.testing.assert_array_equal(int4.decode(packed >> 4), high)


def test_saturation_is_the_rule_and_overflow_a_choice() -> None:
    """C16: 256, 448, 464, 465, 1000, inf to e4m3fn, with and without saturation."""
    inputs = np.array([256, 448, 464, 465, 1000, np.inf], np.float32)
    np.testing.assert_array_equal(E4M3.decode(E4M3.encode(inputs)), [256, 448, 448, 448, 448, 448])
    np.testing.assert_array_equal(
        E4M3.decode(E4M3.encode(inputs, saturate=False)), [256, 448, 448, *[np.nan] * 3]
    )


def test_fp4_codes_and_casts() -> None:
    """C80: all 16 codes of e2m1, ties to even, saturation, and the sign of zero."""
    half = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    np.testing.assert_array_equal(FP4.values, half + [-v for v in half])
    assert np.signbit(FP4.values[8])
    inputs = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7, 1e9, -0.1]
    got = FP4.decode(FP4.encode(inputs))
    np.testing.assert_array_equal(got, [0, 1, 1, 2, 2, 4, 4, 6, 6, 0])
    assert np.signbit(got[-1])
    assert FP4.encode(-0.1) == 8


def test_fp6_biases_and_ranges() -> None:
    """C11, tables: bias 3 for e3m2 (largest 28.0), 1 for e2m3 (largest 7.5), no infinity, no NaN."""
    for name, largest in (("fp6_e3m2", 28.0), ("fp6_e2m3", 7.5)):
        t = types[name]
        assert (t.max, t.min) == (largest, -largest)
        assert np.isfinite(t.values).all()
        assert t.nan_codes == t.unused == ()


def test_block_scale_bytes_decode_in_full() -> None:
    """C22: 0x01 is the subnormal 2**-9, and 0x7E is 448."""
    np.testing.assert_array_equal(
        E4M3.decode([0x01, 0x07, 0x38, 0x40, 0x7E]), [0.001953125, 0.013671875, 1, 2, 448]
    )


def test_repacking_fn_as_fnuz_by_value_keeps_zero_and_nan() -> None:
    """C23: -0.0 becomes 0x00, NaN 0x80, and -1e-7 rounds to 0x00, not to NaN."""
    fnuz = TType("fp8_e4m3fnuz", 8, encoding=Float(4, 3, 8, "fnuz"))
    assert fnuz.encode(E4M3.decode([0x00, 0x80, 0x7F, 0xFF])).tolist() == [0, 0, 0x80, 0x80]
    assert fnuz.encode(np.float32(-1e-7)) == 0
    numbers = np.array(E4M3.number_codes, np.uint8)
    halved = E4M3.decode(numbers) / 2  # the factor that a doubled scale takes back
    np.testing.assert_array_equal(fnuz.decode(fnuz.encode(halved)) * 2, E4M3.decode(numbers))


def test_infinities_stay_where_the_type_has_them() -> None:
    assert E5M2.decode(E5M2.encode([np.inf, -np.inf])).tolist() == [np.inf, -np.inf]
    assert E5M2.decode(E5M2.encode([1e9, -1e9])).tolist() == [57344.0, -57344.0]
    assert FP4.decode(FP4.encode([np.inf, -np.inf])).tolist() == [6.0, -6.0]
    one_sided = TType("one_sided", 1, [1, math.inf])
    assert one_sided.encode([-math.inf, 1e300, math.inf]).tolist() == [0, 0, 1]


def test_minus_zero_is_kept_where_the_format_has_it() -> None:
    assert FP4.encode([0.0, -0.0]).tolist() == [0, 8]
    assert types["signmag3"].encode([0.0, -0.0, -0.4]).tolist() == [0, 4, 4]
    assert types["int4"].encode([0.0, -0.0, -0.4]).tolist() == [0, 0, 0]


def test_nan_takes_the_nan_code_or_is_refused() -> None:
    assert E4M3.encode([np.nan, 1.0]).tolist() == [0x7F, 0x38]
    assert types["e8m0"].encode(np.nan) == 255
    with pytest.raises(TypeDeclarationError) as caught:
        FP4.encode([[1.0, np.nan], [np.nan, 0.0]])
    assert caught.value.what == "fp4_e2m1 has no NaN, found NaN in 2 of 4, first at [0, 1]"


def test_overflow_without_infinity_or_nan_is_refused() -> None:
    assert FP4.encode([6.9, -6.9], saturate=False).tolist() == [7, 15]
    with pytest.raises(TypeDeclarationError, match="values beyond in 1 of 2, first at"):
        FP4.encode([6.0, 7.0], saturate=False)  # a tie with 8, whose code would be even


def test_unused_codes_are_refused_and_never_produced() -> None:
    ternary = types["ternary"]
    assert set(ternary.encode(np.linspace(-9, 9, 1001)).tolist()) == {0, 1, 2}
    with pytest.raises(
        TypeDeclarationError, match=r"unused codes of ternary in 2 of 3, first at \[1\]"
    ):
        ternary.decode([0, 3, 3])


@pytest.mark.parametrize(
    "codes, what",
    [
        ([16], "lie in 0..15, found others in 1 of 1"),
        ([0, -1], r"lie in 0..15, found others in 1 of 2, first at \[1\]"),
        ([1.0], "integers, found dtype float64"),
        (np.zeros(2, ml_dtypes.int4), "integers, found dtype int4"),
    ],
)
def test_codes_have_to_be_codes(codes, what) -> None:
    with pytest.raises(TypeDeclarationError, match=what):
        types["int4"].decode(codes)


@pytest.mark.parametrize("array", [["a"], [1j], [object()]])
def test_values_have_to_be_real_numbers(array) -> None:
    with pytest.raises(TypeDeclarationError, match="expected real numbers"):
        types["int4"].encode(np.array(array))


def test_shapes_are_kept() -> None:
    for shape in ((), (0,), (2, 0, 3), (2, 3, 4)):
        codes = FP4.encode(np.ones(shape))
        assert codes.shape == shape == FP4.decode(codes).shape


def test_derived_facts_come_from_the_table() -> None:
    t = TType("odd", 3, [-3, -0.5, None, math.nan, math.inf, 0.25, 2, -0.25])
    assert (t.min, t.max, t.pad_code) == (-3, 2, 5)
    assert (t.unused, t.nan_codes, t.number_codes) == ((2,), (3,), (0, 1, 4, 5, 6, 7))
    assert not t.has_zero
    assert not t.is_integer
    assert types["signmag4"].pad_code == 0
    assert types["bipolar4"].pad_code == types["bipolar4"].encode(1)
    assert types["int8"].is_integer
    assert types["ternary"].is_integer


def test_tables_are_read_only_and_types_have_no_setters() -> None:
    given = np.array([0.0, 1.0])
    t = TType("pair", 1, given)
    given[0] = 5
    assert t.values.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        t.values[0] = 3
    with pytest.raises(AttributeError):
        t.values = given


def test_equality_looks_at_every_bit() -> None:
    nans = TType("t", 2, [0, math.nan, 1, None])
    assert nans == TType("t", 2, [0, float("nan"), 1, None])
    assert hash(nans) == hash(TType("t", 2, [0, math.nan, 1, None]))
    assert nans != TType("t", 2, [-0.0, math.nan, 1, None])
    assert nans != TType("t", 2, [0, None, 1, math.nan])
    assert nans != TType("u", 2, [0, math.nan, 1, None])
    assert TType("i", 2, encoding=Integer(2)) == TType("i", 2, values=[0, 1, -2, -1])
    assert nans != "t"


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_types_pickle(t) -> None:
    assert pickle.loads(pickle.dumps(t)) == t


def test_a_function_declares_a_type_that_pickles() -> None:
    t = TType("log4", 4, encoding=lambda code: math.ldexp(1.0, -code) if code < 15 else None)
    assert t.values[3] == 0.125
    assert t.unused == (15,)
    assert pickle.loads(pickle.dumps(t)) == t


def test_types_print() -> None:
    assert str(E5M2) == "fp8_e5m2"
    assert repr(E5M2) == "TType('fp8_e5m2', bits=8, range=[-57344, 57344])"


class Half:
    """An encoding of a user's own."""

    bits = 1

    def table(self):
        return [0.5, Fraction(-1, 2)]


def test_an_encoding_of_ones_own_will_do() -> None:
    assert TType("half", 1, encoding=Half()).values.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    "arguments, what",
    [
        (("t", 3, [1, 2]), "3 bits take 8 values, found 2"),
        (("t", 1, [1, 2, 3]), "1 bits take 2 values, found 3"),
        (("t", 1, []), "1 bits take 2 values, found 0"),
        (("t", 0, [1]), "1 to 8 bits, found 0"),
        (("t", 9, range(512)), "1 to 8 bits, found 9"),
        (("t", 1, [math.nan, math.inf]), "no code has a finite value"),
        (("t", 1, [None, None]), "no code has a finite value"),
        (("t", 1, ["a", 1]), "expected a real number"),
        (("t", 1, [[0], [1]]), "expected a real number"),
        (("t", 1), "by its values or by an encoding"),
        (("t", 1, [0, 1], Integer(1)), "by its values or by an encoding"),
        (("t", 3, None, Ternary()), "3 bits take 8 values, found 4"),
        (("t", 2, None, Ternary), "expected an encoding or a function"),
        (("t", 2, None, 5), "expected an encoding or a function"),
        (("", 1, [0, 1]), "identifier, found ''"),
        (("my type", 1, [0, 1]), "identifier, found 'my type'"),
        ((None, 1, [0, 1]), "identifier, found None"),
    ],
)
def test_contradictions_are_refused_at_declaration(arguments, what) -> None:
    with pytest.raises(TypeDeclarationError, match=what) as caught:
        TType(*arguments)
    assert caught.value.hint
