"""Kernels that quantise activations: bit for bit what the operator says, in the emulator, and small when compiled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladder
from ladder.codegen import emit as e
from ladder.codegen import semantics
from ladder.codegen.listing import listing
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.quantize import lower_quantize, over_top
from ladder.codegen.source_words import WORDS
from ladder.codegen.toolchain import Toolchain
from ladder.codegen.tvm_api import IRBuilder, T, lower_to_cuda
from ladder.codegen.widen import widen
from ladder.emulator import run
from ladder.errors import LaunchError, ShapeError
from ladder.graph.quantize_activations import LEAST_SCALE, SOURCES
from ladder.scheduler.quantize_plan import QuantizePlan
from tests.codegen.conftest import DTYPES

KINDS = ("int8", "fp8_e4m3fn", "int4")
#: sources whose elements can all be tried
HALVES = ("float16", "bfloat16")
EVERY = pytest.mark.parametrize("source, target", [(s, t) for s in SOURCES for t in KINDS])


def rows(plan: QuantizePlan, m: int, seed: int = 0) -> Any:
    """Rows of many sizes: one of zeros, one with a NaN, one with an infinity, one below the least scale."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[plan.op.source.name]
    x = (rng.standard_normal((m, plan.op.k)) * np.exp2(rng.integers(-20, 12, (m, 1)))).astype(dtype)
    special = [0.0, np.nan, -np.inf, 1e-39]
    for row, value in zip(range(1, m, 2), special, strict=False):
        x[row, rng.integers(plan.op.k)] = value
        if not value or value == 1e-39:
            x[row] = np.asarray(value, dtype)
    return x


def check(plan: QuantizePlan, m: int = 0, seed: int = 0, x: Any = None) -> None:
    """Compare the kernel with the plan, byte for byte; outputs are poisoned, and rows beyond m are left alone."""
    lowered, k, items = lower_quantize(plan), plan.op.k, plan.op.codes.items(plan.op.k)
    x = rows(plan, m, seed) if x is None else x
    m = len(x)
    wide = np.zeros((m, k + 8 if plan.access == "vector" else k + 3), x.dtype)
    wide[:, :k] = x
    codes, scales = np.full(m * items + 8, 0x55, np.uint8), np.full(m + 1, -1.0, np.float32)
    given_arrays = {
        "x": wide.reshape(-1),
        "y": codes,
        "x_scale": scales,
        "m": m,
        "x_stride_m": wide.shape[1],
        "x_stride_k": 1,
    }
    arguments = {p.name: given_arrays[p.role] for p in lowered.parameters}
    run(lowered.listing, arguments, lowered.launch.grid_for(m), lowered.launch.block, seed=seed)
    wanted, wanted_scales = plan.run(x)
    assert np.array_equal(codes[: m * items].reshape(m, items), wanted.view(np.uint8))
    assert np.array_equal(scales[:m], wanted_scales, equal_nan=True)
    assert (codes[m * items :] == 0x55).all()
    assert scales[m] == -1.0


@EVERY
@pytest.mark.parametrize("m, k", [(9, 264), (10, 4104), (9, 77), (9, 1), (3, 9001)])
def test_kernels_are_what_the_operator_says(source: str, target: str, m: int, k: int) -> None:
    op = ladder.quantize_activations(m, k, source=source, target=target)
    check(ladder.schedule(op), m)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("access", ["vector", "scalar"])
def test_a_code_is_rounded_once(source: str, access: str) -> None:
    """0.5625 / (1.125 / 127) is 63.499998, whose neighbour in float32 is a tie: rounded twice it would be 64."""
    op = ladder.quantize_activations(2, 264, source=source)
    x = np.full((2, 264), 0.5625, DTYPES[source])
    x[:, 7] = 1.125
    x[1] = -x[1]
    codes, scales = ladder.compile(ladder.schedule(op, access=access))(x, device="emulator")
    inverse = np.float32(1) / scales
    assert np.float32(0.5625) * inverse[0] == np.float32(63.5)
    wanted = np.full((2, 264), 63)
    wanted[:, 7] = 127
    assert np.array_equal(codes, wanted * [[1], [-1]])


@pytest.mark.parametrize("source", HALVES)
@pytest.mark.parametrize("top", [127.0, 448.0, 7.0])
def test_every_magnitude_of_16_bits_is_divided_as_ieee_says(source: str, top: float) -> None:
    bits = np.arange(WORDS[source].infinity, dtype=np.uint16)
    turns = -(-len(bits) // 32)
    x = np.zeros(32 * turns, np.uint16)
    x[: len(bits)] = bits
    with IRBuilder() as builder, T.prim_func():
        T.func_name("divide")
        buffers = {}
        for name, dtype in (("x", "uint16"), ("y", "float32")):
            buffers[name] = T.match_buffer(T.arg(name, T.handle()), (32 * turns,), dtype)
            IRBuilder.name(name, buffers[name])
        T.device_entry()
        T.cta_id([1])
        lane = T.thread_id([32])
        with e.loop(turns, "turn") as turn:
            place = turn * 32 + lane
            e.store(buffers["y"], place, over_top(widen(source, buffers["x"][place]), top))
    y = np.zeros(len(x), np.float32)
    run(listing(lower_to_cuda(builder.get(), "sm_90a").function), {"x": x, "y": y}, (1, 1, 1), 32)
    values = bits.view(DTYPES[source]).astype(np.float32)
    assert np.array_equal(y[: len(bits)], values / np.float32(top))
    assert not np.array_equal(y[: len(bits)], values * np.float32(1 / top))


@pytest.mark.parametrize("top", [127.0, 448.0, 7.0])
def test_every_mantissa_is_divided_as_ieee_says(top: float) -> None:
    """Of the numbers 1 to 2, and 2^-126 to 2^-117, whose quotients lie on both sides of the least scale; powers of two are exact."""
    divisor, inverse = np.float32(top), np.float32(1 / top)
    every = np.arange(0x3F800000, 0x40000000, dtype=np.uint32)
    small = np.arange(0x00800000, 0x05800000, 97, dtype=np.uint32)
    for values in (every.view(np.float32), small.view(np.float32)):
        near = values * inverse
        rest = semantics.fma_f32(-near, divisor, values)
        found, wanted = semantics.fma_f32(rest, inverse, near), values / divisor
        assert np.array_equal(np.maximum(found, LEAST_SCALE), np.maximum(wanted, LEAST_SCALE))
        assert not np.array_equal(near, wanted)


@pytest.mark.parametrize("source, target", [(s, t) for s in HALVES for t in KINDS])
def test_every_element_has_the_code_that_the_operator_says(source: str, target: str) -> None:
    """All 65536 bit patterns, those beyond the largest of the row held at it, under scales that make ties and none."""
    plan = ladder.schedule(ladder.quantize_activations(5, 65536, source=source, target=target))
    every = np.arange(65536, dtype=np.uint16).view(DTYPES[source]).astype(np.float32)
    largest = np.float32([[127.0], [1.125], [448.0], [2.0**-7], [3.14]])
    check(plan, x=np.clip(np.nan_to_num(every), -largest, largest).astype(DTYPES[source]))


@given(
    types=st.tuples(st.sampled_from(SOURCES), st.sampled_from(KINDS)),
    m=st.integers(1, 12),
    k=st.integers(1, 300),
    warps=st.sampled_from([1, 2, 3, 4]),
    count=st.integers(1, 4),
    launch=st.sampled_from(["plain", "pdl"]),
    seed=st.integers(0, 99),
)
def test_every_way_to_share_rows(types, m, k, warps, count, launch, seed) -> None:
    source, target = types
    op = ladder.quantize_activations(None, k, source=source, target=target)
    check(ladder.schedule(op, warps=warps, rows=count, launch=launch), m, seed)


@EVERY
def test_a_kernel_is_called_saved_and_loaded(source: str, target: str, tmp_path: Any) -> None:
    op = ladder.quantize_activations(None, 264, source=source, target=target)
    kernel = ladder.compile(ladder.schedule(op))
    assert isinstance(kernel, ladder.QuantizeKernel)
    x = np.random.default_rng(0).standard_normal((3, 5, 264)).astype(DTYPES[source])
    wanted = op.reference(x)
    kernel.save(tmp_path / "kernel")
    for found in (kernel, ladder.load(tmp_path / "kernel")):
        assert found.plan == kernel.plan
        codes, scales = found(x, device="emulator")
        assert (codes.shape, scales.shape) == ((3, 5, op.codes.items(264)), (3, 5))
        assert codes.dtype == op.out_dtype
        assert np.array_equal(codes.view(np.uint8), wanted[0].view(np.uint8))
        assert np.array_equal(scales, wanted[1])
    out = (np.empty(wanted[0].shape, op.out_dtype), np.empty((3, 5), np.float32))
    assert kernel(x, out=out, device="emulator")[0] is out[0]
    assert np.array_equal(out[0].view(np.uint8), wanted[0].view(np.uint8))
    empty, none = kernel(x[:0], device="emulator")
    assert (empty.shape, none.shape) == ((0, *wanted[0].shape[1:]), (0, 5))


def test_calls_that_do_not_fit_are_refused() -> None:
    kernel = ladder.compile(ladder.schedule(ladder.quantize_activations(None, 64)))
    x = np.ones((2, 64), np.float16)
    good = (np.empty((2, 64), np.int8), np.empty(2, np.float32))
    for call, kind, what in (
        ({"x": x[:, :8]}, ShapeError, r"takes \[\.\.\., 64\]"),
        ({"x": x.astype(np.float64)}, LaunchError, "x is float64, the kernel takes float16"),
        ({"out": (good[0][:1], good[1])}, ShapeError, r"codes are \[1, 64\]"),
        ({"out": (good[0], np.empty(2))}, LaunchError, "scales is float64"),
        ({"out": good[0]}, LaunchError, "out is"),
        ({"out": (x.view(np.int8)[:, :64], good[1])}, LaunchError, "codes have strides"),
        (
            {"out": (x.view(np.int8).reshape(-1)[:128].reshape(2, 64), good[1])},
            LaunchError,
            "codes and x share memory",
        ),
    ):
        with pytest.raises(kind, match=what):
            kernel(**{"x": x, "device": "emulator", **call})
    with pytest.raises(LaunchError, match="the kernel runs on a GPU"):
        kernel.bind(x)


@EVERY
def test_a_row_stays_in_registers(source: str, target: str) -> None:
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    k = 16384 if source == "float32" else 28672  # longer ones of float32 have a CTA an SM
    op = ladder.quantize_activations(None, k, source=source, target=target)
    cubin = compile_kernel(lower_quantize(ladder.schedule(op)).source, "sm_90a")
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
    assert cubin.registers <= 64  # two CTAs of 512 threads: as many as an SM has


def test_the_conversions_are_those_of_ml_dtypes_and_exact_integers() -> None:
    numbers = np.concatenate([np.linspace(-500, 500, 20001), [0.5, 1.5, -0.5, np.inf, -np.inf]])
    numbers = numbers.astype(np.float32)
    codes = semantics.f32x2_to_e4m3x2(numbers, numbers[::-1]).view(np.uint8).reshape(-1, 2)
    held = np.clip(numbers, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(codes[:, 1], held)
    assert np.array_equal(codes[:, 0], held[::-1])
    assert semantics.f32x2_to_e4m3x2(np.float32(np.nan), np.float32(1)) == 0x7F38
    whole = [
        min(127, max(-128, round(v))) if np.isfinite(v) else (127 if v > 0 else -128)
        for v in numbers.tolist()
    ]
    assert np.array_equal(semantics.f32_to_s8(numbers).view(np.int32), whole)
    assert semantics.f32_to_s8(np.float32(np.nan)) == 0
