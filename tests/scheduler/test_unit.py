"""The unit of a weight: whatever the scales, nothing overflows, and nothing but a power of two is taken and given back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import TypeDeclarationError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Packing, Plan, Tiling, choose_packing
from ladder.scheduler.unit import (
    further,
    largest_finite_bits,
    magnitude_mask,
    magnitude_of,
    unit_for,
)
from ladder.ttype import GroupedType, Quantized

FEATURES = devices["h200"].features
N, K, GROUP = 8, 64, 32
#: smallest subnormal and normal, ordinary, and large scales of each type; past 2^100 weights leave float32's range anyway
EXTREMES = {
    "float16": (2.0**-24, 2.0**-14, 1e-7, 1e-3, 1.0, 65504.0),
    "bfloat16": (2.0**-133, 2.0**-126, 1e-7, 1.0, 65504.0, 2.0**100),
    "float32": (2.0**-149, 2.0**-126, 1e-7, 1.0, 65504.0, 2.0**100),
    "e8m0": (2.0**-127, 2.0**-14, 1.0, 2.0**15, 2.0**100),
    "fp8_e4m3fn": (2.0**-9, 2.0**-6, 1.0, 448.0),
}
NAMES = ("int4", "nf4", "int8", "fp8_e4m3fn", "int3", "fp4_e2m1", "uint8", "int1", "e8m0")
SCALES = tuple((scale, value) for scale, values in EXTREMES.items() for value in values)


def packing_of(weight: GroupedType, activation: str, n: int = N, k: int = K) -> Packing:
    return choose_packing(matmul(None, n, k, activation=activation, weight=weight), FEATURES)


def parts(packing: Packing, scales: Any, zeros: Any = None) -> tuple[Any, ...]:
    """(2^-e, 2^e) as float32, and float64 values of every S, Z and product before they are rounded."""
    wt = packing.weight
    down, up = (np.float32(part) for part in unit_for(packing, *_largest(scales, zeros)))
    values = wt.element.values[np.isfinite(wt.element.values)]
    scale = np.abs(np.asarray(scales, np.float64)).reshape(-1, 1)
    taken = (
        np.zeros((1, 1)) if zeros is None else np.abs(np.asarray(zeros, np.float64)).reshape(1, -1)
    )
    affine = [a for pair in packing.program.affine for a in pair]
    alpha = max(abs(float(a.alpha)) for a in affine)
    beta = max(abs(float(a.beta)) for a in affine)
    largest = np.abs(values).max()
    each = taken if wt.zero == "rescaled" else scale * taken
    return (
        down,
        up,
        scale * alpha * down,
        (scale * beta + each) * down,
        (scale * largest + each) * down,
    )


def _largest(scales: Any, zeros: Any) -> tuple[float, float | None]:
    most = float(np.abs(np.asarray(scales, np.float64)).max())
    return most, None if zeros is None else float(np.abs(np.asarray(zeros, np.float64)).max())


def holds(packing: Packing, scales: Any, zeros: Any = None) -> None:
    down, up, *numbers = parts(packing, scales, zeros)
    assert down * up == 1
    assert math.frexp(float(down))[0] == 0.5  # a power of two
    assert np.isfinite(down) and np.isfinite(up) and down > 0 and up > 0
    most = float(ml_dtypes.finfo(packing.program.compute).max)
    for array in numbers:
        assert array.max() <= most, (packing.title, scales, zeros)


@pytest.mark.parametrize("scale, value", SCALES)
@pytest.mark.parametrize("name", ["fp4_e2m1", "fp6_e3m2", "fp8_e4m3fn"])
def test_nothing_overflows_where_scales_apply_the_factor_of_bare_lanes(name, scale, value):
    weight = types[name].grouped(GROUP, scale=scale)
    packing = packing_of(weight, "bfloat16")
    op = matmul(None, N, K, activation="bfloat16", weight=weight)
    tiling = Tiling(1, 4, 1, 1, 2)
    plan = Plan(op, devices["h200"], packing, "specialised", tiling, 3, scale="register")
    assert plan.reading is packing.readings.bare
    down, _ = unit_for(packing, value, None)
    own, _ = unit_for(plan.reading, value, None)  # the unit that parts() takes
    most = float(ml_dtypes.finfo("bfloat16").max)
    for numbers in parts(plan.reading, [value])[2:]:
        assert numbers.max() * (down / own) / further(plan) <= most


@pytest.mark.parametrize("name", ["uint8", "signmag8", "int4"])
def test_bare_lanes_with_a_zero_or_a_factor_beyond_float32_are_not_scaled(name):
    packing = packing_of(types[name].grouped(GROUP), "bfloat16")
    assert packing.readings.bare is not None
    assert packing.readings.scaled is packing


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_for_any_scale(name, activation):
    if (name, activation) == ("e8m0", "float16"):
        return  # the operator is refused
    for scale, value in SCALES:
        if name == "e8m0" and value > 1:
            continue  # 2^127 times that is past every type's range, with or without a unit
        weight = types[name].grouped(GROUP, scale=scale)
        holds(packing_of(weight, activation), [value])


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
@pytest.mark.parametrize("zero", ["float", "rescaled"])
@pytest.mark.parametrize("name", ["int4", "nf4", "uint8"])
def test_nothing_overflows_for_any_zero(name, zero, activation):
    packing = packing_of(types[name].grouped(GROUP, scale="float16", zero=zero), activation)
    for scale in EXTREMES["float16"]:
        for value in (0.0, 2.0**-24, 8.0, 255.0, 65504.0):
            holds(packing, [scale], [value])


@given(
    name=st.sampled_from(["int4", "nf4", "int8", "int3"]),
    activation=st.sampled_from(["float16", "bfloat16"]),
    scale=st.floats(2.0**-149, 2.0**100, width=32),
    ratio=st.floats(2.0**-20, 1.0, width=32),
)
def test_small_groups_keep_what_a_large_one_leaves_them(name, activation, scale, ratio):
    """The largest of S, Z and products lies within two powers of two of the top of float16, and never above it."""
    packing = packing_of(types[name].grouped(GROUP, scale="float32"), activation)
    holds(packing, [scale, scale * ratio])
    _, up, *numbers = parts(packing, [scale])
    if activation == "float16" and 2.0**-126 < float(up) < 2.0**126:
        assert max(float(array.max()) for array in numbers) >= 2.0**14


def packed_unit(packing: Packing, scales: Any, zeros: Any = None) -> np.ndarray:
    wt = packing.weight
    shape = wt.scale_shape(packing.n, packing.k)
    scales = np.broadcast_to(np.asarray(scales, wt.scale_dtype), shape)
    parts = (
        {}
        if zeros is None
        else {"zeros": np.broadcast_to(np.asarray(zeros, wt.scale_dtype), shape)}
    )
    codes = np.zeros((packing.n, packing.k), np.uint8)
    weights = Quantized(wt, codes, scales=scales.copy(), **{k: v.copy() for k, v in parts.items()})
    packed = packing.pack(weights)
    raw = {"scales": weights.scales} | ({} if zeros is None else {"zeros": weights.zeros})
    twin = packing.pack_arrays(weights.codes, **raw)
    assert np.asarray(twin["unit"]).tobytes() == packed["unit"].tobytes()
    assert packed["unit"].dtype == np.float32 and packed["unit"].shape == (2,)
    assert packed["unit"].prod() == 1
    return packed["unit"]


@pytest.mark.parametrize("scale, value", SCALES)
@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_packing_with_numpy_and_with_any_library_agree(scale, value, activation):
    packing = packing_of(types["int4"].grouped(GROUP, scale=scale), activation)
    held = float(np.asarray(value, packing.scale_dtype))
    assert np.array_equal(packed_unit(packing, value), np.float32(unit_for(packing, held, None)))


@pytest.mark.parametrize("zero", ["float", "rescaled"])
def test_zeros_count_with_numpy_and_with_any_library_alike(zero):
    packing = packing_of(types["nf4"].grouped(GROUP, scale="float16", zero=zero), "float16")
    small, large = (packed_unit(packing, 1.0, value)[1] for value in (1.0, 4096.0))
    assert large > small


def test_scales_of_zero_have_the_unit_one():
    packing = packing_of(types["int4"].grouped(GROUP, scale="float16"), "float16")
    assert packed_unit(packing, 0.0).tolist() == [1.0, 1.0]
    assert unit_for(packing, 0.0, None) == (1.0, 1.0)


@pytest.mark.parametrize("scale", ["float16", "bfloat16", "float32", "e8m0"])
def test_a_scale_that_is_no_number_does_not_move_the_others(scale):
    """Quantized refuses NaN and infinity; where they come in arrays they spoil their own groups, the unit follows the others."""
    packing = packing_of(types["int4"].grouped(GROUP, scale=scale), "float16")
    wt = packing.weight
    scales = np.full(wt.scale_shape(N, K), 0.5, np.float32).astype(wt.scale_dtype)
    clean = packed_unit(packing, scales)
    codes = np.zeros((N, K), np.uint8)
    for value in (np.nan, np.inf, -np.inf) if scale != "e8m0" else (np.nan,):
        dirty = scales.copy()
        dirty[1, 1] = value
        with pytest.raises(TypeDeclarationError, match="not finite"):
            Quantized(wt, codes, scales=dirty)
        packed = packing.pack_arrays(codes, scales=dirty)
        np.testing.assert_array_equal(np.asarray(packed["unit"]), clean)


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e8m0fnu"]
)
def test_bits_of_floats_are_in_the_order_of_their_magnitudes(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    bits = largest_finite_bits(dtype)
    assert magnitude_of(bits, dtype) == float(ml_dtypes.finfo(dtype).max)
    assert not np.isfinite(magnitude_of(bits + 1, dtype))
    assert magnitude_mask(dtype) >= bits


@pytest.mark.parametrize("zero", [None, "integer", "float", "rescaled"])
@pytest.mark.parametrize("name", ["int3", "int5", "bipolar3"])
def test_a_program_with_larger_factors_takes_a_larger_unit(name, zero):
    """Of the unit that packing chose, whatever the scales: no S, Z or product overflows, and none is needlessly small."""
    weight = types[name].grouped(64, scale="float16", zero=zero)
    packing = packing_of(weight, "float16", k=128)
    assert packing.readings.scaled.program.is_scaled
    tiling = Tiling(1, 4, 1, 1, 2)
    op = matmul(None, N, 128, activation="float16", weight=weight)
    plan = Plan(op, devices["h200"], packing, "specialised", tiling, 3, scale="register")
    assert further(replace(plan, scale="accumulator")) == 1
    more = further(plan)
    assert math.frexp(more)[0] == 0.5
    for scale in EXTREMES["float16"]:
        largest = np.abs(packing.element.values).max()
        taken = {None: None, "rescaled": scale * largest}.get(zero, largest)
        down, _ = unit_for(packing, scale, taken)
        read = replace(packing, program=plan.program)
        zeros = None if taken is None else [taken]
        numbers = [x.max() for x in parts(read, [scale], zeros)[2:]]
        own, _ = unit_for(read, scale, taken)
        worst = max(numbers) * down / own / more  # parts() knows the unit of its own program
        assert 2.0**12 <= worst <= 65504 or scale < 2.0**-14
        assert worst <= 65504
