"""By which program a plan reads packed words: closing fmas go where the plan does their work elsewhere."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, choose_packing, schedule
from ladder.scheduler.walk import steps_held
from ladder.ttype import GroupedType

W4 = types["int4"].grouped(128, zero="integer")
SYMMETRIC = types["int4"].grouped(128)


def a_plan(weight: GroupedType, m: int, activation: str = "bfloat16", **decisions) -> Plan:
    op = matmul(m, 4096, 4096, activation=activation, weight=weight)
    return schedule(op, "h200", **decisions)


def fmas(plan: Plan) -> float:
    return plan.program.pipes()["fma"]


def test_sums_of_activations_take_the_zero_of_a_magic_constant_off():
    plan = a_plan(W4, 16, family="skinny", zero="sums")
    assert fmas(plan.with_(zero="register")) == 0
    assert fmas(plan) == 2  # of the rows whose lanes would be lost in float32
    assert plan.sum_sets == ((Fraction(-136), Fraction(0)),)
    assert plan.deferred == plan.program.affine


def test_zero_points_in_registers_take_the_place_of_all_closing_fmas():
    plan = a_plan(W4, 64, family="specialised")
    assert (plan.zero, plan.scale) == ("register", "register")
    assert fmas(plan) == 0
    # lanes are the differences, or quarters of them: no larger factor than 2^127 brings the high nibbles there
    assert [affine.alpha for pair in plan.deferred for affine in pair] == [4, 4]
    assert all(affine.beta == 0 for pair in plan.deferred for affine in pair)


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8"])
def test_scales_in_registers_apply_the_factor_of_small_floats(name):
    plan = a_plan(types[name], 64, family="specialised")
    assert (plan.zero, plan.scale) == ("sums", "register")
    assert fmas(plan) == 0
    assert fmas(a_plan(types[name], 16, family="skinny")) == 4  # accumulators would get nothing


def test_without_zero_points_nothing_takes_a_zero_off_for_the_fma():
    for m, family in ((16, "skinny"), (64, "specialised")):
        plan = a_plan(SYMMETRIC, m, family=family)
        assert plan.program is plan.packing.program
        assert fmas(plan) == 4


def test_float16_keeps_its_programs():
    for m in (16, 64):
        plan = a_plan(W4, m, "float16")
        assert plan.program is plan.packing.program


def test_all_readings_are_of_the_same_words(weights_of):
    packing = choose_packing(matmul(None, 64, 256, activation="bfloat16", weight=W4), frozenset())
    weights = weights_of(W4, 64, 256)
    packed = packing.pack(weights)["weight"]
    for other in (packing.readings.bare, packing.readings.summed):
        assert other is not packing
        assert np.array_equal(other.pack(weights)["weight"], packed)


@pytest.mark.parametrize("group, chunks", [(128, (2, 2, 6)), (32, (2, 2, 6))])
def test_lanes_of_two_fmas_are_decoded_in_short_chunks_where_tokens_are_few(group, chunks):
    plan = a_plan(types["int4"].grouped(group, zero="integer"), 64, family="specialised")
    assert (plan.chunk_steps, plan.chunks_in_flight, steps_held(plan)) == chunks
    many = a_plan(W4, 256, family="specialised")
    assert many.chunks_in_flight == 1
    once = a_plan(W4, 64, "float16", family="specialised")
    assert (once.chunk_steps, once.chunks_in_flight, steps_held(once)) == (4, 1, 8)


def test_wide_tiles_have_no_registers_for_several_scales():
    weight = types["int5"].grouped(128)
    narrow, wide = (a_plan(weight, m, "float16", family="specialised") for m in (64, 1024))
    assert narrow.program.is_scaled
    assert wide.scale == "register"
    assert wide.tiling.tokens == 256
    assert wide.reading is wide.packing
