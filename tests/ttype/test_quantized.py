"""Quantised weights: what they accept, what they refuse, and what they mean."""

from __future__ import annotations

import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype import Quantized, TType, quantize, types
from ladder.ttype import quantized as module

INT4, UINT4, FP4 = types["int4"], types["uint4"], types["fp4_e2m1"]
E8M0, E4M3 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn


def by_hand(q: Quantized) -> np.ndarray:
    """The definition, element by element, in exact fractions; rounded to float64 at the end."""
    n, k = q.shape
    rows, columns = (e or s for e, s in zip(q.type.group, q.shape, strict=True))
    v = [Fraction(x) if np.isfinite(x) else None for x in q.type.element.values.tolist()]
    out = np.empty((n, k))
    for i in range(n):
        for j in range(k):
            at = (i // rows, j // columns)
            value = v[q.codes[i, j]]
            scale = 1 if q.scales is None else Fraction(float(q.scales[at]))
            scale *= 1 if q.global_scale is None else Fraction(float(q.global_scale))
            zero = None if q.zeros is None else q.zeros[at]
            match q.type.zero:
                case None:
                    weight = scale * value
                case "integer":
                    weight = scale * (value - v[zero])
                case "float":
                    weight = scale * (value - Fraction(float(zero)))
                case "rescaled":
                    weight = scale * value - Fraction(float(zero))
            out[i, j] = float(weight)
    return out


def a_quantized(name: str, group, scale, zero, shape, seed: int) -> Quantized:
    rng = np.random.default_rng(seed)
    element = types[name]
    wt = element.grouped(group, scale=scale, zero=zero)
    numbers = [c for c in element.number_codes if np.isfinite(element.values[c])]
    meta = wt.scale_shape(*shape)
    scales = np.exp2(rng.integers(-6, 6, meta)) * (
        1 if scale == "e8m0" else rng.integers(1, 8, meta)
    )
    zeros = None
    if zero == "integer":
        zeros = rng.choice(numbers, meta)
    elif zero is not None:
        zeros = rng.normal(size=meta).astype(wt.zero_dtype)
    return Quantized(wt, rng.choice(numbers, shape), scales.astype(wt.scale_dtype), zeros)


@given(
    name=st.sampled_from(
        ["int4", "uint3", "bipolar2", "ternary", "fp4_e2m1", "fp8_e5m2", "signmag5"]
    ),
    scale=st.sampled_from(["float16", "bfloat16", "float32", "fp8_e4m3fn", "e8m0"]),
    zero=st.sampled_from([None, "integer", "float", "rescaled"]),
    group=st.sampled_from(["tensor", "channel", 1, 4, 7, (2, 3), (None, 5), (3, None)]),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 17)),
    seed=st.integers(0, 99),
)
def test_every_convention_means_what_is_written(name, scale, zero, group, shape, seed) -> None:
    if scale in ("fp8_e4m3fn", "e8m0") and zero in ("float", "rescaled"):
        zero = "integer"
    q = a_quantized(name, group, scale, zero, shape, seed)
    weights = q.dequantize()
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, by_hand(q), rtol=1e-15, atol=1e-15)
    if zero is None or zero == "integer":
        np.testing.assert_array_equal(weights, by_hand(q))


def test_large_weights_are_handled_in_chunks(monkeypatch) -> None:
    q = a_quantized("uint4", (3, 4), "float16", "integer", (11, 10), 0)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 25)
    np.testing.assert_array_equal(q.dequantize(), by_hand(q))


def test_a_weight_equal_to_its_zero_is_exactly_0() -> None:
    """C27: all 16 x 16 (code, zero), scale 0.1, and scale 6000 where zero * scale overflows float16."""
    codes, zeros = (a.reshape(-1, 1) for a in np.meshgrid(np.arange(16), np.arange(16)))
    for scale in (0.1, 6000, 65504, 2.0**-24):
        scales = np.full(codes.shape, scale, np.float16)
        for zero in ("integer", "float"):
            q = Quantized(
                UINT4.grouped("channel", zero=zero),
                codes,
                scales,
                zeros if zero == "integer" else zeros.astype(np.float16),
            )
            want = (codes - zeros) * float(scales[0, 0])
            np.testing.assert_array_equal(q.dequantize(), want)
            assert np.all((q.dequantize() == 0) == (codes == zeros))
    wt = UINT4.grouped("tensor", zero="integer")
    assert Quantized(wt, [[14]], [[6000]], [[15]]).dequantize().tolist() == [[-6000.0]]


def test_mxfp4_with_the_smallest_scale_keeps_its_subnormals() -> None:
    """C21: scale byte 0 is 2**-127; 0.5 and 6.0 times it are no zero and no infinity."""
    q = Quantized(types["mxfp4"], FP4.encode([[0.5, 6.0]]), np.zeros((1, 1), np.uint8).view(E8M0))
    weights = q.dequantize()
    assert weights.tolist() == [[2.0**-128, 6 * 2.0**-127]]
    assert weights.astype(ml_dtypes.bfloat16).view(np.uint16)[0, 0] == 0x0020
    assert np.float64(q.scales[0, 0]).astype(ml_dtypes.bfloat16).view(np.uint16) == 0x0040
    assert weights.astype(np.float32)[0, 1] == np.float32(3.526483e-38)


def test_nvfp4_multiplies_both_levels() -> None:
    """C22: block scale bytes 0x01, 0x07, 0x38, 0x40, 0x7E."""
    scales = np.array([[0x01, 0x07, 0x38, 0x40, 0x7E]], np.uint8).view(E4M3)
    codes = FP4.encode(np.ones((1, 80)))
    q = Quantized(types["nvfp4"], codes, scales, global_scale=0.5)
    want = np.repeat([0.001953125, 0.013671875, 1, 2, 448], 16) / 2
    np.testing.assert_array_equal(q.dequantize()[0], want)
    assert q.global_scale.dtype == np.float32
    assert q == Quantized(types["nvfp4"], codes, scales, global_scale=np.array([0.5]))


def test_int4_is_twos_complement_and_integer_products_are_exact() -> None:
    """C09: all 16 codes; the other readings of a nibble have names of their own."""
    codes = np.tile(np.arange(16), (32, 4))
    activations = np.random.default_rng(0).integers(-128, 128, (32, 64))
    readings = {
        "int4": (codes + 8) % 16 - 8,
        "uint4": codes,
        "offset4": codes - 8,
        "bipolar4": 2 * codes - 15,
        "signmag4": np.where(codes < 8, codes, 8 - codes),
    }
    for name, integers in readings.items():
        weights = Quantized(name, codes).dequantize()
        np.testing.assert_array_equal(activations @ weights.T, activations @ integers.T)


def test_a_bare_element_has_no_metadata() -> None:
    q = Quantized(INT4, [[0, 15]])
    assert q.scales is q.zeros is q.global_scale is None
    assert q.dequantize().tolist() == [[0.0, -1.0]]
    assert repr(q) == "Quantized(int4, [1, 2], 4 bits per weight)"


def test_arrays_are_copies_or_frozen() -> None:
    codes = np.zeros((2, 4), np.uint8)
    scales = np.ones((2, 1), np.float16)
    zeros = np.zeros((2, 1), np.uint8)
    q = Quantized(INT4.grouped("channel", zero="integer"), codes, scales, zeros)
    codes[:], scales[:], zeros[:] = 1, 2, 3
    assert q.codes.max() == 0
    assert q.scales.max() == 1
    assert q.zeros.max() == 0
    for array in (q.codes, q.scales, q.zeros):
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    view = np.zeros((2, 4), np.uint8)
    frozen = view[:]
    frozen.setflags(write=False)  # a frozen view of memory that others can write to
    q = Quantized(INT4, frozen)
    view[:] = 7
    assert q.codes.max() == 0
    with pytest.raises(AttributeError):
        q.codes = codes


def test_equality_compares_bits_and_hashing_agrees() -> None:
    wt = INT4.grouped(4, zero="rescaled")
    q = Quantized(wt, np.ones((2, 8), int), np.ones((2, 2)), np.zeros((2, 2)))
    same = Quantized(wt, np.ones((2, 8), int), np.ones((2, 2)), np.zeros((2, 2)))
    assert q == same
    assert hash(q) == hash(same)
    assert q != Quantized(wt, np.ones((2, 8), int), np.ones((2, 2)), -np.zeros((2, 2)))
    assert q != Quantized(wt, np.ones((2, 8), int), np.full((2, 2), 2), np.zeros((2, 2)))
    assert q != Quantized(wt, np.zeros((2, 8), int), np.ones((2, 2)), np.zeros((2, 2)))
    assert Quantized("int4", [[1]]) != Quantized("uint4", [[1]])
    assert q != "q"


@pytest.mark.parametrize("name", ["int4", "mxfp4", "nvfp4"])
def test_pickling_keeps_everything(name) -> None:
    q = quantize(np.random.default_rng(0).normal(size=(3, 40)), name)
    again = pickle.loads(pickle.dumps(q))
    assert again == q
    assert not again.codes.flags.writeable


def test_repr_does_not_dump_arrays() -> None:
    q = a_quantized("int4", 128, "float16", "integer", (64, 256), 0)
    assert repr(q) == (
        "Quantized(int4 g128 scale=float16 zero=integer, [64, 256], 4.156 bits per weight)"
    )
    assert q.nbytes == 64 * 256 // 2 + 64 * 2 * 2 + 64


def test_scales_of_other_dtypes_are_cast() -> None:
    wt = INT4.grouped("channel", scale="bfloat16")
    for scales in ([[0.5]], np.float32([[0.5]]), np.array([[0.5]], E8M0), np.float64([[0.5]])):
        q = Quantized(wt, [[1]], scales)
        assert q.scales.dtype == ml_dtypes.bfloat16
        assert q.scales[0, 0] == 0.5
    assert Quantized(INT4.grouped("channel"), [[1]], [[0.1]]).scales[0, 0] == np.float16(0.1)


def test_inexact_8_bit_scales_are_refused_not_rounded() -> None:
    """C24: four float32 scales 0.006975 are no powers of two."""
    wt = INT4.grouped(1, scale="e8m0")
    with pytest.raises(TypeDeclarationError, match="no powers of two in e8m0: 4 of 4, first at"):
        Quantized(wt, [[1] * 4], np.full((1, 4), 0.006975, np.float32))
    q = Quantized(wt, [[1] * 4], np.full((1, 4), 2.0**-8, np.float32))
    assert q.scales.view(np.uint8).view(np.uint32)[0, 0] == 0x77777777
    with pytest.raises(TypeDeclarationError, match="not exact in fp8_e4m3fn: 1 of 1"):
        Quantized(INT4.grouped("tensor", scale="fp8_e4m3fn"), [[1]], [[0.3]])


def test_bytes_of_8_bit_scales_have_to_say_what_they_are() -> None:
    with pytest.raises(TypeDeclarationError, match="bytes or numbers") as caught:
        Quantized(types["mxfp4"], np.zeros((1, 32), int), np.full((1, 1), 64, np.uint8))
    assert "view(ml_dtypes.float8_e8m0fnu)" in caught.value.hint


def test_a_nan_scale_byte_is_refused_with_its_place() -> None:
    """C16: byte 0x7F among the block scales of an nvfp4 file; it is not 480."""
    scales = np.full((2, 3), 0x38, np.uint8)
    scales[1, 2] = 0x7F
    with pytest.raises(TypeDeclarationError) as caught:
        Quantized(types["nvfp4"], np.zeros((2, 48), int), scales.view(E4M3), global_scale=1)
    assert caught.value.what == "scales are not finite in fp8_e4m3fn: 1 of 6, first at [1, 2]"


CODES = np.zeros((2, 8), np.uint8)
ONES = np.ones((2, 2))
G4, ZERO = INT4.grouped(4), INT4.grouped(4, zero="integer")


@pytest.mark.parametrize(
    "arguments, kind, what",
    [
        ((INT4, CODES[0]), ShapeError, r"codes are \[N, K\].*found shape \[8\]"),
        ((INT4, CODES[:0]), ShapeError, r"found shape \[0, 8\]"),
        ((INT4, CODES + 16), TypeDeclarationError, "lie in 0..15, found others in 16 of 16"),
        ((INT4, CODES - 1.0), TypeDeclarationError, "integers, found dtype float64"),
        (("ternary", CODES + 3), TypeDeclarationError, "unused codes of ternary in 16 of 16"),
        (("fp8_e4m3fn", CODES + 127), TypeDeclarationError, "NaN codes of fp8_e4m3fn in 16 of 16"),
        (("float32", CODES), TypeDeclarationError, "for a weight, found float32"),
        ((INT4, CODES, ONES), TypeDeclarationError, "scales were given, but the type has none"),
        ((G4, CODES), TypeDeclarationError, "scales are missing"),
        ((G4, CODES, ONES, ONES), TypeDeclarationError, "zeros were given"),
        ((G4, CODES, ONES, None, 1), TypeDeclarationError, "global_scale were given"),
        ((ZERO, CODES, ONES), TypeDeclarationError, "zeros are missing"),
        ((G4, CODES, ONES.T[:1]), ShapeError, r"are \[2, 2\], found \[1, 2\]"),
        ((G4, CODES, ONES[0]), ShapeError, r"are \[2, 2\], found \[2\]"),
        ((ZERO, CODES, ONES, [[0, 0, 0]]), ShapeError, r"zeros of a weight \[2, 8\] are \[2, 2\]"),
        ((ZERO, CODES, ONES, ONES), TypeDeclarationError, "integers, found dtype float64"),
        ((ZERO, CODES, ONES, CODES[:, :2] + 16), TypeDeclarationError, "lie in 0..15"),
        ((G4, CODES, ONES * 1e6), TypeDeclarationError, "not finite in float16: 4 of 4"),
        ((G4, CODES, ONES * np.nan), TypeDeclarationError, "not finite in float16"),
        (("nvfp4", CODES, [[1.0], [1.0]]), TypeDeclarationError, "global_scale are missing"),
        (("nvfp4", CODES, [[1.0], [1.0]], None, np.inf), TypeDeclarationError, "to be finite"),
        (("nvfp4", CODES, [[1.0], [1.0]], None, [1, 2]), ShapeError, "is one number"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, kind, what) -> None:
    with pytest.raises(kind, match=what):
        Quantized(*arguments)


def test_zero_codes_are_finite_numbers() -> None:
    e5m2, ternary = types["fp8_e5m2"], types["ternary"]
    for element, code, what in (
        (e5m2, 0x7C, "infinite zeros"),
        (e5m2, 0x7D, "NaN codes"),
        (ternary, 3, "unused"),
    ):
        wt = element.grouped("tensor", zero="integer")
        with pytest.raises(TypeDeclarationError, match=f"{what}.* in 1 of 1"):
            Quantized(wt, [[0]], [[1.0]], [[code]])


def test_infinite_codes_mean_what_ieee_says() -> None:
    wt = types["fp8_e5m2"].grouped("channel")
    q = Quantized(wt, [[0x7C], [0x7C]], [[2.0], [0.0]])
    np.testing.assert_array_equal(q.dequantize(), [[np.inf], [np.nan]])


def test_a_users_codebook_works_as_any_type() -> None:
    t = TType("my_cb3", bits=3, values=[-1, -0.5, -0.2, 0, 0.15, 0.35, 0.6, 1])
    q = Quantized(t.grouped(2), [[0, 7, 3, 4]], [[2.0, 4.0]])
    assert q.dequantize().tolist() == [[-2.0, 2.0, 0.0, 0.6]]


def test_a_useless_tensor_of_zeros_is_reported_not_applied() -> None:
    """C35: codes offset by 8 are offset4 without zeros, or uint4 with zeros of 8; both at once is an error."""
    rng = np.random.default_rng(35)
    codes, scales = rng.integers(0, 16, (8, 64)), np.full((8, 2), 0.5, np.float16)
    zeros = np.full((8, 2), 8, np.uint8)
    symmetric = Quantized(types["offset4"].grouped(32), codes, scales)
    asymmetric = Quantized(types["uint4"].grouped(32, zero="integer"), codes, scales, zeros)
    want = (codes - 8) * 0.5
    np.testing.assert_array_equal(symmetric.dequantize(), want)
    np.testing.assert_array_equal(asymmetric.dequantize(), want)
    with pytest.raises(TypeDeclarationError, match="zeros were given, but the type has none"):
        Quantized(types["offset4"].grouped(32), codes, scales, zeros)
