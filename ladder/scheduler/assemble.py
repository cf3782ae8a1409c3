"""From a plan's decisions to the stages that its kernel is assembled from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import (
    Barriers,
    Decode,
    GroupScale,
    LoadRing,
    Multiply,
    Reduce,
    ScaleRegisters,
    Stage,
    Store,
)
from ladder.scheduler.walk import steps_held

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: alignment of the operands of a slot, in bytes, by product instruction: the 128-byte swizzle of wgmma repeats every 1024
ALIGN = {"mma": 128, "wgmma": 1024}

#: tokens that a persistent CTA stages at once: two token tiles, one stmatrix
STAGED_TOKENS = 16

#: bytes of an output that is staged for wide stores
OUT_BYTES = 2
#: bytes of the scale of a row
SCALE_BYTES = 4


def stages_of(plan: Plan) -> tuple[Stage, ...]:
    """The stages of a plan, in the order in which a block of K meets them."""
    tiling = plan.tiling
    return (
        plan.load_ring,
        *([Barriers(slots=plan.depth)] if plan.family == "specialised" else []),
        _decode(plan),
        *([_scale_registers(plan)] if plan.scale == "register" else []),
        plan.product,
        GroupScale(
            accumulators=0 if plan.in_place else tiling.row_tiles * tiling.token_tiles * 4,
            per_block=plan.flushes_per_block,
        ),
        _reduce(plan),
        *plan.epilogue,
        Store(out=plan.op.stored.name),
    )


def _scale_registers(plan: Plan) -> ScaleRegisters:
    cut = plan.packing.geometry
    steps = steps_held(plan)
    exact = plan.zero == "register" and plan.has_zeros
    return ScaleRegisters(groups=cut.groups_per_block, fragments=4 * steps, exact_zeros=exact)


def _reduce(plan: Plan) -> Reduce:
    tiling = plan.tiling
    # of one token whose columns are steps, pairs of them stay to be added up
    tokens = tiling.tokens // 2 if plan.access == "column" else tiling.tokens
    outputs = tiling.channels * tokens // plan.split
    stored = plan.out_channels * tiling.tokens // plan.split
    staged = plan.stores_fragments
    # beside the ring, which the next tile fills already
    beside = plan.out_channels * STAGED_TOKENS * OUT_BYTES if plan.persistent else 0
    scales = tiling.tokens * SCALE_BYTES if staged and plan.op.activation_scale else 0
    if plan.persistent and plan.split == 1:
        return Reduce(slices=0, tile_bytes=0, beside_bytes=beside, scale_bytes=scales)
    return Reduce(
        # a warp that has all of K stages its outputs straight from registers
        slices=plan.split * tiling.warps_k if plan.sums_in_shared else 0,
        tile_bytes=outputs * 4,
        staging_bytes=stored * OUT_BYTES if staged else 0,
        beside_bytes=beside,
        scale_bytes=scales,
        cluster=plan.split > 1,
    )


def multiply(plan: Plan) -> Multiply:
    """The products of a plan."""
    return Multiply(
        instruction=plan.instruction,
        row_tiles=plan.tiling.row_tiles,
        token_tiles=plan.tiling.token_tiles,
        classes=1 if plan.scale == "register" else plan.program.classes,
        sums=len(plan.sum_sets),
    )


def load_ring(plan: Plan) -> LoadRing:
    """The rings of a plan."""
    tiling, packing = plan.tiling, plan.packing
    # A warp that loads fills one ring, at which K slices take turns; those that load for themselves have one each.
    rings = 1 if plan.load_warps else tiling.warps_k
    return LoadRing(
        rings=rings,
        slots=plan.depth,
        warps=tiling.ring_warps * tiling.warps_k // rings,
        weight_bytes=tiling.tile_rows * plan.atoms_per_block * 4 * packing.atom_words,
        activation_bytes=0
        if plan.access == "column"
        else plan.value_bytes(plan.rows_loaded * packing.geometry.block_k),
        scale_bytes=_metadata_bytes(plan, packing.scale_dtype),
        zero_bytes=_metadata_bytes(plan, packing.zero_dtype),
        access=plan.access,
        align=ALIGN.get(plan.compute, ALIGN["mma"]),
    )


def _metadata_bytes(plan: Plan, dtype: np.dtype[Any] | None) -> int:
    """Bytes of a slot's scales or zeros; none where one group spans all of K and they are read once."""
    if dtype is None or not plan.has_groups:
        return 0
    groups = plan.packing.geometry.groups_per_block
    return plan.tiling.tile_rows * groups * TILE_ROWS * dtype.itemsize


def _decode(plan: Plan) -> Decode:
    tiling, packing = plan.tiling, plan.packing
    scratch = plan.value_bytes(tiling.warps_k * tiling.channels * packing.geometry.block_k)
    return Decode(
        program=plan.program,
        placement=plan.convert,
        atoms=tiling.row_tiles * plan.atoms_per_block,
        scratch_bytes=scratch if plan.convert == "shared" else 0,
        row_tiles=tiling.row_tiles,
    )
