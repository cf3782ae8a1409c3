"""Quantising: error bounds, groups of one kind, short groups, two levels."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype import GroupedType, Quantized, TType, element_type, quantize, types
from ladder.ttype import quantized as module

ELEMENTS = [t for t in types.values() if isinstance(t, TType)]
#: both signs and something in between: what symmetric quantising is for
SIGNED = [
    "int2", "int4", "int8", "offset3", "signmag4", "bipolar1", "bipolar3", "bipolar8", "ternary",
    "fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3fn", "fp8_e5m2", "nf4", "nf3",
]  # fmt: skip
FLOAT_SCALES = ["float16", "bfloat16", "float32"]
SCALES = [*FLOAT_SCALES, "fp8_e4m3fn", "e8m0"]


def step(q: Quantized) -> np.ndarray:
    """The largest gap between neighbouring values times the scale, for every weight."""
    finite = np.unique(q.type.element.values[np.isfinite(q.type.element.values)])
    rows, columns = q.type.group_extents(*q.shape)
    scales = np.repeat(np.repeat(q.scales.astype(np.float64), rows, 0), columns, 1)
    scales = scales[: q.shape[0], : q.shape[1]]
    return np.diff(finite).max() * scales * float(q.global_scale or 1)


def assert_within_half_a_step(q: Quantized, weights: np.ndarray) -> None:
    error = np.abs(q.dequantize() - weights)
    slack = 0.0
    if (
        q.type.zero == "rescaled"
    ):  # the stored zero is rounded: half an ulp, of float16 at the least
        slack = np.abs(q.zeros.astype(np.float64)).max() * 2.0**-8
    assert np.all(error <= step(q) / 2 * (1 + 1e-9) + slack)


def a_weight(seed: int, shape: tuple[int, int], spread: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) * np.exp(rng.normal(size=(shape[0], 1)) * spread)


@given(
    name=st.sampled_from(SIGNED),
    scale=st.sampled_from(SCALES),
    group=st.sampled_from(["tensor", "channel", 1, 5, 32, (2, 3), (None, 4)]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 70)),
    seed=st.integers(0, 999),
)
def test_symmetric_error_is_at_most_half_a_step(name, scale, group, shape, seed) -> None:
    weights = a_weight(seed, shape)
    wt = types[name].grouped(group, scale=scale)
    q = quantize(weights, wt)
    assert q.type == wt
    if scale == "fp8_e4m3fn" or not types[name].has_zero:  # a scale may vanish; bounded otherwise
        covered = step(q) > 0
        weights = np.where(covered, weights, q.dequantize())
    assert_within_half_a_step(q, weights)


@given(
    name=st.sampled_from([*SIGNED, "uint1", "uint4", "uint8", "int1", "offset1"]),
    scale=st.sampled_from(FLOAT_SCALES),
    zero=st.sampled_from(["integer", "float", "rescaled"]),
    group=st.sampled_from(["tensor", "channel", 5, 32, (2, 3)]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 70)),
    shift=st.sampled_from([-3.0, 0.0, 3.0]),
    seed=st.integers(0, 999),
)
def test_asymmetric_error_is_at_most_half_a_step(
    name, scale, zero, group, shape, shift, seed
) -> None:
    weights = a_weight(seed, shape, spread=0.3) + shift
    q = quantize(weights, types[name].grouped(group, scale=scale, zero=zero))
    assert_within_half_a_step(q, weights)


@given(
    name=st.sampled_from(SIGNED),
    zero=st.sampled_from([None, "integer", "float"]),
    seed=st.integers(0, 999),
)
def test_what_was_quantised_is_quantised_to_itself(name, zero, seed) -> None:
    """Weights on a float32 grid whose ends occur come back bit by bit."""
    rng = np.random.default_rng(seed)
    element = types[name]
    codes = rng.choice(element.number_codes, (3, 64))
    finite = np.isfinite(element.values[codes])
    codes = np.where(finite, codes, element.pad_code)
    codes[:, 0], codes[:, 1] = element.encode(element.min), element.encode(element.max)
    wt = element.grouped("channel", scale="float32", zero=zero)
    zeros = None if zero is None else np.full((3, 1), element.pad_code)
    if zero == "float":
        zeros = element.values[zeros].astype(np.float32)
    scales = np.exp2(rng.integers(-9, 9, (3, 1))).astype(np.float32)
    q = Quantized(wt, codes, scales, zeros)
    weights = q.dequantize()
    np.testing.assert_array_equal(quantize(weights, wt).dequantize(), weights)


@pytest.mark.parametrize("zero", [None, "integer", "float", "rescaled"])
@pytest.mark.parametrize(
    "name", ["int4", "int8", "uint4", "fp8_e4m3fn", "fp4_e2m1", "nf4", "bipolar4"]
)
def test_constant_and_vanishing_groups_stay_finite(name, zero) -> None:
    """C29: groups all 0.0, all 9.0, all -9.0, absmax 1e-30."""
    weights = np.repeat([[0.0, 9.0, -9.0, 1e-30, -1e-30]], 32, axis=1)
    q = quantize(weights, types[name].grouped(32, zero=zero))
    assert np.isfinite(q.scales.astype(np.float64)).all()
    zeros, nines, minus, tiny, _ = got = np.split(q.dequantize()[0], 5)
    assert np.isfinite(got).all()
    assert np.all(zeros == 0)
    assert np.abs(tiny).max() < 1e-6
    half = step(q)[0] / 2
    assert np.all(np.abs(nines - 9) <= half[32:64])
    if name != "uint4" or zero is not None:
        assert np.all(np.abs(minus + 9) <= half[64:96])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_zeros_become_zeros_in_every_type(t, scale) -> None:
    q = quantize(np.zeros((2, 33)), t.grouped(32, scale=scale))
    if t.has_zero or scale != "e8m0":
        assert not q.dequantize().any()
    assert np.abs(q.dequantize()).max() <= 2.0**-127 * max(t.max, -t.min)


@pytest.mark.parametrize("zero", ["integer", "float", "rescaled"])
def test_groups_of_zeros_do_not_suffer_from_the_rounding_of_the_zero(zero) -> None:
    t = TType("thirds", 2, [-0.7, 0.1, 0, 0.3])  # -0.7 is no float16
    q = quantize(np.zeros((2, 5)), t.grouped(4, zero=zero))
    assert not q.dequantize().any()


@pytest.mark.parametrize("zero", ["integer", "float"])
@pytest.mark.parametrize("name", ["uint4", "int4", "fp4_e2m1", "nf4", "bipolar3"])
def test_a_weight_of_zero_stays_exactly_zero(name, zero) -> None:
    weights = a_weight(0, (4, 64)) + 1.5
    weights[:, ::5] = 0
    q = quantize(weights, types[name].grouped(16, scale="float32", zero=zero))
    assert not q.dequantize()[:, ::5].any()


@pytest.mark.parametrize("scale", FLOAT_SCALES)
def test_the_range_of_a_group_includes_zero(scale) -> None:
    """C30: uint4 of [1.0, 2.0]: s = 2/15, z = 0, codes [8, 15]; and the mirror image."""
    wt = types["uint4"].grouped(2, scale=scale, zero="integer")
    q = quantize([[1.0, 2.0]], wt)
    assert q.zeros.tolist() == [[0]]
    assert float(q.scales[0, 0]) == pytest.approx(2 / 15, rel=2**-8)
    np.testing.assert_allclose(q.dequantize(), [[1, 2]], atol=float(q.scales[0, 0]) / 2 + 1e-6)
    if scale == "float16":
        assert q.codes.tolist() == [[8, 15]]
    mirror = quantize([[-1.0, -2.0]], wt)
    assert mirror.zeros.tolist() == [[15]]
    np.testing.assert_allclose(mirror.dequantize(), [[-1, -2]], atol=2 / 30 + 1e-6)


def test_scales_are_the_smallest_that_hold_both_ends() -> None:
    def scale(name: str, weights: list[float]) -> float:
        return float(
            quantize([weights], types[name].grouped("tensor", scale="float32")).scales[0, 0]
        )

    assert scale("fp4_e2m1", [-12, 3]) == 2
    assert scale("int4", [7, -3]) == 1
    assert scale("int4", [7, -16]) == 2
    assert scale("nf4", [-0.5, 0.25]) == 0.5
    assert scale("uint4", [30, -99]) == 2
    assert scale("bipolar2", [-6, 1]) == 2


@given(st.floats(2.0**-100, 2.0**100))
def test_e8m0_scales_are_rounded_up_so_that_nothing_saturates(largest) -> None:
    q = quantize([[largest, -largest / 3]], types["mxfp4"])
    scale = float(q.scales[0, 0])
    assert scale / 2 * 6 < largest <= scale * 6


@pytest.mark.parametrize("block, groups", [(64, 4), (32, 7), (209, 1), (1024, 1)])
def test_short_last_groups_have_scales_of_their_own(block, groups) -> None:
    """C82: NF4, block 64 and 209 values, a tail of 17 with maximum 0.5, hostile memory behind it."""
    memory = np.full((2, 300), 1e30, np.float32)
    weights = memory[:1, :209]
    weights[:] = np.random.default_rng(0).uniform(-2, 2, 209)
    weights[0, 192:] = np.linspace(-0.25, 0.5, 17)
    q = quantize(weights, types["nf4"].grouped(block))
    assert q.scales.shape == (1, groups)
    if block == 64:
        assert q.scales[0, -1] == 0.5
    starts = range(0, 209, block)
    want = [np.float16(np.abs(weights[0, i : i + block]).max()) for i in starts]
    assert q.scales[0].tolist() == want


def test_short_last_blocks_of_rows() -> None:
    weights = np.arange(1.0, 36.0).reshape(5, 7)
    q = quantize(weights, types["fp8_e4m3fn"].grouped((2, 4), scale="float32"))
    blocks = [[weights[i : i + 2, j : j + 4].max() for j in (0, 4)] for i in (0, 2, 4)]
    np.testing.assert_allclose(q.scales.astype(float) * 448, blocks, rtol=1e-6)


@pytest.mark.parametrize("name", ["nf4", "fp4_e2m1"])
def test_errors_grow_smoothly_with_the_block(name) -> None:
    """C81: blocks 64..4096 and n=16 with block 1024, against a direct search of the table."""
    t = types[name]
    weights = np.random.default_rng(1).normal(size=(4, 8192))
    errors = []
    for block in (64, 128, 256, 512, 1024, 2048, 4096):
        q = quantize(weights, t.grouped(block, scale="float32"))
        pieces = weights.reshape(-1, block)
        scale = (np.abs(pieces).max(1, keepdims=True) / t.max).astype(np.float32).astype(float)
        distance = np.abs(pieces[:, :256, None] / scale[:, :, None] - t.values)
        want = t.values[distance.argmin(-1)] * scale
        np.testing.assert_allclose(
            q.dequantize().reshape(-1, block)[:, :256], want, rtol=1e-12, atol=1e-12
        )
        errors.append(np.sqrt(np.mean((q.dequantize() - weights) ** 2)))
    growth = np.diff(np.log(errors))
    assert np.all(growth > 0)
    assert np.all(growth < 0.2)
    assert quantize(weights[:1, :16], t.grouped(1024)).scales.shape == (1, 1)


def test_nvfp4_brings_the_largest_group_scale_to_448() -> None:
    weights = a_weight(3, (8, 100), spread=2)
    q = quantize(weights, types["nvfp4"])
    assert q.scales.dtype == ml_dtypes.float8_e4m3fn
    assert float(q.scales.astype(float).max()) == 448
    assert float(q.global_scale) == np.float32(np.abs(weights).max() / 6 / 448)
    assert_within_half_a_step(q, weights)
    assert np.abs(q.dequantize()).max() > 0.9 * np.abs(weights).max()


def test_nvfp4_of_data_that_are_tiny_against_the_tensor_does_not_vanish_unevenly() -> None:
    """C80, scales: a group 1000 times smaller than the largest keeps its shape."""
    weights = np.concatenate([np.full((1, 16), 6000.0), np.linspace(-6, 6, 16)[None]], axis=1)
    q = quantize(weights, types["nvfp4"])
    assert len(np.unique(q.dequantize()[0, 16:])) > 4
    assert_within_half_a_step(q, weights)
    zeros = quantize(np.zeros((2, 16)), types["nvfp4"])
    assert zeros.global_scale == 1
    assert not zeros.dequantize().any()


def test_weights_of_any_float_dtype() -> None:
    weights = a_weight(0, (3, 20)).astype(ml_dtypes.bfloat16)
    q = quantize(weights, types["int4"].grouped(8))
    assert q == quantize(weights.astype(np.float64), types["int4"].grouped(8))
    assert q == quantize(weights.astype(np.float32), types["int4"].grouped(8))
    assert quantize([[1, -8]], "int4").dequantize().tolist() == [[1, -8]]


def test_without_scales_values_are_encoded_as_they_are() -> None:
    q = quantize([[0.3, 1000, -0.0]], "fp8_e4m3fn")
    assert q.type == GroupedType(element_type("fp8_e4m3fn"), scale=None)
    assert q.dequantize().tolist() == [[0.3125, 448, 0]]


def test_large_weights_are_handled_in_chunks(monkeypatch) -> None:
    weights = a_weight(0, (37, 50))
    wt = types["uint4"].grouped((4, 16), zero="integer")
    whole = quantize(weights, wt)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 130)
    assert quantize(weights, wt) == whole


def test_scales_beyond_their_type_are_refused() -> None:
    with pytest.raises(TypeDeclarationError) as caught:
        quantize([[1.0, 1e6]], types["int4"].grouped(1))
    assert "a group needs a scale of 1.429e+05, and float16 ends at 65504" in caught.value.what
    assert "1 of 2, first at [0, 1]" in caught.value.what
    with pytest.raises(TypeDeclarationError, match="fp8_e4m3fn ends at 448"):
        quantize([[460.0 * 255, -1]], types["uint8"].grouped(1, scale="fp8_e4m3fn"))


def test_small_scales_of_few_bits_do_not_saturate() -> None:
    """A float16 scale among the subnormals is rounded up where rounding down would cut the range."""
    weights = np.array([[1.4 * 2.0**-24 * 127, 2.0**-24]])
    q = quantize(weights, types["int8"].grouped("tensor"))
    assert float(q.scales[0, 0]) == 2.0**-23
    assert_within_half_a_step(q, weights)


def test_non_finite_weights_are_refused_with_their_place() -> None:
    weights = np.ones((2, 3))
    weights[1, 1] = np.nan
    for wt in ("int4", "mxfp4"):
        with pytest.raises(TypeDeclarationError, match=r"not finite in 1 of 6, first at \[1, 1\]"):
            quantize(weights, wt)


@pytest.mark.parametrize("weights", [[1.0], [[[1.0]]], np.ones((0, 4))])
def test_weights_are_matrices(weights) -> None:
    with pytest.raises(ShapeError, match=r"weights are \[N, K\]"):
        quantize(weights, "int4")


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_codes_of_every_type_are_numbers(t) -> None:
    q = quantize(a_weight(0, (4, 70)), t.grouped(32, scale="float32"))
    assert set(np.unique(q.codes).tolist()) <= set(t.number_codes)
    assert np.isfinite(q.dequantize()).all()


@pytest.mark.parametrize(
    "strided",
    [
        lambda w: w[:, ::2],
        lambda w: w[::-1, ::-1],
        lambda w: w.T,
        np.asfortranarray,
        lambda w: np.broadcast_to(w[0], w.shape),
        lambda w: w[::2],
    ],
)
def test_strides_of_weights_do_not_matter(strided) -> None:
    """C47, quantiser: the same codes, scales and zeros as for a contiguous copy."""
    weights = np.random.default_rng(47).standard_normal((24, 40)).astype(np.float32)
    wt = types["int4"].grouped(16, zero="integer")
    given = strided(weights)
    q = quantize(given, wt)
    assert q == quantize(np.ascontiguousarray(given), wt)
    lying = np.repeat(np.repeat(q.codes, 2, 0), 2, 1)[::2, ::2]
    assert Quantized(wt, lying, np.asfortranarray(q.scales), np.asfortranarray(q.zeros)) == q


def test_rows_of_unequal_length_are_named() -> None:
    with pytest.raises(TypeDeclarationError, match="the numbers make no array") as caught:
        quantize([[1.0], [1.0, 2.0]], types["int4"].grouped(16))
    assert (caught.value.at, caught.value.hint) == (
        "int4 g16 scale=float16",
        "give every row the same length",
    )


@pytest.mark.parametrize("scales", [[[1 + 1j]], [["1"]], [[object()]]])
def test_scales_are_real_numbers(scales) -> None:
    with pytest.raises(TypeDeclarationError, match="scales are real numbers") as caught:
        Quantized(types["int4"].grouped(16), [[1]], scales=np.array(scales))
    assert "float array" in caught.value.hint


@pytest.mark.parametrize("group", [128, "channel", (128, 128), (32, 100), "tensor"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_large_weights_are_quantised_in_parts_with_the_same_result(group, dtype, monkeypatch):
    home = sys.modules["ladder.ttype.quantize"]  # the package has a function of that name
    weights = np.random.default_rng(0).normal(size=(300, 4000)).astype(dtype)
    weights[7, :256] = 0
    wt = types["int4"].grouped(group, zero="integer")
    whole = quantize(weights, wt)
    monkeypatch.setattr(home, "PART_WEIGHTS", 1 << 16)
    parts = home._parts(weights, wt)
    assert len(parts) > 1 or group == "tensor"
    assert quantize(weights, wt) == whole
    monkeypatch.setattr(home, "LARGE", 1 << 62)
    assert quantize(weights, wt) == whole


def test_what_is_wrong_in_a_part_is_placed_in_the_whole():
    weights = np.zeros((600, 2048), np.float32)
    weights[555, 3] = np.nan
    with pytest.raises(TypeDeclarationError, match=r"1 of 1228800, first at \[555, 3\]"):
        quantize(weights, types["int4"].grouped(128))
