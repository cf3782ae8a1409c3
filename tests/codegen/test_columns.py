"""One token whose activations lie in registers, the steps of a block in the columns of a product: kernel, plan and operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.graph.draw import activations
from ladder.scheduler import Tiling
from tests.codegen.conftest import Emulated

INT4 = ladder.types["int4"]


def made(
    weight: Any, n: int, k: int, activation: str = "float16", **decisions: Any
) -> tuple[ladder.Plan, ladder.Quantized]:
    """A plan with columns that are steps, and random weights."""
    op = ladder.matmul(1, n, k, activation=activation, weight=weight, out="float32")
    plan = ladder.schedule(op, "h200", access="column", **decisions)
    weights = ladder.quantize(
        np.random.default_rng(3).standard_normal((n, k)).astype(np.float32), op.weight
    )
    return plan, weights


def agrees(emulated: Emulated, plan: ladder.Plan, weights: ladder.Quantized) -> None:
    """The kernel adds what the plan adds, in its order; both are the operator's answer."""
    rng = np.random.default_rng(4)
    x = activations(plan.op, rng, 1)
    kernel, numpy = emulated(plan, x, weights), plan.run(x, weights)
    want = plan.op.reference(x, weights)
    size = np.linalg.norm(want)
    assert np.linalg.norm(kernel - numpy) < 2e-6 * size
    assert np.linalg.norm(kernel - want) < 2e-3 * size


@pytest.mark.parametrize(
    "name",
    ["nvfp4", "mxfp4", "int4_g32_zero", "int4_g64", "nf4_g128", "fp4_channel", "int4_tensor_zero"],
)
@pytest.mark.parametrize("launch", ["plain", "pdl"])
def test_groups_of_every_size(name: str, launch: str, emulated: Emulated) -> None:
    """Of one step, of two, of a whole block, and one for all of K."""
    weight = {
        "nvfp4": ladder.types["nvfp4"],
        "mxfp4": ladder.types["mxfp4"],
        "int4_g32_zero": INT4.grouped(32, zero="integer"),
        "int4_g64": INT4.grouped(64),
        "nf4_g128": ladder.types["nf4"].grouped(128),
        "fp4_channel": ladder.types["fp4_e2m1"].grouped("channel"),
        "int4_tensor_zero": INT4.grouped("tensor", zero="integer"),
    }[name]
    plan, weights = made(weight, 48, 512, launch=launch)
    agrees(emulated, plan, weights)


@pytest.mark.parametrize("zero", ["sums", "register"])
@pytest.mark.parametrize("group", [16, 128])
def test_zero_points_in_either_place(zero: str, group: int, emulated: Emulated) -> None:
    plan, weights = made(INT4.grouped(group, zero="integer"), 32, 512, zero=zero)
    agrees(emulated, plan, weights)


@pytest.mark.parametrize("name", ["int4", "uint2", "int8"])
@pytest.mark.parametrize("group", [32, 128, "channel"])
def test_columns_that_no_step_has_add_nothing(name: str, group: Any, emulated: Emulated) -> None:
    """Steps of bytes are four in a block; the other columns would hold, and sum, activations of the block after it."""
    weight = ladder.types[name].grouped(group, zero="integer")
    plan, weights = made(weight, 48, 512, activation="int8", zero="sums")
    assert (plan.block_steps, len(plan.sum_sets)) == (4, 1)
    agrees(emulated, plan, weights)


@pytest.mark.parametrize("k", [8, 136, 1000])
def test_k_that_ends_within_a_block(k: int, emulated: Emulated) -> None:
    plan, weights = made(INT4.grouped("channel", zero="integer"), 20, k)
    agrees(emulated, plan, weights)


@pytest.mark.parametrize("row_tiles", [1, 4, 7])
@pytest.mark.parametrize("warps_k", [1, 4])
def test_tilings(row_tiles: int, warps_k: int, emulated: Emulated) -> None:
    tiling = Tiling(warps_k, 1, 1, row_tiles, 1)
    plan, weights = made(
        ladder.types["mxfp4"], 130, 640, tiling=tiling, depth=3, activation="bfloat16"
    )
    agrees(emulated, plan, weights)


def test_blocks_of_more_steps_than_columns(emulated: Emulated) -> None:
    plan, weights = made(ladder.types["uint1"].grouped(256), 32, 1024)
    assert plan.block_steps > 8
    agrees(emulated, plan, weights)


def test_flushes_and_reads_of_shared_memory_are_fewer() -> None:
    """One flush a block in place of eight, and no activations in shared memory."""
    plan, _ = made(ladder.types["nvfp4"], 32, 512, tiling=Tiling(2, 1, 1, 2, 1), depth=2)
    column = lower(plan).source
    vector = lower(plan.with_(access="vector")).source
    assert "ldmatrix" in vector and "ldmatrix" not in column
    assert column.count("cvt_f16x2_e4m3x2") * 3 < vector.count("cvt_f16x2_e4m3x2")
