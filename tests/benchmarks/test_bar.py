"""The error bar covers what the roundings can do, and not much more."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.bar import PROMISED, ROUNDOFF, error_bar, table_error
from benchmarks.grid import ACTIVATIONS, Case
from benchmarks.weights import BASE, WEIGHTS

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def case(weight: str, activation: str) -> Case:
    return Case(weight, 64, 512, 8, activation)


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("name", ROUNDOFF)
def test_roundoff_is_the_largest_relative_error_of_rounding(name):
    numbers = np.concatenate([np.linspace(1, 2, 100_001), [1 + ROUNDOFF[name]]])
    with np.errstate(over="raise"):
        rounded = numbers.astype(DTYPES[name]).astype(np.float64)
    worst = float(np.max(np.abs(rounded - numbers) / numbers))
    assert 0.9 * ROUNDOFF[name] <= worst <= ROUNDOFF[name]


@pytest.mark.parametrize("weight", [name for name in WEIGHTS if name != "bfloat16"])
def test_float16_outputs_keep_the_promise(weight):
    assert error_bar(case(weight, "float16").operator) == PROMISED == 1e-3


def test_bfloat16_outputs_may_be_rounded_and_tables_too():
    assert error_bar(case("int4", "bfloat16").operator) == 2**-8 + 2**-11
    rounded = table_error(case("nf4", "bfloat16").operator)
    assert 2**-10 < rounded < 2**-8
    assert error_bar(case("nf4", "bfloat16").operator) == 2**-8 + rounded + 2**-11


def test_sums_of_8_bit_floats_lose_more_the_more_there_are():
    int8 = Case("int4_channel", 64, 8192, 8, "int8").operator
    assert error_bar(int8) == PROMISED
    for k, steps in ((512, 16), (8192, 256)):
        op = Case("fp4_e2m1_channel", 64, k, 8, "fp8_e4m3fn").operator
        assert error_bar(op) == 2**-11 + 2**-11 + 2**-13 * steps**0.5


def test_only_the_codebook_is_rounded_in_the_grid():
    inexact = {
        (weight, activation)
        for weight in BASE
        for activation in ACTIVATIONS
        if table_error(case(weight, activation).operator)
    }
    assert inexact == {("nf4", "float16"), ("nf4", "bfloat16")}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("weight", ["nf4", "int8"])
def test_roundings_of_table_and_output_stay_below_the_bar_and_wrong_numbers_do_not(
    weight, activation
):
    op, dtype = case(weight, activation).operator, DTYPES[activation]
    rng = np.random.default_rng(7)
    values = op.weight.element.values
    codes = rng.integers(0, len(values), (op.n, op.k))
    x = rng.standard_normal((op.m, op.k)).astype(dtype).astype(np.float64)
    exact = x @ values[codes].T
    y = (x @ values.astype(dtype).astype(np.float64)[codes].T).astype(dtype)
    assert 0 < relative(y, exact) <= error_bar(op)
    codes[3] = codes[2]  # one row of 64 computed from its neighbour's weights
    assert relative(x @ values[codes].T, exact) > error_bar(op)
