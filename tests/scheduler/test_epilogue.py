"""Stages of an epilogue: what they mean, which an operator asks for, and what no plan may do with them."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import PlanError, ShapeError
from ladder.graph.epilogue import KERNEL_STEPS
from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, PlanSet, schedule
from ladder.scheduler.epilogue import (
    Activation,
    AddBias,
    Gate,
    Residual,
    TokenScale,
)
from ladder.ttype import quantize

W4 = types["int4"].grouped(32)


def plan_of(*steps, m=3, n=64, **more):
    op = matmul(m, n, 64, activation="float16", weight=W4, epilogue=steps, **more)
    return schedule(op)


def test_stages_mean_what_they_say():
    y = np.array([[1.0, -2.0, 3.0, 4.0]], np.float32)
    assert Activation("relu").evaluate(y, {}).tolist() == [[1, 0, 3, 4]]
    assert Gate("relu").evaluate(y, {}).tolist() == [[3, 0]]
    assert Residual().evaluate(y, {"residual": y}).tolist() == [[2, -4, 6, 8]]


def test_an_operator_asks_for_its_steps_in_their_order():
    plan = plan_of("gelu", "silu_gate", "residual", bias=True, activation_scale=True)
    wanted = (TokenScale(), AddBias(), Activation("gelu"), Gate("silu"), Residual())
    assert plan.epilogue == wanted
    assert [line for line in str(plan).splitlines() if line.startswith("  gate ")]


@pytest.mark.parametrize("name", KERNEL_STEPS)
def test_plans_with_a_step_go_to_json_and_back(name):
    plan = plan_of(name, m=None, bias=True)
    assert isinstance(plan, PlanSet)
    assert PlanSet.from_json(plan.to_json()) == plan
    one = plan.plans[0]
    assert Plan.from_json(one.to_json()) == one


def test_texts_of_operators_without_steps_stay_what_they_were():
    text = plan_of().to_json()
    assert text.count('"epilogue"') == 1  # the plan's
    assert '"order"' not in text


@pytest.mark.parametrize(
    "steps, change, what",
    [
        (("residual",), lambda e: e[:-1], "holds residual 0 times, not once"),
        (("residual",), lambda e: (*e, Residual()), "holds residual 2 times, not once"),
        ((), lambda e: (*e, Residual()), "holds residual 1 times, not 0 times"),
        ((), lambda e: (*e, Gate("silu")), "holds gate 1 times, not 0 times"),
        (("silu_gate",), lambda _: (Gate("gelu"),), "holds gate 0 times, not once"),
        (("silu_gate", "residual"), lambda e: e[::-1], "another order"),
        (("silu", "silu"), lambda e: e[1:], "holds activation 1 times, not 2 times"),
    ],
)
def test_a_plan_keeps_the_steps_of_its_operator(steps, change, what):
    plan = plan_of(*steps)
    with pytest.raises(PlanError, match=what):
        plan.with_(epilogue=change(plan.epilogue))


def test_an_activation_function_may_be_added_by_hand():
    plan = plan_of("residual")
    more = plan.with_(epilogue=(*plan.epilogue, Activation("relu")))
    rng = np.random.default_rng(0)
    q, x = quantize(rng.normal(size=(64, 64)), W4), rng.normal(size=(3, 64)).astype(np.float16)
    r = rng.normal(size=(3, 64)).astype(np.float16)
    y = plan.run(x, q, residual=r)
    np.testing.assert_array_equal(more.run(x, q, residual=r), np.maximum(y, 0))


@pytest.mark.parametrize(
    "steps, residual, what",
    [
        (("residual",), None, "the residual is missing"),
        ((), np.zeros((3, 64), np.float16), "a residual is given"),
        (("residual",), np.zeros((3, 32), np.float16), r"residual is float16\[3, 32\], expected"),
        (("residual",), np.zeros((3, 64), np.float32), r"residual is float32\[3, 64\], expected"),
        (("silu_gate", "residual"), np.zeros((3, 64), np.float16), r"expected float16\[3, 32\]"),
        (("residual",), [[0.0]], "residual is"),
    ],
)
def test_a_residual_that_is_none_is_refused(steps, residual, what):
    plan = plan_of(*steps)
    q = quantize(np.ones((64, 64)), W4)
    with pytest.raises(ShapeError, match=what):
        plan.run(np.ones((3, 64), np.float16), q, residual=residual)


def test_a_residual_has_the_leading_axes_of_x():
    plan = plan_of("residual", m=6)
    q = quantize(np.ones((64, 64)), W4)
    x, r = np.ones((2, 3, 64), np.float16), np.ones((2, 3, 64), np.float16)
    y, exact = plan.run(x, q, residual=r), plan.op.reference(x, q, residual=r)
    assert y.shape == exact.shape == (2, 3, 64)
    np.testing.assert_allclose(y, exact, rtol=1e-3)


def test_a_gate_halves_what_is_stored_and_a_residual_is_read():
    from ladder.scheduler.cost import estimate

    def dram(*steps):
        (bound,) = (
            b for b in estimate(plan_of(*steps, m=256, n=4096)).bounds if b.name == "BW dram"
        )
        return bound.amount

    stored = 256 * 4096 * 2
    assert dram() - dram("silu_gate") == stored / 2
    assert dram("residual") - dram() == stored
