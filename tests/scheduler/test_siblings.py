"""Plans of one shape: each once, depth by depth."""

from __future__ import annotations

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import choose_packing
from ladder.scheduler.candidates import shapes
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
