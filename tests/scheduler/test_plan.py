"""The plan as a value: sizes, equality, decisions by hand."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from ladder.errors import PlanError
from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, Tiling, schedule
from ladder.scheduler.epilogue import AddBias, GlobalScale
from ladder.scheduler.stage import LoadRing

INT4 = types["int4"]
W4 = INT4.grouped(128, zero="integer")


def a_plan(**decisions) -> Plan:
    op = matmul(None, 200, 1024, activation="float16", weight=W4)
    base = schedule(op, family="ring", compute="mma", lookahead=False).plan_for(100)
    tiling = Tiling(warps_k=2, warps_n=2, warps_m=2, row_tiles=2, token_tiles=4)
    return replace(
        base, family="ring", tiling=tiling, depth=3, m_range=(17, None), zero="sums", **decisions
    )


def test_tiling_counts():
    tiling = Tiling(warps_k=2, warps_n=4, warps_m=2, row_tiles=2, token_tiles=8)
    assert (tiling.threads, tiling.ring_warps) == (512, 8)
    assert (tiling.tile_rows, tiling.channels, tiling.tokens) == (8, 128, 128)
    assert str(tiling) == "128 channels x 128 tokens, warps k2 n4 m2, 2 x 8 tiles a warp"


def test_shared_memory_by_hand():
    plan = a_plan()
    slot = 4 * 128 * 16 // 2 + 64 * 128 * 2 + 4 * 16 * 2 + 4 * 16 * 2  # weights, x, scales, zeros
    assert plan.load_ring.slot_bytes == slot
    assert plan.shared_bytes == 2 * 3 * slot  # the reduction (2 x 64 x 64 x 4) fits in the rings
    assert a_plan(convert="shared").shared_bytes == 2 * 3 * slot + 2 * 64 * 128 * 2


def test_reduction_may_need_more_than_the_rings():
    tiling = Tiling(4, 2, 2, 2, 8)
    plan = replace(a_plan(), tiling=tiling, depth=2)
    reduced = 4 * 64 * 128 * 4
    assert plan.shared_bytes == max(plan.load_ring.shared_bytes, reduced)


def test_rows_loaded_are_no_more_than_can_come():
    assert a_plan().rows_loaded == 64
    assert replace(a_plan(), m_range=(17, 40)).rows_loaded == 40
    assert replace(a_plan(), m_range=(0, 0)).rows_loaded == 1


def test_channel_tiles_round_up():
    assert a_plan().channel_tiles == 4  # 200 channels, 64 a CTA


def test_flushes_follow_groups_and_sums():
    def flushes(weight, zero="sums", access="vector") -> int:
        op = matmul(1, 64, 1024, activation="float16", weight=weight)
        return schedule(op, zero=zero, access=access).flushes_per_block

    assert flushes(W4) == 1
    assert flushes(INT4.grouped(32)) == 4
    # columns that are steps hold the groups of a block apart
    assert flushes(INT4.grouped(32), access="column") == 1
    assert flushes(INT4.grouped(512)) == 1
    assert flushes(types["fp4_e2m1"].grouped("channel")) == 0
    # one group, but activation sums are flushed with every block all the same
    assert flushes(INT4.grouped("channel", zero="integer")) == 1
    assert flushes(INT4.grouped("channel", zero="integer"), zero="register") == 0


def test_m_range_for_people():
    assert [replace(a_plan(), m_range=r).m_text for r in ((1, 1), (0, 8), (9, None))] == [
        "1",
        "0..8",
        "9..",
    ]


def test_plans_are_frozen_equal_and_hashable():
    assert a_plan() == a_plan()
    assert len({a_plan(), a_plan()}) == 1
    assert a_plan() != a_plan(access="scalar")
    with pytest.raises(FrozenInstanceError):
        a_plan().depth = 4  # type: ignore[misc]


def test_with_changes_one_decision_and_checks():
    plan = a_plan().with_(access="scalar")
    assert plan == a_plan(access="scalar")
    assert plan.load_ring.access == "scalar"
    with pytest.raises(PlanError) as caught:
        a_plan().with_(speed="fast", colour=3)
    assert caught.value.what == "a plan has no decision colour, speed"
    assert "tiling" in caught.value.hint
    with pytest.raises(PlanError, match="depth"):
        a_plan().with_(depth=0)


def by_warpgroups() -> Plan:
    op = matmul(1024, 8192, 8192, activation="float16", weight=W4)
    plan = schedule(op, family="ring", compute="wgmma")
    assert (plan.compute, plan.lookahead, plan.convert) == ("wgmma", True, "register")
    return plan


def test_converting_in_shared_memory_gives_up_warpgroups_and_lookahead():
    tiling = Tiling(warps_k=1, warps_n=4, warps_m=1, row_tiles=1, token_tiles=8)
    plan = by_warpgroups().with_(convert="shared", tiling=tiling)
    assert (plan.compute, plan.lookahead, plan.convert) == ("mma", False, "shared")
    assert plan.instruction == "mma.m16n8k16.float16"
    # a copy of that one stays so
    assert plan.with_(launch="pdl").compute == "mma"
    # what is asked for by name is not given up, but refused
    for decision, words in (
        ({"lookahead": True}, "convert is in shared"),
        ({"compute": "wgmma"}, "products of wgmma run ahead"),
    ):
        with pytest.raises(PlanError) as caught:
            by_warpgroups().with_(convert="shared", tiling=tiling, **decision)
        assert words in caught.value.what


def test_other_decisions_keep_warpgroups_and_lookahead():
    plan = by_warpgroups().with_(launch="pdl")
    assert (plan.compute, plan.lookahead) == ("wgmma", True)
    by_warps = plan.with_(compute="mma")
    assert (by_warps.compute, by_warps.lookahead) == ("mma", True)


def specialised(**fixed) -> Plan:
    op = matmul(1024, 8192, 8192, activation="float16", weight=W4)
    tiling = Tiling(warps_k=1, warps_n=4, warps_m=1, row_tiles=1, token_tiles=8)
    return schedule(op, family="specialised", tiling=tiling, depth=4, split=2, **fixed)


@pytest.mark.parametrize(
    "decision",
    [
        {"family": "ring"},
        {"access": "vector"},
        {"access": "scalar"},
        {"convert": "shared"},
        {"compute": "mma"},
        {"lookahead": True},
    ],
)
def test_what_the_specialised_family_does_not_have_gives_it_up(decision):
    plan = specialised()
    assert (plan.scale, plan.split, plan.access) == ("register", 2, "tensor")
    other = plan.with_(**decision)
    assert {name: getattr(other, name) for name in decision} == decision
    assert (other.family, other.compute, other.scale, other.split) == (
        "ring",
        "mma",
        "accumulator",
        1,
    )
    assert other.access == decision.get("access", "vector")
    assert (other.tiling, other.depth, other.packing) == (plan.tiling, plan.depth, plan.packing)
    # what is asked for by name is not given up, but refused
    with pytest.raises(PlanError, match="specialised family"):
        plan.with_(
            **{
                "family": "specialised",
                "split": 2,
                **decision,
                **({"family": "ring"} if "family" in decision else {}),
            }
        )


def test_what_it_has_keeps_a_plan_in_the_specialised_family():
    plan = specialised().with_(launch="pdl", depth=5, split=1)
    assert (plan.family, plan.launch, plan.depth, plan.split) == ("specialised", "pdl", 5, 1)
    by_ring = plan.with_(family="ring", compute="wgmma")
    assert (by_ring.compute, by_ring.lookahead, by_ring.zero) == ("wgmma", True, "register")


def test_threads_of_a_specialised_plan_have_a_warp_that_loads():
    plan = specialised()
    assert (plan.tiling.threads, plan.load_warps, plan.threads) == (128, 1, 160)
    assert "160 threads" in str(plan)
    assert "1 warp more to load" in str(plan)
    assert "shared by 2 CTAs" in str(plan)


def test_operands_of_warpgroups_start_where_the_swizzle_repeats():
    plan = replace(by_warpgroups(), m_range=(1, 5))
    assert plan.rows_loaded == plan.tiling.tokens  # the product reads all of them
    ring = plan.load_ring
    assert ring.align == 1024
    sizes = (ring.weight_bytes, ring.activation_bytes, ring.scale_bytes, ring.zero_bytes)
    assert ring.slot_bytes == sum(-(-size // 1024) * 1024 for size in sizes)


def test_sizes_of_a_changed_plan_are_its_own():
    plan = a_plan()
    before = plan.shared_bytes, plan.registers, plan.stages
    deeper = replace(plan, depth=4)
    assert deeper.shared_bytes > before[0]
    assert isinstance(deeper.stages[0], LoadRing)
    assert (plan.shared_bytes, plan.registers, plan.stages) == before


def test_default_epilogue_asks_for_what_the_operator_has():
    op = matmul(1, 64, 64, activation="float16", weight="nvfp4", bias=True)
    assert schedule(op).epilogue == (GlobalScale(), AddBias())
    plain = matmul(1, 64, 64, activation="float16", weight=INT4)
    assert schedule(plain).epilogue == ()
