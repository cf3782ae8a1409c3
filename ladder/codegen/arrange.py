"""The arrangements of stages into a kernel: fill the rings, walk the blocks of K, finish.

Skinny and ring family are one arrangement. In the skinny family a ring belongs to one warp, so that the ring barrier is a
warp barrier and warps run freely; in the ring family all warps of a K slice share one. In the specialised family a warp of
its own fills the ring, and mbarriers take the place of ring barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ladder.codegen import emit as e
from ladder.codegen.block import Block
from ladder.codegen.consume import Consume
from ladder.codegen.context import ARENA_ALIGN, Kernel
from ladder.codegen.stages.columns import ColumnMultiplyEmitter, TokenColumns
from ladder.codegen.stages.decode import DecodeEmitter
from ladder.codegen.stages.finish import (
    cluster_barrier,
    finish_specialised,
    finish_tile,
    leave,
    reduce_and_store,
)
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.stages.load_ring import RingEmitter
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.stages.pipeline import PipelineEmitter
from ladder.codegen.stages.shared_decode import SharedWeights
from ladder.codegen.stages.warpgroup import WarpgroupEmitter
from ladder.codegen.stages.zero_point import ZeroPoint
from ladder.codegen.tvm_api import IRBuilder, T
from ladder.codegen.walk import Walk
from ladder.scheduler.plan import Plan
from ladder.scheduler.stage import (
    Barriers,
    Decode,
    GroupScale,
    Multiply,
    Reduce,
    Stage,
)

#: emitter of each product instruction
_MULTIPLY: dict[str, type[MultiplyEmitter | WarpgroupEmitter]] = {
    "mma": MultiplyEmitter,
    "wgmma": WarpgroupEmitter,
}

S = TypeVar("S", bound=Stage)


def build(plan: Plan, name: str) -> Any:
    """The PrimFunc of a plan's kernel."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        _ARRANGEMENTS[plan.family](plan, Kernel(plan, max(ARENA_ALIGN, plan.shared_bytes)))
    return builder.get()


def _shared_ring(plan: Plan, kernel: Kernel) -> None:
    """Families whose warps fill the ring that they read."""
    converts = _stage(plan, Decode)
    # The arena: lookup table, decoded weights, then the rings, whose memory the reduction takes over.
    scratch_base, ring_base = converts.shared_bytes - converts.scratch_bytes, converts.shared_bytes
    ring = RingEmitter(kernel, plan.load_ring, ring_base)
    decode = DecodeEmitter(kernel, table_base=0)
    token = TokenColumns(kernel) if plan.access == "column" else None
    multiply = _multiply(kernel, token)
    metadata = Metadata(kernel, ring.offsets)
    scale = GroupScaleEmitter(kernel, _stage(plan, GroupScale), multiply, metadata)
    zero = ZeroPoint(kernel, metadata) if plan.zero == "register" else None
    scratch = SharedWeights(kernel, decode, scratch_base) if plan.convert == "shared" else None
    walk = Walk(kernel, ring, Block(kernel, ring, decode, multiply, zero, scratch), scale, token)

    walk.fill_rings(decode.fill_table)
    if plan.program.table is not None:
        e.sync_cta()
    walk.emit()
    multiply.settle(0)
    if not plan.flushes_per_block:
        scale.flush_last()
    e.ptx("cp.async.wait_group", 0)
    reduce_and_store(kernel, scale.total, ring_base)


def _multiply(kernel: Kernel, token: TokenColumns | None) -> MultiplyEmitter | WarpgroupEmitter:
    stage = _stage(kernel.plan, Multiply)
    if token is not None:
        return ColumnMultiplyEmitter(kernel, stage, token)
    return _MULTIPLY[kernel.plan.compute](kernel, stage)


def _specialised(plan: Plan, kernel: Kernel) -> None:
    """One warp fills the ring, warpgroups read it."""
    # The arena: lookup table, ring, whose memory the reduction takes over, and barriers, which stay.
    ring_base = _stage(plan, Decode).shared_bytes
    barriers = plan.shared_bytes - _stage(plan, Barriers).shared_bytes
    pipeline = PipelineEmitter(kernel, plan.load_ring, ring_base, barriers)
    decode = DecodeEmitter(kernel, table_base=0)
    pipeline.make_barriers()
    pipeline.clear()
    decode.fill_table()
    if plan.multicast > 1:
        # CTAs load into each other's rings: all barriers are there before the first copy
        cluster_barrier(kernel)
    else:
        e.sync_cta()
    with e.when(kernel.loads):
        pipeline.fill()
        with e.when(kernel.cluster_tile()[1] if plan.persistent and plan.split > 1 else True):
            leave(kernel)
    with e.when(kernel.multiplies):
        multiply = WarpgroupEmitter(kernel, _stage(plan, Multiply))
        consume = Consume(kernel, pipeline, decode, multiply, _stage(plan, GroupScale))
        if not plan.persistent:
            consume.emit()
            finish_specialised(kernel, consume.totals(), ring_base)
        else:
            _work_through(kernel, pipeline, consume, ring_base, barriers)
    if plan.multicast > 1:
        # Warps of other CTAs free slots here: the barriers stay until all have. One barrier for both kinds of warps: at two
        # places it cost kernels of 256 tokens the registers of their products (C7512, int8).
        e.sync_warp()
        cluster_barrier(kernel)


def _work_through(
    kernel: Kernel, pipeline: PipelineEmitter, consume: Consume, ring_base: int, barriers: int
) -> None:
    """The tiles of a persistent CTA: whole ones, then its part of one that its cluster shares."""
    plan = kernel.plan
    staging = barriers - _stage(plan, Reduce).shared_bytes
    pipeline.of_cta()
    with e.loop(kernel.tiles_of_cta, "tile_turn") as turn:
        totals = _tile(kernel, consume, lambda: kernel.enter_turn(turn))
        finish_tile(kernel, totals, staging)
    if plan.split > 1:
        with e.when(kernel.cluster_tile()[1]):
            pipeline.of_cluster()
            totals = _tile(kernel, consume, lambda: kernel.enter_tile(kernel.cluster_tile()[0]))
            finish_specialised(kernel, totals, ring_base)


def _tile(kernel: Kernel, consume: Consume, enter: Callable[[], None]) -> Any:
    """Totals of one tile. Where it lies is worked out when that is first needed, not to take registers beside the products."""
    late = kernel.plan.has_groups
    if not late:
        enter()
    consume.multiply.reset()
    consume.emit()
    if late:
        enter()
    return consume.totals()


Arrangement = Callable[[Plan, Kernel], None]

#: how stages follow each other, by family
_ARRANGEMENTS: dict[str, Arrangement] = {
    "skinny": _shared_ring,
    "ring": _shared_ring,
    "specialised": _specialised,
}


def _stage(plan: Plan, kind: type[S]) -> S:
    (stage,) = (stage for stage in plan.stages if isinstance(stage, kind))
    return stage
