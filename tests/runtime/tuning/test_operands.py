"""Operands that are made quickly mean what operands of full size mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ladder
from ladder.registry import types
from ladder.runtime.tuning import operands
from ladder.runtime.tuning.operands import Inputs, Weights, relative_error
from ladder.scheduler import choose_packing
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
@pytest.mark.parametrize("n", [8, 200, 640, 647])
def test_the_exact_answer_is_that_of_all_rows(weight, n, monkeypatch):
    monkeypatch.setattr(operands, "ROWS", 48)
    op = ladder.matmul(m=3, n=n, k=256, activation="float16", weight=weight, bias=True)
    weights = Weights.random(op)
    inputs = Inputs.random(op, weights)
    whole = weights.whole()
    assert whole.shape == (n, 256)
    exact = op.reference(inputs.x, whole, inputs.bias)
    assert inputs.exact.shape == (3, n)
    np.testing.assert_allclose(inputs.exact, exact, rtol=1e-12, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("n", [8, 640, 648, 647])
def test_repeated_bands_are_what_all_rows_are_packed_to(weight, n, monkeypatch):
    monkeypatch.setattr(operands, "ROWS", 48)
    activation = "bfloat16" if "e8m0" in str(weight) else "float16"
    op = ladder.matmul(m=3, n=n, k=256, activation=activation, weight=weight)
    packing = choose_packing(op, ladder.devices["h200"].features)
    weights = Weights.random(op)
    found, wanted = weights.pack(packing), packing.pack(weights.whole())
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("rows", [1, 3, 16, 128, 600, 16384])
def test_rows_repeat_after_an_odd_number_of_bands(rows):
    """So that no block of 16, 32, 64 or 128 rows finds its own rows in another place."""
    weight = INT4.grouped((None if rows == 16384 else rows, 64))
    op = ladder.matmul(m=1, n=16384, k=64, activation="float16", weight=weight)
    period = Weights.random(op).some.shape[0]
    assert period >= operands.ROWS
    unit = 64 if rows == 16384 else math.lcm(64, rows)
    assert period % unit == 0
    assert (period // unit) % 2 == 1
    assert len(np.unique(Weights.random(op).some.codes, axis=0)) == period


def test_operands_are_the_same_every_time_and_differ_with_m():
    op = ladder.matmul(m=2, n=64, k=256, activation="bfloat16", weight=INT4.grouped(64))
    assert Weights.random(op).some == Weights.random(op).some
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
