"""What the main loop does so that a compiler keeps within a thread's registers, as seen in the CUDA text."""

from __future__ import annotations

import re

import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.scheduler import Plan, Tiling

TURN = re.compile(r"(#pragma unroll \d+\s+)?for \(int turn = 0")


def plan(name: str, **fixed: object) -> Plan:
    op = ladder.matmul(
        m=64,
        n=64,
        k=2048,
        activation="float16",
        weight=ladder.types[name].grouped(128, scale="float16"),
    )
    decisions = {"family": "ring", "compute": "mma", "tiling": Tiling(1, 2, 1, 1, 2), "depth": 2}
    found = ladder.schedule(op, "a100", **{**decisions, **fixed})
    assert isinstance(found, Plan)
    return found


def warp_barriers(source: str) -> int:
    return source[source.index("int turn = 0") :].count("warp_sync();")


@pytest.mark.parametrize(
    "name, fixed, unrolled",
    [
        ("int1", {}, "#pragma unroll 1"),
        ("int4", {}, None),
        ("int1", {"family": "skinny", "tiling": Tiling(2, 1, 1, 1, 2), "m_range": (1, 16)}, None),
    ],
    ids=["long atoms", "short atoms", "skinny"],
)
def test_only_rings_of_long_atoms_keep_their_turns_apart(name, fixed, unrolled):
    if fixed:
        op = ladder.matmul(
            m=16,
            n=64,
            k=2048,
            activation="float16",
            weight=ladder.types[name].grouped(128, scale="float16"),
        )
        source = lower(ladder.schedule(op, "a100", compute="mma", depth=2, **fixed)).source
    else:
        source = lower(plan(name)).source
    found = TURN.search(source)
    assert found is not None
    assert (found[1] and found[1].strip()) == unrolled


@pytest.mark.parametrize(
    "name, convert, held",
    [("int1", "register", 7), ("int4", "register", 0), ("int4", "shared", 3)],
)
def test_reads_are_held_back_once_a_pair_where_nothing_else_delays_them(name, convert, held):
    # a pair has two steps of 16: eight pairs in a block of 256 columns, four in one of 128
    assert warp_barriers(lower(plan(name, convert=convert)).source) == held


def test_scalar_activations_are_loaded_eight_at_a_time():
    source = lower(plan("int4", access="scalar")).source
    assert re.search(r"#pragma unroll 8\s+for \(int element = 0", source)
