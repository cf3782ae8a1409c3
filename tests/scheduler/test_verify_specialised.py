"""Each rule of the specialised family, broken once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ladder.errors import PlanError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Plan, Tiling, check, choose_packing, verify
from ladder.scheduler.epilogue import default_epilogue

H200 = devices["h200"]
INT4 = types["int4"]
W4 = INT4.grouped(128, zero="integer")
#: CTAs that load their tokens for each other
PAIRS = {"multicast": 2, "m_range": (16, None)}


def a_plan(
    weight: Any = W4, n: int = 512, k: int = 1024, activation: str = "float16", **decisions: Any
) -> Plan:
    """64 channels x 32 tokens by one warpgroup; 8 blocks of K for groups of 128."""
    op = matmul(None, n, k, activation=activation, weight=weight)
    packing = choose_packing(op, H200.features)
    base: dict[str, Any] = {
        "family": "specialised",
        "tiling": Tiling(1, 4, 1, 1, 4),
        "depth": 4,
        "scale": "register",
        "access": "tensor",
        "compute": "wgmma",
        "epilogue": default_epilogue(op, packing),
    }
    return Plan(op, packing=packing, **{"device": H200, **base, **decisions})


@pytest.mark.parametrize(
    "decisions",
    [
        {},
        {"depth": 2},
        {"split": 2},
        {"split": 4, "launch": "pdl"},
        PAIRS,
        {**PAIRS, "multicast": 4, "launch": "pdl"},
        {**PAIRS, "persistent": True},
        {"tiling": Tiling(2, 4, 1, 1, 4), "depth": 4},
        {"tiling": Tiling(1, 8, 1, 1, 8), "split": 8},
        {"tiling": Tiling(1, 16, 1, 1, 1)},
        {"zero": "register"},
        {"scale": "register", "zero": "sums", "weight": INT4.grouped(128, zero="float")},
        {"scale": "register", "weight": types["nf4"].grouped(64)},
        {"scale": "register", "weight": types["mxfp4"]},
        {"scale": "accumulator", "zero": "register", "weight": INT4.grouped("channel")},
        {"scale": "accumulator", "zero": "register", "weight": INT4},
    ],
)
def test_legal_plans_break_no_rule(decisions):
    assert check(a_plan(**decisions)) == ()


@pytest.mark.parametrize(
    "decisions, found",
    [
        ({"compute": "mma"}, "the specialised family has compute = 'wgmma', not 'mma'"),
        ({"access": "vector"}, "the specialised family has access = 'tensor', not 'vector'"),
        ({"access": "scalar"}, "the specialised family has access = 'tensor', not 'scalar'"),
        ({"convert": "shared"}, "the specialised family has convert = 'register', not 'shared'"),
        ({"lookahead": True}, "the specialised family has lookahead = False, not True"),
        (
            {"tiling": Tiling(2, 4, 1, 1, 4), "depth": 2},
            "2 K slices take turns at 2 slots and 8 blocks",
        ),
        (
            {"tiling": Tiling(2, 4, 1, 1, 8), "split": 8, "depth": 4},
            "2 K slices take turns at 4 slots and 1 blocks",
        ),
        # a slot that two slices read in turns: the parity of its barrier would not tell them apart
        (
            {"tiling": Tiling(2, 4, 1, 1, 4), "depth": 3},
            "2 K slices take turns at 3 slots and 8 blocks",
        ),
        # the scale of a whole channel, but sums of activations that are flushed with every block
        (
            {"scale": "accumulator", "weight": INT4.grouped("channel", zero="float")},
            "the specialised family keeps no activation sums",
        ),
        ({"weight": INT4, "zero": "register"}, "int4 has no scales"),
        ({"split": 3}, "4 token tiles cannot be finished by 3 CTAs alike"),
        ({"split": 8}, "4 token tiles cannot be finished by 8 CTAs alike"),
        (
            {"tiling": Tiling(1, 4, 1, 1, 16), "split": 16},
            "16 CTAs > 8 of a portable cluster",
        ),
        ({"k": 384, "split": 4}, "4 CTAs share 3 blocks of K"),
        ({"multicast": 2}, "M from 0 on does not fill boxes of 16 tokens"),
        ({**PAIRS, "split": 2}, "a cluster shares its tokens or its K, not both"),
        ({**PAIRS, "n": 448}, "7 channel tiles are no multiple of 2"),
        ({**PAIRS, "multicast": 16}, "16 CTAs load for each other"),
        ({**PAIRS, "multicast": 4, "persistent": True}, "4 CTAs load for each other"),
        (
            {**PAIRS, "tiling": Tiling(1, 4, 1, 1, 1)},
            "a part of 8 tokens for each of 2 CTAs is no multiple of 8 rows",
        ),
        ({**PAIRS, "device": devices["a100"]}, "a100 lacks cluster"),
        ({"tiling": Tiling(1, 2, 1, 1, 4)}, "a warpgroup is four warps along n"),
        ({"tiling": Tiling(1, 4, 1, 1, 3)}, "no instruction wgmma.m64n24k16"),
        ({"k": 1020}, "tensor access needs K to be a multiple of 8, not 1020"),
        ({"weight": INT4.grouped(40), "k": 1000}, "tensor access needs groups without padding"),
        ({"device": devices["a100"]}, "a100 lacks tma"),
        ({"device": devices["a100"], "split": 2}, "a100 lacks cluster"),
        ({"depth": 30}, "shared "),
        ({"tiling": Tiling(1, 16, 1, 1, 32), "depth": 2}, "registers a thread"),
    ],
)
def test_a_broken_rule_is_named(decisions, found):
    plan = a_plan(**decisions)
    assert any(found in text for text in check(plan)), check(plan)
    with pytest.raises(PlanError) as caught:
        verify(plan)
    assert found in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize(
    "decision, found",
    [
        ({"access": "tensor"}, "tensor maps fill the rings of the specialised family only"),
        ({"scale": "register"}, "scales are applied in registers by the specialised family only"),
        ({"split": 2}, "K is shared over a cluster by the specialised family only"),
        (PAIRS, "the specialised family alone loads for several CTAs"),
    ],
)
def test_what_the_family_has_no_other_has(decision, found):
    plan = replace(
        a_plan(),
        family="ring",
        scale="accumulator",
        zero="register",
        access="vector",
        lookahead=True,
    )
    assert check(plan) == ()
    problems = check(replace(plan, **decision))
    assert any(found in text for text in problems), problems


def test_a_zero_that_scaling_takes_off_need_not_be_exact():
    plan = a_plan(weight=INT4.grouped(128, zero="float"), zero="sums")
    assert check(plan) == ()
    assert "cannot be taken off exactly" in check(replace(plan, zero="register"))[0]
    assert check(a_plan(weight=INT4.grouped(128, zero="integer"), zero="register")) == ()


@pytest.mark.parametrize("slices, depth", [(2, 2), (3, 3), (4, 4), (4, 2)])
def test_as_many_slots_as_slices_would_wait_for_each_other(slices, depth):
    """A slice frees a slot when it has begun its next block, which is in no slot as long as this one is not free."""
    plan = a_plan(tiling=Tiling(slices, 4, 1, 1, 1), depth=depth)
    assert any("take turns at" in text for text in check(plan))
    assert check(replace(plan, depth=2 * slices)) == ()


def test_scales_in_registers_bring_all_classes_of_steps_to_one_factor():
    plan = a_plan(weight=types["int2"].grouped(128))
    assert plan.scale == "register" and plan.program.classes == 2
    assert check(plan) == ()
    one = replace(plan, scale="accumulator", zero="register")
    assert one.program.classes == 1  # the packing's other program
    assert check(one) == ()


def test_sums_of_groups_may_be_scaled_apart_from_the_totals() -> None:
    """Where scales change along K and are not applied in registers, each token counts twice among the registers."""
    plan = a_plan(scale="accumulator", zero="register")
    assert check(plan) == ()
    assert (plan.flushes_per_block, plan.in_place) == (1, False)
    assert plan.registers > replace(plan, scale="register", zero="sums").registers
    wide = replace(plan, tiling=Tiling(1, 4, 1, 1, 32))
    assert any("registers a thread" in text for text in check(wide))


def test_scales_in_registers_need_lanes_that_hold_them() -> None:
    plan = a_plan(activation="int8", weight=INT4.grouped(128, scale="float16"))
    assert any("lanes of int8 hold codes, not scaled weights" in text for text in check(plan))
    assert "unit" not in plan.packing.shapes()
