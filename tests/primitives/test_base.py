from __future__ import annotations

import itertools

import pytest

from ladder.errors import ShapeError
from ladder.primitives import PRIMITIVES, Convert, Cost, Pad, Slice, Step, chain
from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile

DEVICE = Device(
    name="toy",
    title="A toy",
    arch="sm_80",
    capability=(8, 0),
    sms=1,
    clock_hz=1e9,
    levels=(
        MemoryLevel("dram", 1 << 20, 1e9, Tile((32,), Granule(1))),
        MemoryLevel("shared", 1 << 20, 1e10, Tile((32,), Granule(4))),
    ),
    instruction_set=(),
    pipes=(("alu", 1), ("lsu", 1)),
    features=frozenset(),
    cost=CostConstants(launch_us=1, ramp_us=1, pdl_ramp_us=1, dram_latency_us=1),
    shared_bytes_per_block=1024,
    shared_bytes_per_sm=2048,
    warps_per_sm=8,
    blocks_per_sm=8,
)


def test_the_four_primitives_are_named_as_in_the_paper() -> None:
    assert [primitive.name for primitive in PRIMITIVES] == ["slice", "pad", "map", "convert"]


def test_a_cost_is_bound_by_its_slowest_part() -> None:
    assert Cost("dram", 1000).seconds(DEVICE) == pytest.approx(1e-6)
    assert Cost("shared", 1000, (("alu", 5000.0),)).seconds(DEVICE) == pytest.approx(5e-6)
    assert Cost("dram", 9000, (("alu", 5000.0), ("lsu", 7000.0))).seconds(DEVICE) == pytest.approx(
        9e-6
    )
    assert str(Cost("dram", 12, (("alu", 3.0),))) == "12 B in dram, 3 alu"


def test_a_chain_hands_each_tile_on() -> None:
    steps = chain(
        Tile((8, 10), "float32"), Slice((0, 0), (4, 10)), Pad((0, 6)), Convert("float32", "float16")
    )
    assert [str(step.result) for step in steps] == [
        "float32[4, 10]",
        "float32[4, 16]",
        "float16[4, 16]",
    ]
    assert all(a.result == b.source for a, b in itertools.pairwise(steps))
    assert len({*steps, *steps}) == 3
    assert steps[0].cost(DEVICE) == steps[0].primitive.cost(steps[0].source, DEVICE)


def test_a_step_refuses_its_tile_when_it_is_made() -> None:
    with pytest.raises(ShapeError):
        Step(Slice((0,), (5,)), Tile((4,), "float32"))
