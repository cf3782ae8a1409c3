"""Plans of one shape: each once, depth by depth."""

from __future__ import annotations

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import choose_packing, schedule
from ladder.scheduler.candidates import shapes
from ladder.scheduler.ranking import TIE
from ladder.scheduler.siblings import plans_of, walks_of

H200 = devices["h200"]
INT4 = types["int4"].grouped(128, zero="integer")


def test_plans_of_a_shape_are_those_of_its_siblings_once_each():
    op = matmul(1, 4096, 4096, activation="float16", weight=INT4)
    for shape in shapes(op, H200, choose_packing(op, H200.features), (1, 1), {}):
        plans = list(plans_of(shape))
        assert len(set(plans)) == len(plans) == sum(len(siblings.walks) for siblings in shape)
        assert [plan.depth for plan in plans] == sorted(plan.depth for plan in plans)
        assert {(plan.depth, plan.lookahead) for plan in plans} == set(walks_of(shape))


def test_few_tokens_are_offered_fewer_slots_where_a_turn_then_takes_more_blocks():
    """Seven slots fill an SM of int3 and 256 channels; with four a turn takes four blocks (measured: 56.5 us and 53.6 us)."""
    weight = types["int3"].grouped(128)
    op = matmul(64, 28672, 8192, activation="float16", weight=weight)
    fixed = {"family": "specialised", "split": 1}
    found = shapes(op, H200, choose_packing(op, H200.features), (64, 64), fixed)
    wide = [
        siblings for shape in found for siblings in shape if siblings.plan.tiling.tile_rows == 16
    ]
    (siblings,) = [s for s in wide if s.plan.tiling.tokens == 64]
    plans = {depth: siblings.walking(depth, lookahead) for depth, lookahead in siblings.walks}
    assert {depth: plan.turns_together for depth, plan in plans.items()} == {7: 1, 4: 4}
    chosen = schedule(op, "h200")
    assert (chosen.tiling.channels, chosen.depth, chosen.turns_together) == (256, 4, 4)


def test_many_tokens_are_not():
    op = matmul(256, 8192, 8192, activation="float16", weight=INT4)
    found = shapes(
        op, H200, choose_packing(op, H200.features), (256, 256), {"family": "specialised"}
    )
    for siblings in (s for shape in found for s in shape if s.plan.tiling.tokens > 64):
        assert len(siblings.walks) <= 2


def test_among_equals_the_ring_whose_turn_takes_most_blocks_is_chosen():
    """Five, eight and ten slots of int3 are estimated alike; a turn of eight takes four blocks, one of five takes one."""
    op = matmul(32, 28672, 8192, activation="float16", weight=types["int3"].grouped(128))
    chosen = schedule(op, "h200")
    assert (chosen.depth, chosen.turns_together) == (8, 4)
    fewer = chosen.with_(depth=5)
    assert fewer.cost(32).us <= chosen.cost(32).us * (1 + TIE)


def test_a_turn_of_a_single_block_gives_way_to_one_of_four():
    """int6: 69.1 us with seven slots, which are estimated 1.4 % faster, and 66.5 us with four; int8 keeps six, two a turn."""
    for name, depth, together in (("int6", 4, 4), ("int8", 6, 2)):
        op = matmul(64, 28672, 8192, activation="float16", weight=types[name].grouped(128))
        chosen = schedule(op, "h200")
        assert (chosen.depth, chosen.turns_together) == (depth, together)
