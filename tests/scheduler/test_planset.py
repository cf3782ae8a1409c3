"""Plan sets: adjacent ranges over one packing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ladder.errors import PlanError
from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import PlanSet, schedule
from ladder.ttype import quantize

INT4 = types["int4"]
OP = matmul(None, 512, 1024, activation="float16", weight=INT4.grouped(128))
PLANS = schedule(OP)


def test_ranges_start_at_zero_touch_each_other_and_never_end():
    ranges = [plan.m_range for plan in PLANS]
    assert ranges[0][0] == 0
    assert ranges[-1][1] is None
    for (_, most), (least, _) in pairwise(ranges):
        assert least == most + 1


@pytest.mark.parametrize("m", [0, 1, 8, 9, 16, 17, 64, 65, 1024, 1025, 10**6])
def test_every_m_has_one_plan(m):
    plan = PLANS.plan_for(m)
    least, most = plan.m_range
    assert least <= m
    assert most is None or m <= most


def test_all_plans_read_the_same_bytes():
    assert {id(plan.packing) for plan in PLANS} == {id(PLANS.packing)}
    assert (PLANS.op, PLANS.device.name) == (OP, "h200")


def test_neighbours_differ_in_more_than_their_range():
    for one, other in pairwise(PLANS.plans):
        assert replace(one, m_range=other.m_range) != other


def test_run_takes_the_plan_of_the_rows():
    rng = np.random.default_rng(0)
    weights = quantize(rng.standard_normal((512, 1024)), OP.weight)
    x = rng.standard_normal((20, 1024)).astype(np.float16)
    whole = PLANS.run(x, weights)
    assert np.array_equal(whole, PLANS.plan_for(20).run(x, weights))
    assert np.array_equal(PLANS.run(x[:3], weights), PLANS.plan_for(3).run(x[:3], weights))
    assert PLANS.run(x[:0], weights).shape == (0, 512)


def test_with_fixes_a_decision_of_every_plan():
    assert {plan.launch for plan in PLANS.with_(launch="pdl")} == {"pdl"}
    few = PlanSet(PLANS.plans[:2]).with_(access="scalar")
    assert {plan.access for plan in few} == {"scalar"}
    assert "specialised" not in {plan.family for plan in few}
    with pytest.raises(PlanError, match="no decision"):
        PLANS.with_(speed=3)


def test_printed_one_line_a_range():
    lines = str(PLANS).splitlines()
    assert len(lines) == 1 + len(PLANS)
    assert lines[0] == f"{OP} on h200"
    assert lines[1].startswith("  M 0..")


def test_explains_every_plan():
    assert PLANS.explain().count("\ncost\n") == len(PLANS)


@pytest.mark.parametrize(
    "plans, text",
    [
        ((), "at least one plan"),
        (PLANS.plans[1:] + PLANS.plans[:1], "has no upper limit but is not the last"),
        ((PLANS.plans[0], PLANS.plans[-1]), "plan 1 starts at M="),
        (
            (
                PLANS.plans[0],
                replace(PLANS.plans[1], op=replace(OP, bias=True)),
            ),
            "plan 1 is of another operator",
        ),
    ],
)
def test_what_is_no_set_is_refused(plans, text):
    with pytest.raises(PlanError, match=text):
        PlanSet(plans)


def test_missing_range_is_named():
    some = PlanSet(PLANS.plans[:1])
    with pytest.raises(PlanError) as caught:
        some.plan_for(10**6)
    assert caught.value.what == "no plan for M=1000000"
    assert some.plans[0].m_text in caught.value.hint
