"""Transform-Store: sum the K slices through shared memory, run the epilogue, cast and store.

Totals go to shared memory in fragment order (16-byte stores without conflicts); then every thread finishes outputs of
consecutive channels, so that stores to ``y[m, n]`` coalesce. Slices are added in order: the result does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.widen import narrow, widen
from ladder.errors import LoweringError
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.plan import TILE_TOKENS
from ladder.scheduler.stage import AddBias, EpilogueStage, GlobalScale

#: emits one epilogue stage: (kernel, stage, value, channel index) -> value
EpilogueEmitter = Callable[[Kernel, EpilogueStage, Any, Any], Any]


def _global_scale(kernel: Kernel, _stage: EpilogueStage, value: Any, _channel: Any) -> Any:
    return value * kernel.arg["global_scale"][0]


def _bias(kernel: Kernel, _stage: EpilogueStage, value: Any, channel: Any) -> Any:
    return value + widen(kernel.plan.op.out.name, kernel.arg["bias"][channel])


EPILOGUE_EMITTERS: dict[type[EpilogueStage], EpilogueEmitter] = {
    GlobalScale: _global_scale,
    AddBias: _bias,
}


def _emitter(stage: EpilogueStage) -> EpilogueEmitter:
    try:
        return EPILOGUE_EMITTERS[type(stage)]
    except KeyError:
        raise LoweringError(
            f"no emitter for the epilogue stage {stage.name!r}",
            at=type(stage).__qualname__,
            hint="ladder.codegen.stages.finish.EPILOGUE_EMITTERS[Stage] = emitter",
        ) from None


def reduce_and_store(kernel: Kernel, scale: GroupScaleEmitter, base: int) -> None:
    """Emit the end of the kernel; ``base`` is the first byte of the arena that the ring leaves free."""
    with e.stage("reduce"):
        e.sync_cta()
        _write_totals(kernel, scale, base)
        e.sync_cta()
    with e.stage("store"):
        _finish_outputs(kernel, base)


def _write_totals(kernel: Kernel, scale: GroupScaleEmitter, base: int) -> None:
    tiling = kernel.plan.tiling
    token_tiles = tiling.warps_m * tiling.token_tiles
    for row_tile in range(tiling.row_tiles):
        for tile in range(tiling.token_tiles):
            place = (
                kernel.slice * tiling.tile_rows + kernel.warp_n * tiling.row_tiles + row_tile
            ) * token_tiles + (kernel.warp_m * tiling.token_tiles + tile)
            first = (row_tile * tiling.token_tiles + tile) * 4
            target = base // 4 + (place * 32 + kernel.lane) * 4
            e.store_vector(kernel.shared["float32"], target, scale.total, first, 4)


def _finish_outputs(kernel: Kernel, base: int) -> None:
    plan, tiling = kernel.plan, kernel.plan.tiling
    count, threads = tiling.channels * plan.rows_loaded, tiling.threads
    with e.loop(-(-count // threads), "output") as i:
        index = i * threads + kernel.thread
        with e.when(True if count % threads == 0 else index < count):
            row, token = index % tiling.channels, index // tiling.channels
            channel = kernel.first_tile * TILE_ROWS + row
            place = e.bind(_fragment_place(kernel, row, token), "place")
            stride = tiling.tile_rows * tiling.warps_m * tiling.token_tiles * 128
            value = kernel.shared["float32"][base // 4 + place]
            for k_slice in range(1, tiling.warps_k):
                value = value + kernel.shared["float32"][base // 4 + k_slice * stride + place]
            value = e.bind(value, "value")
            m = kernel.first_token + token
            with e.when(e.both(channel < plan.op.n, m < kernel.arg["m"])):
                for step in plan.epilogue:
                    value = _emitter(step)(kernel, step, value, channel)
                offset = e.i64(m) * kernel.arg["y_stride_m"] + e.i64(channel)
                e.store(kernel.arg["y"], offset, narrow(plan.op.out.name, value))


def _fragment_place(kernel: Kernel, row: Any, token: Any) -> Any:
    """Where the fragment order puts output (row, token) of the CTA's tile, in float32 elements.

    Row r of a 16-row tile is (g = r % 8, half = r // 8), token c of an 8-token tile is (t = c // 2, j = c % 2); lane 4g + t
    holds it in register 2*half + j.
    """
    tiling = kernel.plan.tiling
    tile = (row // TILE_ROWS) * (tiling.warps_m * tiling.token_tiles) + token // TILE_TOKENS
    lane = (row % 8) * 4 + token % TILE_TOKENS // 2
    register = row % TILE_ROWS // 8 * 2 + token % 2
    return (tile * 32 + lane) * 4 + register
