"""Stages say what they need and, for the epilogue, what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import schedule
from ladder.scheduler.epilogue import AddBias, GlobalScale
from ladder.scheduler.stage import (
    EpilogueStage,
    GroupScale,
    LoadRing,
    Multiply,
    Reduce,
    Stage,
    Store,
)


def test_slot_counts_each_part_in_lines_of_128_bytes():
    ring = LoadRing(2, 3, 1, 2048, 200, 64, 0, "vector")
    assert ring.slot_bytes == 2048 + 256 + 128
    assert ring.shared_bytes == 2 * 3 * ring.slot_bytes
    assert ring.describe() == "2 x 3 slots of 2432 B, 1 warp a ring, vector activations"


def test_multiply_counts_registers_of_tiles_classes_and_sums():
    assert Multiply("mma", 2, 8, 1, 0).registers == 2 * 8 * 4 + 4
    assert Multiply("mma", 2, 8, 3, 2).registers == 2 * 8 * 4 * 3 + 2 * 8 * 4 + 4
    assert Multiply("mma", 1, 2, 3, 1).describe() == (
        "mma, 1 x 2 tiles a warp, 3 classes, 1 activation sum"
    )


def test_multiply_needs_room_for_activation_fragments_that_it_does_not_read_in_place():
    assert Multiply("mma.m16n8k16.float16", 2, 8, 1, 0).temporaries == 32
    assert Multiply("wgmma.m64n64k16.float16.rs", 1, 8, 1, 0).temporaries == 0


def test_reduction_needs_one_tile_a_slice():
    assert Reduce(4, 1024).reused_bytes == 4096


def test_epilogue_means_what_it_says():
    y = np.array([[1, 2], [3, 4]], np.float32)
    scaled = GlobalScale().evaluate(y, {"global_scale": np.array([0.5], np.float32)})
    assert scaled.tolist() == [[0.5, 1], [1.5, 2]]
    added = AddBias().evaluate(y, {"bias": np.array([10, 20], np.float32)})
    assert added.tolist() == [[11, 22], [13, 24]]
    assert scaled.dtype == added.dtype == np.float32
    with pytest.raises(NotImplementedError):
        EpilogueStage().evaluate(y, {})


def test_a_stage_needs_nothing_unless_it_says_so():
    assert (Stage().shared_bytes, Stage().registers, Stage().describe()) == (0, 0, "")
    assert Stage().temporaries == 0
    assert Store("float16").shared_bytes == 0


def test_stages_of_a_plan_are_in_the_order_of_a_block():
    op = matmul(4, 64, 256, activation="float16", weight="nvfp4", bias=True)
    names = [stage.name for stage in schedule(op).stages]
    assert names == [
        "load ring",
        "decode",
        "multiply",
        "group scale",
        "reduce",
        "global scale",
        "bias",
        "store",
    ]


def test_decode_table_and_scratch_take_shared_memory():
    op = matmul(4, 64, 256, activation="float16", weight=types["nf4"].grouped(64))
    plan = schedule(op)
    decode = plan.stages[1]
    table = plan.packing.program.table
    assert decode.shared_bytes == (table.nbytes if table else 0)
    shared = plan.with_(convert="shared").stages[1]
    slice_bytes = plan.tiling.channels * plan.packing.geometry.block_k * 2
    assert shared.shared_bytes == decode.shared_bytes + plan.tiling.warps_k * slice_bytes


def test_flushes_after_the_first_of_a_block_need_room_for_their_scales():
    assert [GroupScale(8, flushes).temporaries for flushes in (0, 1, 4)] == [0, 0, 12]
