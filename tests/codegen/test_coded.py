"""Outputs that are stored as codes by one scale: operator = plan = emulated kernel, in every family."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ladder
from ladder.errors import TypeDeclarationError
from ladder.graph.epilogue import Coded
from ladder.runtime.error_bar import error_bar
from ladder.scheduler import Plan
from tests.codegen.conftest import Emulated
from tests.codegen.test_epilogue import FAMILIES, operands, plan_of, relative

DTYPES = {"int8": np.int8, "fp8_e4m3fn": ml_dtypes.float8_e4m3fn}
STEPS: tuple[tuple[Any, ...], ...] = ((), ("silu_gate", "residual"))


def check(plan: Plan, m: int, emulated: Emulated) -> Any:
    """The kernel's codes, which are the plan's but where sums in another order fall to the other side of a half."""
    given = operands(plan, m)
    y, by_plan = emulated(plan, *given), plan.run(*given)
    assert y.dtype == by_plan.dtype == plan.op.stored.dtype
    assert y.shape == by_plan.shape == (m, plan.op.out_n)
    wanted = plan.op.reference(*given)
    assert relative(by_plan, wanted) <= error_bar(plan.op)
    assert np.count_nonzero(y != by_plan) <= y.size // 100
    assert relative(y, by_plan) <= error_bar(plan.op)
    return y


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("steps", STEPS, ids=" ".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_stores_codes(
    family: str, steps: tuple[Any, ...], target: str, emulated: Emulated
) -> None:
    step = Coded(target, 0.05)
    plan = plan_of(family, (*steps, step), bias=True)
    y = check(plan, 13, emulated).astype(np.float32)
    assert f"y /= {step.scale:g}" in str(plan)
    assert np.abs(y).max() > 20
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("target, most", [("int8", (-128, 127)), ("fp8_e4m3fn", (-448, 448))])
def test_what_is_too_large_saturates(target: str, most: Any, emulated: Emulated) -> None:
    y = check(plan_of("skinny", (Coded(target, 1e-3),)), 5, emulated).astype(np.float32)
    assert (y.min(), y.max()) == most


def test_codes_are_those_of_onnx_in_steps_of_a_half(emulated: Emulated) -> None:
    """C59: sums of small integers are exact, so that every half is a tie; it goes to the even code, in the kernel too."""
    step = Coded("int8", 2.0)
    op = ladder.matmul(1, 8, 16, activation="float16", weight="int4", epilogue=(step,))
    weights = ladder.Quantized(op.weight, np.eye(8, 16, dtype=np.uint8), None, None)
    x = np.arange(-8, 8, dtype=np.float16)[None]
    plan = ladder.schedule(op)
    for y in (op.reference(x, weights), plan.run(x, weights), emulated(plan, x, weights)):
        assert y.tolist() == [[-4, -4, -3, -2, -2, -2, -1, 0]]


def test_a_kernel_without_codes_is_as_before_and_one_with_them_is_called(tmp_path: Any) -> None:
    plan = plan_of("skinny", ("relu", Coded("int8", 0.05)))
    kernel = ladder.compile(plan)
    x, weights, *_ = operands(plan, 3)
    wanted = plan.run(x, weights)
    kernel.save(tmp_path / "kernel")
    for found in (kernel, ladder.load(tmp_path / "kernel")):
        y = found(x, found.pack(weights), device="emulator")
        assert y.dtype == np.int8
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize(
    "steps, what",
    [
        ((Coded("int8", 1.0), "relu"), "a step stands behind to int8 by 1"),
        ((Coded("int8", 1.0), Coded("int8", 1.0)), "a step stands behind"),
    ],
)
def test_codes_come_last(steps: tuple[Any, ...], what: str) -> None:
    with pytest.raises(TypeDeclarationError, match=what):
        ladder.matmul(1, 8, 16, activation="float16", weight="int4", epilogue=steps)


@pytest.mark.parametrize(
    "target, scale, what",
    [
        ("int4", 1.0, "target is 'int4'"),
        ("int8", 0.0, "scale is 0"),
        ("int8", float("nan"), "scale is nan"),
        ("int8", 1e-40, "no normal number of float32"),
        ("int8", 1e39, "no normal number of float32"),
    ],
)
def test_scales_that_are_none_are_refused(target: str, scale: float, what: str) -> None:
    with pytest.raises(TypeDeclarationError, match=what):
        Coded(target, scale)
