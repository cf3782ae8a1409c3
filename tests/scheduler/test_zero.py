"""Zero points in registers: only where every difference is exact, and then exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import choose_packing, schedule
from ladder.scheduler.zero import find_shifts, power, register_shifts, shifted

INT4 = types["int4"]
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def packing_of(weight, activation="float16"):
    op = matmul(None, 64, 256, activation=activation, weight=weight)
    return choose_packing(op, devices["h200"].features)


@pytest.mark.parametrize("name", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_shifts_that_are_found_leave_exact_lanes(name, activation):
    packing = packing_of(types[name].grouped(64, zero="integer"), activation)
    shifts = register_shifts(packing)
    values = packing.element.values
    differences = np.unique(values[:, None] - values[None, :])
    if shifts is None:
        return
    for pair, row in zip(packing.program.affine, shifts, strict=True):
        for affine, shift in zip(pair, row, strict=True):
            lanes = differences * float(power(shift) / affine.alpha)
            kept = lanes.astype(DTYPES[activation]).astype(np.float64)
            assert np.array_equal(kept, lanes)
            rest = shifted(affine, shift)
            assert np.array_equal(lanes * float(rest.alpha), differences)
            assert rest.beta == 0


def test_int4_has_shifts():
    assert register_shifts(packing_of(INT4.grouped(64, zero="integer"))) is not None


@pytest.mark.parametrize("zero", ["float", "rescaled"])
def test_zeros_that_may_be_any_number_have_none(zero):
    packing = packing_of(INT4.grouped(64, zero=zero))
    assert register_shifts(packing) is None
    assert find_shifts(packing) is None


def test_plan_defers_less_where_registers_take_zeros_off():
    op = matmul(4, 64, 256, activation="float16", weight=INT4.grouped(64, zero="integer"))
    sums, register = schedule(op, zero="sums"), schedule(op, zero="register")
    assert len(sums.sum_sets) >= 1
    assert register.sum_sets == ()
    assert all(affine.beta == 0 for pair in register.deferred for affine in pair)
    assert sums.deferred == sums.packing.program.affine
