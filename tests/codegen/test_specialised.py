"""The specialised family: operator = plan = emulated kernel, for every way to decode, cut, scale, split and store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladder
from ladder.emulator import translate
from ladder.emulator.matrix import Problem
from ladder.errors import LadderError
from ladder.scheduler import Plan, Tiling, choose_packing
from ladder.scheduler.epilogue import default_epilogue
from ladder.scheduler.scale_lanes import is_exponent
from ladder.scheduler.unit import further
from ladder.ttype import GroupedType, TType
from tests.codegen.conftest import DTYPES, Emulated

H200 = ladder.devices["h200"]

#: one type for each form of decoding, number of words, length of an atom and number of classes of steps
CLASSES = (
    *(("int1", "float16"), ("int2", "bfloat16"), ("signmag2", "bfloat16")),
    *(("int3", "float16"), ("nf3", "float16"), ("int4", "float16"), ("int4", "bfloat16")),
    *(("nf4", "float16"), ("uint5", "float16"), ("int5", "bfloat16"), ("int6", "float16")),
    *(("fp6_e3m2", "bfloat16"), ("int7", "float16"), ("bipolar7", "bfloat16"), ("int8", "float16")),
    *(("fp8_e5m2", "bfloat16"), ("fp8_e4m3fn", "float16"), ("e8m0", "bfloat16")),
    *(("uint1", "float16"), ("int2", "float16"), ("uint3", "float16"), ("signmag5", "float16")),
    ("signmag6", "float16"),
)
GROUPS = (16, 32, 64, 128, 256, "channel")
SCALES = ("float16", "bfloat16", "float32")
ZEROS = (None, "integer", "float", "rescaled")
#: why some combinations are no plans: nothing else may be refused
REFUSALS = (
    "groups without padding",
    "K slices take turns",
    "token tiles cannot be finished",
    "share",
    "has no scales",
    "cannot be taken off exactly",
    "keeps one set of accumulators",
    "keeps no activation sums",
    "registers a thread",
)
#: significant bits of a number, and half the smallest distance of two
ROUNDING = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 0.0), "float32": (2.0**-24, 0.0)}


@dataclass(frozen=True)
class Case:
    """What is drawn: a weight, a shape and a plan's decisions."""

    name: str
    activation: str
    group: Any = 64
    scale: str = "float16"
    zero: Any = None
    m: int = 7
    n: int = 72
    k: int = 264
    out: str = "float16"
    bias: bool = False
    place: str = "register"
    exact: bool = False
    tiling: tuple[int, int, int] = (1, 4, 2)
    split: int = 1
    depth: int = 3
    launch: str = "plain"
    seed: int = 0

    @property
    def plan(self) -> Plan:
        """The plan, legal or not."""
        found: Any = ladder.types[self.name]
        if isinstance(found, TType):
            found = found.grouped(self.group, scale=self.scale, zero=self.zero)
        op = ladder.matmul(
            None,
            self.n,
            self.k,
            activation=self.activation,
            weight=found,
            out=self.out,
            bias=self.bias,
        )
        packing = choose_packing(op, H200.features)
        warps_k, warps_n, tiles = self.tiling
        return Plan(
            op,
            H200,
            packing,
            "specialised",
            Tiling(warps_k, warps_n, 1, 1, tiles),
            self.depth,
            zero="register" if self.place == "accumulator" or self.exact else "sums",
            scale=self.place,
            split=self.split,
            access="tensor",
            compute="wgmma",
            launch=self.launch,
            epilogue=default_epilogue(op, packing),
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name, activation = draw(st.sampled_from(CLASSES))
    zero = draw(st.sampled_from(ZEROS))
    split = draw(st.sampled_from([1, 1, 2, 4, 8]))
    tiles = draw(st.sampled_from([t for t in (1, 2, 4, 8) if t % split == 0]))
    warps_k = draw(st.sampled_from([1, 1, 2])) if tiles < 8 else 1
    return Case(
        name,
        activation,
        group=draw(st.sampled_from(GROUPS)),
        scale=draw(st.sampled_from(SCALES)),
        zero=zero,
        m=draw(st.sampled_from([1, 2, 3, 5, 8, 13, 17, 31, 37])),
        n=8 * draw(st.integers(1, 18)) + draw(st.sampled_from([0, 0, 1, 5])),
        k=8 * draw(st.integers(1, 60)) + 256 * (split * warps_k - 1),
        out=draw(st.sampled_from(sorted(DTYPES))),
        bias=draw(st.booleans()),
        place=draw(st.sampled_from(["register", "register", "accumulator"])),
        exact=zero in (None, "integer") and draw(st.booleans()),
        tiling=(warps_k, draw(st.sampled_from([4, 4, 8])), tiles),
        split=split,
        depth=draw(st.integers(1 + warps_k, 5)),
        launch=draw(st.sampled_from(["plain", "pdl"])),
        seed=draw(st.integers(0, 2**16)),
    )


def spread(values: NDArray[Any], weights: ladder.Quantized) -> NDArray[np.float64]:
    """Magnitudes of scales or zeros for every weight ``[n, k]``."""
    rows, columns = weights.type.group_extents(*weights.shape)
    n, k = weights.shape
    return np.abs(values.astype(np.float64))[np.arange(n) // rows][:, np.arange(k) // columns]


def weight_error(plan: Plan, weights: ladder.Quantized) -> NDArray[np.float64]:
    """How far a weight that is multiplied may be from the one that was declared, ``[n, k]``.

    A decoded lane is at most u of its value off; nothing where decoding is lossless. Scaled in registers, w = lane * S + Z:
    S and Z are rounded to the compute type, and so is w (u of each, or half the smallest number for a lane's worth of S, Z
    and w); what float32 adds before is a hundredth of that.
    """
    wt, op = weights.type, plan.op
    u, tiny = ROUNDING[op.activation.name]
    values = np.abs(wt.element.values[weights.codes])
    scale = spread(weights.scales, weights) if weights.scales is not None else np.ones_like(values)
    exact = wt.element.values[weights.codes].astype(op.activation.dtype).astype(np.float64)
    error = scale * np.abs(exact - wt.element.values[weights.codes])
    if plan.scale != "register":
        return error
    affine = [a for pair in plan.deferred for a in pair]
    beta = max(abs(float(a.beta)) for a in affine)
    alpha = min(abs(float(a.alpha)) for a in affine)
    zero = np.zeros_like(values)
    if weights.zeros is not None:
        numbers = wt.element.values[weights.zeros] if wt.zero == "integer" else weights.zeros
        zero = spread(numbers, weights)
        zero *= 1.0 if wt.zero == "rescaled" else scale
    second = 1.0 if weights.global_scale is None else float(weights.global_scale)
    whole = np.abs(weights.dequantize()) / second
    offset = scale * beta + zero
    relative = 1.01 * u * (scale * (values + beta) + offset + whole + error)
    if plan.zero == "register":  # zero points came off before, exactly: S is rounded, and w
        relative = 1.01 * u * (2 * whole + error)
    lanes = (np.nanmax(np.abs(wt.element.values[np.isfinite(wt.element.values)])) + beta) / alpha
    back = float(plan.packing.pack(weights)["unit"][1]) * further(plan)
    return np.asarray(error + relative + tiny * back * (lanes + 2))


def bound(plan: Plan, problem: Problem, weights: ladder.Quantized) -> tuple[Any, Any]:
    """Largest ``|y - exact|`` and ``|y - plan.run|``, element by element."""
    x = np.abs(problem.values["x"].astype(np.float64))
    second = 1.0 if weights.global_scale is None else float(weights.global_scale)
    error = weight_error(plan, weights) * second
    steps = plan.packing.geometry.padded_k // 16
    depth = 16 + steps + plan.split * plan.tiling.warps_k + 6
    terms = x @ (np.abs(weights.dequantize()) + error).T
    if "bias" in problem.values:
        terms = terms + np.abs(problem.values["bias"].astype(np.float64))
    sums = 1.01 * depth * 2.0**-24 * terms
    u, tiny = ROUNDING[plan.op.out.name]
    y = np.abs(problem.exact)
    whole = x @ error.T + sums
    return whole + u * (y + whole) + tiny, 2 * (sums + u * (y + whole) + tiny)


def check(case: Case) -> None:
    """Compare the kernel on three schedules with the plan and the operator."""
    plan = case.plan
    if found := plan.check():
        assert all(any(words in text for words in REFUSALS) for text in found), found
        assume(False)
    problem = Problem.planned(plan, case.m)
    weights = ladder.quantize(
        np.random.default_rng(0).standard_normal((case.n, case.k)), plan.op.weight
    )
    to_exact, to_plan = bound(plan, problem, weights)
    kernel = translate(problem.lowered.listing)
    runs = [
        problem.run(kernel, schedule, case.seed)[0].astype(np.float64)
        for schedule in ("random", "eager", "lazy")
    ]
    assert np.isfinite(runs[0]).all()
    for y in runs[1:]:
        np.testing.assert_array_equal(y, runs[0])
    assert np.all(np.abs(runs[0] - problem.exact) <= to_exact)
    assert np.all(np.abs(runs[0] - problem.reference.astype(np.float64)) <= to_plan)


@pytest.mark.parametrize("name, activation", CLASSES)
def test_every_way_to_decode(name: str, activation: str) -> None:
    zero = None if name == "e8m0" else "float"
    split = 2 if name.startswith("int") else 1
    check(Case(name, activation, zero=zero, k=328, split=split, scale=activation))


@pytest.mark.parametrize("group, depth", [(128, 3), (128, 4), (32, 3), ("channel", 3)])
def test_chunks_in_flight_are_waited_for(group: Any, depth: int) -> None:
    case = Case("int4", "bfloat16", group, zero="integer", k=768, depth=depth, exact=True)
    assert case.plan.zero == "register"
    check(case)


def test_every_way_to_decode_is_among_them() -> None:
    def form(name: str, activation: str) -> tuple[str, int, int, int] | None:
        weight: Any = ladder.types[name]
        weight = weight.grouped(64) if isinstance(weight, TType) else weight
        op = ladder.matmul(None, 64, 256, activation=activation, weight=weight)
        program = choose_packing(op, H200.features).program
        form = (program.form, program.words, program.atom_k, program.classes)
        return None if program.is_constant else form

    known = set()
    for name, weight in ladder.types.items():
        for activation in ("float16", "bfloat16"):
            if isinstance(weight, (TType, GroupedType)):
                try:
                    known.add(form(name, activation))
                except LadderError:
                    continue
    assert {form(*case) for case in CLASSES} == known - {None}


@pytest.mark.parametrize("zero", [None, "integer", "rescaled"])
@pytest.mark.parametrize("name", ["int3", "int5", "bipolar3"])
def test_registers_of_a_row_that_defer_different_maps(name: str, zero: str | None) -> None:
    case = Case(name, "float16", zero=zero, group=128, k=328, m=11)
    assert case.plan.program.is_scaled
    check(case)


@pytest.mark.parametrize("name, by_exponent", [("mxfp4", True), ("mxfp8", False)])
def test_scales_that_are_powers_of_two(name: str, by_exponent: bool) -> None:
    """Put together as bits where that gives the same weights; where large lanes would show a lost S, by conversions."""
    case = Case(name, "float16", k=328)
    assert is_exponent(case.plan) == by_exponent
    check(case)


@pytest.mark.parametrize("largest", [-127, -100, 0, 100, 127])
def test_exponents_of_any_size(largest: int, emulated: Emulated) -> None:
    """The largest group and those 2^20 and 2^40 times smaller, at either end of the scales: to the bit what the plan gives."""
    plan = Case("mxfp4", "float16", n=16, k=256, out="float32").plan
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 16, (16, 256)).astype(np.uint8)
    powers = largest - rng.choice([0, 20, 40], (16, 8))
    scales = (np.maximum(powers, -127) + 127).astype(np.uint8).view(plan.packing.scale_dtype)
    weights = ladder.Quantized(plan.op.weight, codes=codes, scales=scales)
    x = rng.standard_normal((3, 256)).astype(np.float16)
    np.testing.assert_array_equal(emulated(plan, x, weights), plan.run(x, weights))


@given(case=cases())
@example(Case("int4", "float16", zero="integer", m=1, n=8, k=8, group=16, depth=2))
@example(
    Case(
        "int4",
        "float16",
        zero="rescaled",
        m=37,
        n=136,
        k=712,
        split=8,
        tiling=(1, 8, 8),
        depth=4,
        launch="pdl",
    )
)
@example(
    Case(
        "int8",
        "bfloat16",
        group="channel",
        place="accumulator",
        m=33,
        n=72,
        k=712,
        split=2,
        tiling=(2, 4, 4),
    )
)
@example(Case("int4", "bfloat16", zero="integer", exact=True, m=5, n=72, k=712, split=2))
@example(Case("int2", "float16", zero="integer", exact=True, m=5, n=72, k=712, group=128))
@example(Case("mxfp4", "float16", m=5, n=64, k=328, out="bfloat16", split=2, bias=True))
@example(Case("nvfp4", "bfloat16", m=11, n=65, k=328, out="float32", tiling=(2, 4, 2), depth=3))
@settings(max_examples=10)
def test_any_shape_type_and_decision(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("out", sorted(DTYPES))
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_rows_of_y_may_be_apart_and_start_anywhere(
    out: str, bias: bool, emulated: Emulated
) -> None:
    """16-byte stores where rows of y start on them, element by element where they do not: the same numbers."""
    rng = np.random.default_rng(1)
    for n in (72, 68):
        plan = Case("int4", "float16", n=n, out=out, bias=bias).plan
        weights = ladder.quantize(rng.standard_normal((n, 264)), plan.op.weight)
        x = rng.standard_normal((11, 264)).astype(np.float16)
        b = rng.standard_normal(n).astype(DTYPES[out]) if bias else None
        np.testing.assert_array_equal(emulated(plan, x, weights, b), plan.run(x, weights, b))


def test_rows_of_x_may_be_apart(emulated: Emulated) -> None:
    rng = np.random.default_rng(2)
    plan = Case("int4", "float16", split=2).plan
    weights = ladder.quantize(rng.standard_normal((72, 264)), plan.op.weight)
    memory = rng.standard_normal((24, 400)).astype(np.float16)
    memory[:, 264:] = np.nan  # what lies between rows is never multiplied
    x = memory[::2, :264]
    wanted = plan.run(np.ascontiguousarray(x), weights)
    np.testing.assert_array_equal(emulated(plan, x, weights), wanted)


def test_what_lies_outside_of_x_is_never_read(emulated: Emulated) -> None:
    """Columns and rows past the end are zeros that the copy makes, not what stands behind x in memory."""
    rng = np.random.default_rng(3)
    plan = Case("int4", "float16", k=264, m=3).plan
    weights = ladder.quantize(rng.standard_normal((72, 264)), plan.op.weight)
    memory = np.full(3 * 264 + 4096, np.nan, np.float16)
    x = memory[: 3 * 264].reshape(3, 264)
    x[...] = rng.standard_normal((3, 264))
    y = emulated(plan, x, weights)
    np.testing.assert_array_equal(y, plan.run(x.copy(), weights))
    assert np.isfinite(y).all()
