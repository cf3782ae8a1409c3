"""How plans print: golden files, and that every decision shows."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, Tiling, schedule

INT4 = types["int4"]

PLANS = {
    "int4_g128_zero_m1": {
        "m": 1,
        "n": 8192,
        "k": 8192,
        "weight": INT4.grouped(128, zero="integer"),
    },
    "int4_channel_m4096": {"m": 4096, "n": 8192, "k": 8192, "weight": INT4.grouped("channel")},
    "nf4_g100_odd_bf16": {
        "m": 5,
        "n": 33,
        "k": 1000,
        "weight": types["nf4"].grouped(100),
        "activation": "bfloat16",
        "bias": True,
    },
    "int4_channel_int8_m4096": {
        "m": 4096,
        "n": 8192,
        "k": 8192,
        "weight": INT4.grouped("channel"),
        "activation": "int8",
        "activation_scale": True,
    },
    "mxfp4_m64": {"m": 64, "n": 4096, "k": 1664, "weight": "mxfp4", "out": "bfloat16"},
}


def plan_of(name: str, **fixed):
    return schedule(matmul(**{"activation": "float16", **PLANS[name]}), **fixed)


@pytest.mark.parametrize("name", PLANS)
def test_plans_print_as_tables_of_levels(name, golden):
    golden(f"plans/{name}.txt", str(plan_of(name)) + "\n")


def test_convert_in_shared_memory_prints_at_that_level(golden):
    text = str(plan_of("mxfp4_m64", placement="shared"))
    golden("plans/mxfp4_m64_shared.txt", text + "\n")
    before, after = text.split("load weight shared -> register")
    assert "convert(fp4_e2m1 -> float16 at shared)" in before
    assert "convert(fp4_e2m1" not in after


def test_plan_set_prints_a_line_a_range(golden):
    op = matmul(None, 4096, 4096, activation="float16", weight=INT4.grouped(128, zero="integer"))
    golden("plans/set_int4_4096.txt", str(schedule(op)) + "\n")


#: what a plan decides: its fields, less what it is a plan for; the epilogue has lines of its own
DECISIONS = {f.name for f in fields(Plan)} - {"op", "device", "packing", "epilogue"}


def test_every_decision_shows():
    plan = plan_of(
        "int4_g128_zero_m1",
        family="ring",
        tiling=Tiling(2, 2, 1, 1, 2),
        depth=3,
        zero="sums",
        lookahead=False,
        compute="mma",
    )
    changes = (
        {"family": "skinny"},
        {"depth": 4},
        {"tiling": Tiling(4, 2, 1, 1, 2)},
        {"convert": "shared"},
        {"lookup": "register"},
        {"access": "scalar"},
        {"zero": "register"},
        {"launch": "pdl"},
        {"lookahead": True},
        {"compute": "wgmma"},
        {"m_range": (0, 8)},
        {"scale": "register"},
        {"split": 2},
        {"persistent": True},
        {"multicast": 2},
    )
    assert {name for change in changes for name in change} == DECISIONS
    for change in changes:
        assert str(replace(plan, **change)) != str(plan), change
        if "m_range" not in change:
            assert replace(plan, **change).brief != plan.brief


def test_ctas_that_repeat_a_tile_are_counted():
    op = matmul(1, 4096, 4096, activation="float16", weight=INT4.grouped(128))
    fixed = {"family": "skinny", "tiling": Tiling(8, 1, 1, 2, 1), "depth": 4}
    plain, overlapped = (str(schedule(op, "h200", launch=how, **fixed)) for how in ("plain", "pdl"))
    assert "128 CTAs along N\n" in plain
    assert "132 CTAs along N, 4 of which repeat the last tile and store nothing\n" in overlapped
