"""Formulas of activation functions: near float64 everywhere, and finite where they should be."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.functions import ACTIVATIONS, FUNCTIONS
from ladder.scheduler import single
from ladder.scheduler.formulas import FORMULAS, TAIL, TANH_LIMIT, evaluate

#: relative error by element where float64's own formula keeps its digits, and for |x| up to
NEAR = {"gelu": (2e-6, 6), "gelu_tanh": (1e-6, 3)}


def test_there_is_a_formula_for_every_activation_function():
    assert tuple(FORMULAS) == ACTIVATIONS


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_near_float64(function):
    most, limit = NEAR.get(function, (1.5e-6, 20))
    sizes = np.concatenate([np.logspace(-6, np.log10(limit), 4000), [TANH_LIMIT, 1.0]])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    y, exact = evaluate(function, x), FUNCTIONS[function](x.astype(np.float64))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, exact, rtol=most, atol=1e-38)


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_large_numbers_do_not_overflow_and_a_nan_stays_one(function):
    x = np.array([0.0, 3e38, -3e38, 2 * TAIL, -2 * TAIL], np.float32)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[function](x.astype(np.float64))
    np.testing.assert_allclose(evaluate(function, x), exact, rtol=1e-6, atol=1e-10)
    assert np.isnan(evaluate(function, np.array([np.nan], np.float32))).all()
    top = {"sigmoid": 1.0, "tanh": 1.0}.get(function, np.inf)
    assert evaluate(function, np.array([np.inf], np.float32)) == top


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_infinities_and_zeros_are_those_of_the_meaning_bit_by_bit(function):
    x = np.array([-np.inf, np.inf, np.nan, -0.0, 0.0, -3e38, 3e38, -1e4], np.float32)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[function](x.astype(np.float64)).astype(np.float32)
    y = evaluate(function, x)
    nan = np.isnan(x) | (np.isneginf(x) & (function in ("silu", "gelu_tanh")))  # as in torch
    np.testing.assert_array_equal(np.isnan(exact), nan)
    np.testing.assert_array_equal(np.isnan(y), nan)
    np.testing.assert_array_equal(y[~nan].view(np.uint32), exact[~nan].view(np.uint32))


def test_gelu_is_minus_zero_where_its_tail_is_too_small():
    x = np.array([-np.inf, -3e38, -100, -TAIL], np.float32)
    y = evaluate("gelu", x)
    np.testing.assert_array_equal(y.view(np.uint32), np.full(4, 0x80000000, np.uint32))


def test_fast_functions_flush_what_is_below_the_normal_numbers():
    x = np.array([-127.0, -126.0, 128.0, np.nan], np.float32)
    with np.errstate(all="ignore"):
        powers = single.exp2(x)
        inverses = single.reciprocal(np.array([2.0**127, -(2.0**-127), 4.0], np.float32))
    np.testing.assert_array_equal(powers, [0, 2.0**-126, np.inf, np.nan])
    np.testing.assert_array_equal(inverses, [0, -np.inf, 0.25])
    third = np.float32(1 / 3)
    assert single.fma(np.float32([3]), np.float32([third]), np.float32([-1])) == 2.0**-25
