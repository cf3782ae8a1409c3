"""What was fastest when plans were timed on an H200, and whether the search picks it; what estimates are off by."""

from __future__ import annotations

import pytest

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, schedule

#: activation, weight
PAIRS = {
    "i4": ("int8", types["int4"].grouped("channel")),
    "i8": ("int8", types["int8"].grouped("channel")),
    "f4": ("fp8_e4m3fn", types["fp4_e2m1"].grouped("channel")),
    "f8": ("fp8_e4m3fn", types["fp8_e4m3fn"].grouped("channel")),
    "w4": ("float16", types["int4"].grouped(128, zero="integer")),
    "f16": ("float16", "float16"),
}

#: pair, N, K, M, and of the fastest plan: channels, tokens, K slices, CTAs that share K; its time
FASTEST = [
    ("i4", 8192, 8192, 256, (128, 128, 1, 1), 24.5),
    ("i8", 8192, 8192, 256, (128, 128, 1, 1), 29.0),
    ("f4", 8192, 8192, 256, (128, 128, 1, 1), 27.4),
    ("f8", 8192, 8192, 256, (128, 128, 1, 1), 29.9),
    ("i4", 4096, 4096, 256, (64, 128, 2, 1), 10.2),
    ("f8", 4096, 4096, 256, (64, 128, 2, 1), 11.8),
    ("i4", 28672, 8192, 256, (128, 256, 1, 1), 84.1),
    ("i8", 8192, 8192, 1024, (128, 256, 1, 1), 85.5),
    ("i8", 8192, 8192, 4096, (128, 256, 1, 1), 337.6),
    ("f8", 28672, 8192, 1024, (128, 256, 1, 1), 326.0),
    ("w4", 8192, 8192, 256, (128, 256, 1, 2), 48.2),
    ("w4", 8192, 8192, 4096, (128, 256, 1, 1), 696.9),
    ("w4", 4096, 4096, 33, (64, 64, 1, 2), 8.15),
    ("w4", 8192, 8192, 32, (128, 32, 1, 2), 14.5),
    ("f16", 8192, 28672, 1024, (128, 256, 1, 1), 621.1),
    ("f16", 8192, 28672, 4096, (128, 256, 1, 1), 2504.0),
]


def chosen(pair: str, n: int, k: int, m: int) -> Plan:
    activation, weight = PAIRS[pair]
    op = matmul(
        m,
        n,
        k,
        activation=activation,
        weight=weight,
        out="float16",
        activation_scale=activation not in ("float16", "bfloat16"),
    )
    plan = schedule(op, "h200")
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("pair, n, k, m, tile, us", FASTEST)
def test_the_fastest_plan_is_picked_and_its_time_known(pair, n, k, m, tile, us):
    plan = chosen(pair, n, k, m)
    tiling = plan.tiling
    assert plan.family == "specialised"
    assert (tiling.channels, tiling.tokens, tiling.warps_k, plan.split) == tile
    assert plan.multicast == 1
    assert plan.cost().us == pytest.approx(us, rel=0.08)


#: weight -> of the plan for one token, (28672, 8192), by launch: family, access, row tiles a warp, K slices, slots; a refit may change
#: them, then to what is faster on the device
ONE_TOKEN = {
    types["int4"].grouped(128, zero="integer"): {
        "plain": ("skinny", "column", 7, 4, 2),
        "pdl": ("skinny", "vector", 7, 4, 3),
    },
    types["nf4"].grouped(128): dict.fromkeys(("plain", "pdl"), ("skinny", "column", 7, 4, 2)),
    types["mxfp4"]: dict.fromkeys(("plain", "pdl"), ("skinny", "column", 7, 4, 2)),
    types["fp8_e4m3fn"].grouped(128): {
        "plain": ("skinny", "vector", 7, 2, 2),
        "pdl": ("skinny", "vector", 7, 2, 3),
    },
    types["uint1"].grouped(128): dict.fromkeys(("plain", "pdl"), ("skinny", "vector", 7, 4, 2)),
    types["uint2"].grouped(128): dict.fromkeys(("plain", "pdl"), ("skinny", "vector", 7, 4, 3)),
}


@pytest.mark.parametrize("launch", ["plain", "pdl"])
@pytest.mark.parametrize("weight, picks", ONE_TOKEN.items(), ids=str)
def test_picks_of_one_token(weight, picks, launch):
    op = matmul(1, 28672, 8192, activation="float16", weight=weight)
    plan = schedule(op, "h200", launch=launch)
    tiling = plan.tiling
    pick = (plan.family, plan.access, tiling.row_tiles, tiling.warps_k, plan.depth)
    assert pick == picks[launch]
