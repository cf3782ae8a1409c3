"""Epilogues: operator = plan = emulated kernel for every family, step and way to store, and in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladder
from ladder.codegen.lower import lower
from ladder.emulator import Fault
from ladder.emulator.matrix import Problem
from ladder.emulator.mutate import mutants
from ladder.errors import ScheduleError
from ladder.graph.epilogue import KERNEL_STEPS
from ladder.runtime.error_bar import error_bar
from ladder.scheduler import Plan, Tiling
from tests.codegen.conftest import DTYPES, Emulated, body

H200 = ladder.devices["h200"]
W4 = ladder.types["int4"].grouped(64, zero="integer")

#: arrangement -> decisions, tokens, and how it sums K slices and stores
FAMILIES: dict[str, dict[str, Any]] = {
    "skinny": {"family": "skinny"},
    "ring": {"family": "ring", "compute": "mma"},
    "warpgroup": {"family": "ring", "compute": "wgmma"},
    "specialised": {"family": "specialised", "split": 1, "persistent": False},
    "slices": {"family": "specialised", "tiling": Tiling(2, 4, 1, 1, 2), "depth": 4, "split": 1},
    "odd slices": {"family": "specialised", "tiling": Tiling(2, 4, 1, 1, 1), "depth": 4},
    "cluster": {"family": "specialised", "split": 2, "persistent": False},
    "persistent": {"family": "specialised", "split": 1, "persistent": True},
    "persistent cluster": {"family": "specialised", "split": 2, "persistent": True},
}
#: of a persistent CTA: three parts that are stored one after the other, six where a residual comes beside them
TOKEN_TILES = 6
STEPS = (
    *((name,) for name in KERNEL_STEPS),
    *(("silu_gate", "residual"), ("residual", "relu"), ("gelu", "residual", "tanh")),
    ("relu", "silu_gate", "sigmoid"),
)
#: how far a kernel is from its plan: float32 sums in another order, then rounded to the output's type
SAME = {"float16": 2e-4, "bfloat16": 2e-3, "float32": 2e-6}


def plan_of(family: str, steps: tuple[str, ...], n: int = 72, k: int = 520, **more: Any) -> Plan:
    decisions, device = FAMILIES[family], H200
    if decisions.get("persistent"):
        # so few SMs that a CTA has several tiles
        device = replace(H200, sms=2 * decisions["split"])
        decisions = {**decisions, "tiling": Tiling(1, 4, 1, 1, TOKEN_TILES), "depth": 3}
    launch = more.pop("launch", "plain")
    op = ladder.matmul(
        more.pop("m", None),
        n,
        k,
        activation=more.pop("activation", "float16"),
        weight=more.pop("weight", W4),
        epilogue=steps,
        **more,
    )
    m_range = None if op.m is not None else (0, 16 if family == "skinny" else None)
    found = ladder.schedule(op, device, launch=launch, m_range=m_range, **decisions)
    return found if isinstance(found, Plan) else found.plans[0]


def operands(plan: Plan, m: int, seed: int = 0) -> tuple[Any, ...]:
    """x, weights, bias, no scale of rows, residual."""
    rng, op = np.random.default_rng(seed), plan.op
    out = DTYPES[op.out.name]
    weights = ladder.quantize(rng.standard_normal((op.n, op.k)) / np.sqrt(op.k), op.weight)
    x = (2 * rng.standard_normal((m, op.k))).astype(DTYPES[op.activation.name])
    bias = rng.standard_normal(op.n).astype(out) if op.bias else None
    residual = rng.standard_normal((m, op.out_n)).astype(out) if op.residual else None
    return x, weights, bias, None, residual


def relative(y: NDArray[Any], wanted: NDArray[Any]) -> float:
    size = float(np.linalg.norm(wanted.astype(np.float64)))
    assert size > 0
    return float(np.linalg.norm(y.astype(np.float64) - wanted.astype(np.float64))) / size


def check(plan: Plan, m: int, emulated: Emulated, seed: int = 0) -> NDArray[Any]:
    given_ = operands(plan, m, seed)
    y, by_plan = emulated(plan, *given_), plan.run(*given_)
    assert y.shape == by_plan.shape == (m, plan.op.out_n)
    assert relative(by_plan, plan.op.reference(*given_)) <= error_bar(plan.op)
    assert relative(y, by_plan) <= SAME[plan.op.out.name]
    return y


#: every family with every pair of steps; a step alone, whose instructions are the same wherever they stand, in every third of them
STEPS_OF_FAMILIES = [
    (family, steps)
    for i, family in enumerate(FAMILIES)
    for j, steps in enumerate(STEPS)
    if len(steps) > 1 or (i + j) % 3 == 0
]


@pytest.mark.parametrize("family, steps", STEPS_OF_FAMILIES)
def test_every_family_does_every_step(
    family: str, steps: tuple[str, ...], emulated: Emulated
) -> None:
    check(plan_of(family, steps, bias=True), 13, emulated)


@pytest.mark.parametrize(
    "family, n",
    [(family, n) for i, family in enumerate(FAMILIES) for n in ((2, 136), (30, 200))[i % 2]],
)
def test_in_place_is_the_same_as_beside(family: str, n: int, emulated: Emulated) -> None:
    """y lies where the residual lay; race detection sees every element read before it is written."""
    for steps in (("residual",), ("silu_gate", "residual")):
        plan = plan_of(family, steps, n=n)
        given_ = operands(plan, 21 if family != "skinny" else 5)
        *others, residual = given_
        beside = emulated(plan, *given_)
        there = residual.copy()
        y = emulated(plan, *others, there, out=there)
        assert y is there
        np.testing.assert_array_equal(y, beside)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, int, int]:
    family, steps = draw(st.sampled_from(list(FAMILIES))), draw(st.sampled_from(STEPS))
    out = draw(st.sampled_from(sorted(DTYPES)))
    name = draw(st.sampled_from(["int4", "nf4", "int8", "mxfp4", "fp6_e3m2"]))
    scalar = family in ("skinny", "ring") and draw(st.booleans())
    weight: Any = ladder.types[name]
    if name in ("int4", "nf4"):
        weight = weight.grouped(draw(st.sampled_from([32, 128, "channel"])))
    elif name in ("int8", "fp6_e3m2"):
        weight = weight.grouped("channel")
    activation = "bfloat16" if name == "mxfp4" else "float16"
    k = draw(st.integers(1, 90)) if scalar else 8 * draw(st.integers(1, 80)) + 512
    try:
        plan = plan_of(
            family,
            steps,
            n=2 * draw(st.integers(1, 110)),
            k=k,
            out=out,
            weight=weight,
            activation=activation,
            bias=draw(st.booleans()),
            launch=draw(st.sampled_from(["plain", "pdl"])),
        )
    except ScheduleError:
        assume(False)
    return plan, draw(st.integers(1, 16 if family == "skinny" else 40)), draw(st.integers(0, 99))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(cases())
@example((plan_of("persistent", ("residual",), n=200, out="bfloat16"), 83, 1))
@example((plan_of("persistent cluster", ("silu_gate", "residual"), n=272, launch="pdl"), 67, 2))
def test_random_shapes(emulated: Emulated, case: tuple[Plan, int, int]) -> None:
    plan, m, seed = case
    check(plan, m, emulated, seed)


def test_no_rows_give_no_rows(emulated: Emulated) -> None:
    for family in ("skinny", "persistent"):
        plan = plan_of(family, ("silu_gate", "residual"))
        given_ = operands(plan, 0)
        for y in (emulated(plan, *given_), plan.run(*given_)):
            assert y.shape == (0, 36)


@pytest.mark.parametrize("function", ["gelu", "relu", "silu"])
def test_infinities_and_zeros_are_the_meanings_bit_by_bit(
    function: str, emulated: Emulated
) -> None:
    plan = plan_of("skinny", (function,), n=64, k=64, bias=True, out="float32")
    _, weights, *_ = operands(plan, 2)
    special = np.array([-np.inf, np.inf, np.nan, -0.0, 0.0, -3e38, 3e38, -1e4], np.float32)
    x, bias = np.zeros((2, 64), np.float16), np.resize(special, 64)
    with np.errstate(all="ignore"):
        exact = plan.op.reference(x, weights, bias).astype(np.float32)
    y = emulated(plan, x, weights, bias, None, None)
    np.testing.assert_array_equal(y, exact)
    numbers = ~np.isnan(exact)  # whose sign and payload nobody promises
    np.testing.assert_array_equal(np.signbit(y[numbers]), np.signbit(exact[numbers]))
    by_plan = plan.run(x, weights, bias)
    np.testing.assert_array_equal(by_plan[numbers].view("u4"), y[numbers].view("u4"))
    assert np.isnan(by_plan[~numbers]).all()


def test_row_scales_come_before_the_steps(emulated: Emulated) -> None:
    op = ladder.matmul(
        *(13, 72, 512),
        activation="int8",
        weight=ladder.types["int4"].grouped("channel"),
        activation_scale=True,
        epilogue=("silu_gate", "residual"),
    )
    rng = np.random.default_rng(0)
    weights = ladder.quantize(rng.standard_normal((72, 512)), op.weight)
    x = rng.integers(-128, 128, (13, 512)).astype(np.int8)
    scale = rng.uniform(1e-4, 1e-3, 13).astype(np.float32)
    residual = rng.standard_normal((13, 36)).astype(np.float16)
    for split, persistent in ((1, False), (1, True), (2, False)):
        plan = ladder.schedule(op, family="specialised", split=split, persistent=persistent)
        y = emulated(plan, x, weights, None, scale, residual)
        assert relative(y, plan.run(x, weights, None, scale, residual)) <= SAME["float16"]
        assert relative(y, op.reference(x, weights, None, scale, residual)) <= error_bar(op)


@pytest.mark.parametrize("family", ["specialised", "persistent"])
def test_rows_of_a_residual_that_start_anywhere(family: str) -> None:
    problem = Problem.planned(plan_of(family, ("silu_gate", "residual"), n=128), 21)
    assert problem.values["residual_pieces"] == 1
    problem.values["residual_pieces"] = 0
    y, _ = problem.run(problem.lowered.listing, "random", 0)
    assert relative(y, problem.reference) <= SAME["float16"]


def test_dropped_synchronisation_of_a_residual_is_caught() -> None:
    """Waits, barriers and copies of the store: each left out in turn is a fault or a wrong number."""
    plan = plan_of("persistent", ("residual",), n=64)
    problem = Problem.planned(plan, 3 * plan.tiling.tokens - 5)
    seen = set()
    for mutant in mutants(problem.lowered.listing):
        if "in stage store" not in mutant.dropped:
            continue
        seen.add(mutant.text)
        assert _caught(problem, mutant.listing), mutant.dropped
    kinds = ("cp.async.cg", "cp.async.wait_group", "barrier.cta.sync")
    assert all(any(text.startswith(kind) for text in seen) for kind in kinds), seen


def _caught(problem: Problem, listing: Any) -> bool:
    for schedule, seed in (("random", 0), ("lazy", 0), ("eager", 0), ("random", 1)):
        try:
            y, _ = problem.run(listing, schedule, seed)
        except Fault:
            return True
        if not relative(y, problem.reference) <= SAME["float16"]:
            return True
    return False


def test_a_gate_prints_as_agreed(golden: Callable[[str, str], None]) -> None:
    plan = plan_of("specialised", ("silu_gate", "residual"), m=32, n=128, k=256, bias=True)
    golden("plans/specialised_gate.txt", f"{plan}\n")
    golden("cuda/specialised_gate.cu", body(lower(plan).source))
    skinny = plan_of("skinny", ("gelu", "residual"), m=1, n=64, k=256)
    golden("cuda/skinny_gelu.cu", body(lower(skinny).source))
