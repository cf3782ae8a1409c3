"""Transform-Store: sum the K slices through shared memory, run the epilogue, cast and store.

Totals go to shared memory in fragment order (16-byte stores without conflicts); then every thread finishes outputs of
consecutive channels, so that stores to ``y[m, n]`` coalesce. Slices are added in order: the result does not depend on timing.
Where CTAs of a cluster share K, each finishes some token tiles, and gets what the others have of them through distributed
shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.columns import sum_of_columns, write_columns
from ladder.codegen.stages.epilogue import Place, Token, apply_epilogue, share_row_scales
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.stages.store_fragments import FragmentStore
from ladder.codegen.stages.warpgroup import WarpgroupEmitter
from ladder.codegen.widen import narrow
from ladder.scheduler.assemble import OUT_BYTES, STAGED_TOKENS
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.plan import Plan
from ladder.scheduler.row_order import HALF
from ladder.scheduler.tiling import TILE_TOKENS
from ladder.scheduler.unit import further

#: bytes of the totals of one 16 x 8 tile
FRAGMENT_BYTES = TILE_ROWS * TILE_TOKENS * 4


def reduce_and_store(kernel: Kernel, totals: Any, base: int) -> None:
    """Emit the end of a kernel whose warps all multiply; ``base`` is the first byte that the ring leaves free."""
    with e.stage("reduce"):
        e.sync_cta()
        if kernel.plan.access == "column":
            write_columns(kernel, totals, base)
        else:
            write_totals(kernel, totals, base)
        e.sync_cta()
    with e.stage("store"):
        finish_outputs(kernel, base)


def cluster_barrier(kernel: Kernel) -> None:
    """A barrier of all threads of the cluster, where there is one (PTX ISA, barrier.cluster)."""
    if kernel.plan.cluster == 1:
        return
    e.ptx("barrier.cluster.arrive.release.aligned")
    e.ptx("barrier.cluster.wait.acquire.aligned")


def finish_accumulators(kernel: Kernel, multiply: WarpgroupEmitter, metadata: Metadata) -> Any:
    """Totals of accumulators, read as ``totals[i]`` in float32: by the unit of scaled weights, else by the single scale."""
    with e.stage("group scale"):
        if kernel.plan.scale == "register":
            unit = e.hold(kernel.arg["unit"][1], "unit_back", "float32")
            more = further(kernel.plan)
            factors = [unit if more == 1 else unit * e.f32(more)] * 2
        else:
            ((g, h),) = kernel.plan.deferred
            factors = []
            for half, affine in enumerate((g, h)):
                scale = metadata.single("scales", 0, half)
                alpha = e.f32(float(affine.alpha))
                factors.append(e.hold(alpha if scale is None else scale * alpha, "f", "float32"))
        if multiply.kind != "float32":
            return _Converted(multiply, factors)
        for index in range(multiply.stage.token_tiles * 4):
            e.store(multiply.acc, index, multiply.acc[index] * factors[index // 2 % 2])
        return multiply.acc


@dataclass(frozen=True)
class _Converted:
    """Totals of integer accumulators, converted where they are read: all at once they would need registers beside them."""

    multiply: WarpgroupEmitter
    factors: list[Any]

    def __getitem__(self, index: int) -> Any:
        value = e.as_f32(self.multiply.kind, self.multiply.acc[index])
        return value * self.factors[index // 2 % 2]


def write_totals(kernel: Kernel, totals: Any, base: int) -> None:
    """Write the warp's totals in fragment order to the CTA that finishes them: into its own memory, or over the cluster."""
    plan, tiling = kernel.plan, kernel.plan.tiling
    token_tiles = tiling.warps_m * tiling.token_tiles // plan.split
    k_slice = kernel.slice if plan.split == 1 else kernel.rank * tiling.warps_k + kernel.slice
    for row_tile in range(tiling.row_tiles):
        for tile in range(tiling.token_tiles):
            owner, mine = divmod(tile, token_tiles) if plan.split > 1 else (0, tile)
            column = mine if plan.split > 1 else kernel.warp_m * tiling.token_tiles + tile
            place = (
                k_slice * tiling.tile_rows + kernel.warp_n * tiling.row_tiles + row_tile
            ) * token_tiles + column
            first = (row_tile * tiling.token_tiles + tile) * 4
            target = base // 4 + (place * 32 + kernel.lane) * 4
            if plan.split == 1:
                e.store_vector(kernel.shared["float32"], target, *_four(totals, first), 4)
                continue
            there = e.hold(e.u32(0), "there", "uint32")
            here = kernel.shared_address(target * 4)
            e.ptx("mapa.shared::cluster.u32", there, here, e.u32(owner))
            parts = [totals[first + i] for i in range(4)]
            e.ptx("st.shared::cluster.v4.f32", there, *parts)


def _four(totals: Any, first: int) -> tuple[Any, int]:
    """Registers that hold four totals, and the first of them."""
    if not isinstance(totals, _Converted):
        return totals, first
    held = e.registers("totals", 4, "float32")
    for index in range(4):
        e.store(held, index, totals[first + index])
    return held, 0


def finish_outputs(kernel: Kernel, base: int) -> None:
    """Sum the slices of every output, run the epilogue and store, one element a thread at a time."""
    plan, tiling = kernel.plan, kernel.plan.tiling
    rows = plan.rows_loaded // plan.split
    count, threads = plan.out_channels * rows, tiling.threads
    with e.loop(-(-count // threads), "output") as i:
        index = i * threads + kernel.thread
        with e.when(True if count % threads == 0 else index < count):
            column, token = index % plan.out_channels, index // plan.out_channels
            channel = kernel.block_n * plan.out_channels + column
            row = _first_row(plan, column)
            parts = [
                e.bind(_sum_of_slices(kernel, row + half * HALF, token, base), "value")
                for half in range(1 + plan.op.gated)
            ]
            token_ = Token(kernel, token if plan.split == 1 else kernel.rank * rows + token)
            m = token_.index
            with e.when(e.both(channel < plan.op.out_n, m < kernel.arg["m"])):
                value = apply_epilogue(kernel, parts, Place(channel, token_))
                offset = e.i64(m) * kernel.arg["y_stride_m"] + e.i64(channel)
                e.store(kernel.arg["y"], offset, narrow(plan.op.stored.dtype.name, value))


def _sum_of_slices(kernel: Kernel, row: Any, token: Any, base: int) -> Any:
    """Output (row, token) of the CTA's tile: what all K slices have of it, in order."""
    plan, tiling = kernel.plan, kernel.plan.tiling
    if plan.access == "column":
        return sum_of_columns(kernel, row, base)
    place = e.bind(_fragment_place(kernel, row, token), "place")
    stride = tiling.tile_rows * tiling.warps_m * tiling.token_tiles * 128 // plan.split
    value = kernel.shared["float32"][base // 4 + place]
    for k_slice in range(1, plan.split * tiling.warps_k):
        value = value + kernel.shared["float32"][base // 4 + k_slice * stride + place]
    return value


def _first_row(plan: Plan, column: Any) -> Any:
    """Row of the CTA's tile that holds a column of its outputs, or the gate of one, which shares a tile with it."""
    return column // HALF * TILE_ROWS + column % HALF if plan.op.gated else column


def _fragment_place(kernel: Kernel, row: Any, token: Any) -> Any:
    """Where the fragment order puts output (row, token) of the CTA's tile, in float32 elements.

    Row r of a 16-row tile is (g = r % 8, half = r // 8), token c of an 8-token tile is (t = c // 2, j = c % 2); lane 4g + t
    holds it in register 2*half + j.
    """
    tiling = kernel.plan.tiling
    token_tiles = tiling.warps_m * tiling.token_tiles // kernel.plan.split
    tile = (row // TILE_ROWS) * token_tiles + token // TILE_TOKENS
    lane = (row % 8) * 4 + token % TILE_TOKENS // 2
    register = row % TILE_ROWS // 8 * 2 + token % 2
    return (tile * 32 + lane) * 4 + register


def finish_specialised(kernel: Kernel, totals: Any, base: int) -> None:
    """From the totals of warpgroups to y: over the cluster where CTAs share K, then as the output's type allows.

    To be emitted where only the warps that multiply are; :func:`leave` is its part for those that load.
    """
    plan = kernel.plan
    if plan.split > 1:
        with e.stage("reduce"):
            # All CTAs have read their slots before totals take the ring's memory.
            cluster_barrier(kernel)
            _bring_residual(kernel, base)
            write_totals(kernel, totals, base)
            cluster_barrier(kernel)
    else:
        # The same within a CTA.
        sync_readers(kernel)
        _bring_residual(kernel, base)
        if plan.sums_in_shared:
            with e.stage("reduce"):
                write_totals(kernel, totals, base)
                sync_readers(kernel)
    with e.stage("store"):
        _wait_for_kernel_before(kernel)
        if plan.stores_fragments:
            _store_fragments(kernel, totals, base)
        else:
            finish_outputs(kernel, base)


def _fragment_store(kernel: Kernel, base: int) -> FragmentStore:
    """The store of what a CTA finishes that does not go on to another tile, behind the totals of its K slices."""
    plan, tiling = kernel.plan, kernel.plan.tiling
    token_tiles = tiling.token_tiles // plan.split
    slices = plan.split * tiling.warps_k if plan.sums_in_shared else 0
    staging = base + slices * tiling.tile_rows * token_tiles * FRAGMENT_BYTES
    return FragmentStore(kernel, staging, token_tiles, kernel.rank * (token_tiles * TILE_TOKENS))


def _bring_residual(kernel: Kernel, base: int) -> None:
    """Start to copy the residual of what the CTA finishes, beside its reduction."""
    if not (kernel.plan.op.residual and kernel.plan.stores_fragments):
        return
    with e.stage("store"):
        _wait_for_kernel_before(kernel)
        _fragment_store(kernel, base).bring_residual()


def _wait_for_kernel_before(kernel: Kernel) -> None:
    """The load warp waited for the kernel before this one; threads that store, or read what that one wrote, have to, too."""
    if kernel.plan.launch == "pdl":
        e.ptx("griddepcontrol.wait")


def _store_fragments(kernel: Kernel, totals: Any, base: int) -> None:
    """Outputs that this CTA finishes, by fragments: each K slice takes some of the token tiles, or one takes all."""
    plan, tiling = kernel.plan, kernel.plan.tiling
    store = _fragment_store(kernel, base)
    token_tiles = store.token_tiles
    if plan.op.residual:
        e.ptx("cp.async.wait_group", 0)
    if plan.op.activation_scale:
        share_row_scales(kernel, store.base + store.bytes)
    if plan.op.residual or plan.op.activation_scale:
        sync_readers(kernel)
    if token_tiles % tiling.warps_k == 0:
        each = token_tiles // tiling.warps_k
        store.stage(partial(_owned, kernel, totals, base), kernel.slice * each, each)
    else:
        with e.when(kernel.slice == 0):
            store.stage(partial(_owned, kernel, totals, base), 0, token_tiles)
    sync_readers(kernel)
    store.copy_out()


def finish_tile(kernel: Kernel, totals: Any, staging: int) -> None:
    """From the totals of warpgroups to y while the ring is being filled for the next tile: some tokens at a time."""
    plan, token_tiles = kernel.plan, kernel.plan.tiling.token_tiles
    # Where there is a residual, that of the next tokens comes to one half of the memory while the other half is stored.
    halves = 1 + plan.op.residual
    most = STAGED_TOKENS // TILE_TOKENS // halves
    size = most * TILE_TOKENS * plan.out_channels * OUT_BYTES
    with e.stage("store"):
        if plan.op.activation_scale:
            share_row_scales(kernel, staging + halves * size)
            sync_readers(kernel)
        parts = [
            FragmentStore(
                kernel,
                staging + first // most % halves * size,
                min(most, token_tiles - first),
                first * TILE_TOKENS,
            )
            for first in range(0, token_tiles, most)
        ]
        if plan.op.residual:
            _wait_for_kernel_before(kernel)
            parts[0].bring_residual()
        for store, following in zip(parts, (*parts[1:], None), strict=True):
            if plan.op.residual:
                _change_residuals(kernel, following)
            first = store.first_row // TILE_TOKENS
            store.stage(partial(_from, totals, first), 0, store.token_tiles)
            sync_readers(kernel)
            store.copy_out()
            if not plan.op.residual or (following is None and len(parts) % halves):
                # The next tokens, or those of the next tile, take the same memory. A residual comes to where the same thread
                # read before, but PTX orders no cp.async behind an earlier load.
                sync_readers(kernel)


def _change_residuals(kernel: Kernel, following: FragmentStore | None) -> None:
    """Wait for the residual of some tokens, and start to copy that of the next ones over those that were stored before."""
    e.ptx("cp.async.wait_group", 0)
    sync_readers(kernel)
    if following is not None:
        following.bring_residual()


def _from(totals: Any, first: int, tile: int) -> list[Any]:
    return [totals[4 * (first + tile) + register] for register in range(4)]


def _owned(kernel: Kernel, totals: Any, base: int, tile: Any) -> list[Any]:
    """The totals of a token tile that this CTA finishes: the warp's own, or the sum of what all K slices have of it."""
    plan = kernel.plan
    if not plan.sums_in_shared:
        return [totals[4 * tile + register] for register in range(4)]
    token_tiles = plan.tiling.token_tiles // plan.split
    total = e.registers("sum", 4, "float32")
    part = e.registers("part", 4, "float32")
    for k_slice in range(plan.split * plan.tiling.warps_k):
        place = (k_slice * plan.tiling.tile_rows + kernel.warp_n) * token_tiles + tile
        source = base // 4 + (place * 32 + kernel.lane) * 4
        e.load_vector(part if k_slice else total, 0, kernel.shared["float32"], source, 4)
        for register in range(4 if k_slice else 0):
            e.store(total, register, total[register] + part[register])
    return [total[register] for register in range(4)]


def sync_readers(kernel: Kernel) -> None:
    """A barrier of the warps that multiply; barrier 0 is the CTA's."""
    e.sync_named(e.u32(1), kernel.plan.tiling.threads)


def leave(kernel: Kernel) -> None:
    """What warps that only load take part in at the end: the barriers of a cluster that shares K."""
    if kernel.plan.split == 1:
        return
    e.sync_warp()  # one lane copied, and all lanes have to arrive together (.aligned)
    for _ in range(2):
        cluster_barrier(kernel)
