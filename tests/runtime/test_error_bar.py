"""Bars of epilogues: what functions and gates make of the errors of sums, held to sums that are off by that much."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.epilogue import Coded
from ladder.graph.functions import ACTIVATIONS, FUNCTIONS
from ladder.graph.matmul import matmul
from ladder.graph.static_codes import CODE_TARGETS, static_codes
from ladder.runtime.error_bar import AMPLIFIED, FORMULA, PROMISED, ROUNDOFF, SUMS, error_bar


def bar(*steps, out="float16"):
    return error_bar(
        matmul(1, 64, 64, activation="float16", weight="int4", out=out, epilogue=steps)
    )


def test_steps_come_before_the_rounding_of_outputs():
    assert bar() == bar("relu") == bar("silu") == bar("residual") == PROMISED
    silu = AMPLIFIED["silu"] * SUMS + FORMULA
    assert bar("silu", out="bfloat16") == ROUNDOFF["bfloat16"] + silu
    gate = (1 + AMPLIFIED["silu"]) * SUMS + FORMULA
    assert bar("silu_gate") == bar("silu_gate", "residual") == ROUNDOFF["float16"] + gate
    assert bar("silu_gate", out="bfloat16") == ROUNDOFF["bfloat16"] + gate


@pytest.mark.parametrize("target", CODE_TARGETS)
@pytest.mark.parametrize("deviation", [1, 3, 30])
def test_codes_are_off_by_no_more_than_the_root_of_what_was_before(target, deviation):
    rng = np.random.default_rng(0)
    y, off = deviation * rng.normal(size=(2, 200_000))
    codes, others = (static_codes(one, target, 1.0).astype(float) for one in (y, y + SUMS * off))
    found = np.linalg.norm(others - codes) / np.linalg.norm(codes)
    assert bar(Coded(target, 1.0)) / 30 < found <= bar(Coded(target, 1.0)) == np.sqrt(SUMS)


@pytest.mark.parametrize("deviation", [1e-2, 0.5, 1, 2, 16])
@pytest.mark.parametrize("function", ACTIVATIONS)
def test_errors_grow_by_no_more_than_the_table_says(function, deviation):
    rng = np.random.default_rng(0)
    y, off = deviation * rng.normal(size=(2, 200_000))
    f, step = FUNCTIONS[function], 1e-5
    exact = f(y)
    error = np.linalg.norm(f(y + step * off) - exact) / np.linalg.norm(exact)
    assert error <= 1.01 * AMPLIFIED[function] * step
    up, up_off = rng.normal(size=(2, 200_000))
    gated = f(y + step * off) * (up + step * up_off)
    error = np.linalg.norm(gated - exact * up) / np.linalg.norm(exact * up)
    assert error <= 1.01 * (1 + AMPLIFIED[function]) * step
