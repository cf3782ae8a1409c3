"""Operands that are made quickly mean what operands of full size mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ladder
from ladder.registry import types
from ladder.runtime.tuning import operands
from ladder.runtime.tuning.operands import Inputs, Weights, relative_error
from ladder.ttype import GroupedType

INT4 = types["int4"]
GROUPED = [name for name, found in types.items() if isinstance(found, GroupedType)]
WEIGHTS = [
    INT4.grouped(128, zero="integer"),
    INT4.grouped("channel"),
    INT4.grouped("tensor"),
    INT4.grouped((128, 128)),
    INT4.grouped((3, 64), zero="float"),
    INT4.grouped(64, zero="rescaled"),
    INT4,
    *(types[name] for name in GROUPED),
]


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("n", [8, 640])
def test_the_exact_answer_is_that_of_all_rows(weight, n, monkeypatch):
    monkeypatch.setattr(operands, "ROWS", 61)
    op = ladder.matmul(m=3, n=n, k=256, activation="float16", weight=weight, bias=True)
    weights = Weights.random(op)
    inputs = Inputs.random(op, weights)
    assert weights.all.shape == (n, 256)
    exact = op.reference(inputs.x, weights.all, inputs.bias)
    assert inputs.exact.shape == (3, n)
    np.testing.assert_allclose(inputs.exact, exact, rtol=1e-12, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("rows", [1, 3, 16, 128, 600, 4096])
def test_rows_repeat_after_an_odd_number_of_groups(rows):
    """So that no tile of 16, 32, 64 or 128 rows finds its own rows in another place."""
    weight = INT4.grouped((None if rows == 4096 else rows, 64))
    op = ladder.matmul(m=1, n=4096, k=64, activation="float16", weight=weight)
    period = Weights.random(op).some.shape[0]
    assert period >= operands.ROWS
    if rows < 4096:
        assert period % rows == 0
        assert (period // rows) % 2 == 1
    if rows in (1, 3, 4096):
        assert math.gcd(period, 16) == 1


def test_operands_are_the_same_every_time_and_differ_with_m():
    op = ladder.matmul(m=2, n=64, k=256, activation="bfloat16", weight=INT4.grouped(64))
    assert Weights.random(op).all == Weights.random(op).all
    weights = Weights.random(op)
    first, second = Inputs.random(op, weights), Inputs.random(op, weights)
    assert np.array_equal(first.x, second.x)
    assert first.x.dtype.name == "bfloat16"
    assert first.bias is None


def test_an_element_that_was_never_written_shows():
    exact = np.ones((2, 3))
    y = exact.astype(np.float16)
    assert relative_error(y, exact) == 0
    y[1, 2] = np.nan
    assert math.isnan(relative_error(y, exact))
    assert relative_error(2 * exact, exact) == 1
