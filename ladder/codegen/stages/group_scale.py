"""Apply what decoding deferred, zero points and group scales, in float32 on the accumulators.

    total += s * alpha * acc + s * (beta - z) * sum            zero conventions "integer" and "float"
    total += s * alpha * acc + (s * beta - z) * sum            "rescaled"

per class, with s and z of the row (a lane holds rows g and g+8), alpha and beta of the row half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.widen import widen
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import GroupScale

#: float32 value of one row half: (row tile, half) -> expression
Reader = Callable[[int, int], Any]


class GroupScaleEmitter:
    """Emits the flushes of one kernel and holds its totals."""

    def __init__(self, kernel: Kernel, stage: GroupScale, multiply: MultiplyEmitter) -> None:
        self.kernel, self.stage, self.multiply = kernel, stage, multiply
        self.total = e.registers("total", stage.accumulators, "float32")
        for i in range(stage.accumulators):
            e.store(self.total, i, e.f32(0.0))
        self.flushes = 0
        self.single = {} if kernel.plan.has_groups else self._read_single_group()

    def _read_single_group(self) -> dict[str, Any]:
        """Scales and zeros of the only group there is, read from global memory once."""
        kernel, rows = self.kernel, 2 * self.multiply.stage.row_tiles
        tiles = kernel.plan.packing.row_tiles
        stride = kernel.plan.packing.geometry.padded_groups * TILE_ROWS
        held: dict[str, Any] = {}
        for name in ("scales", "zeros"):
            dtype = self._dtype(name)
            if dtype is None:
                continue
            held[name] = e.registers(f"row_{name}", rows, "float32")
            for index in range(rows):
                tile = kernel.first_tile + kernel.warp_n * (rows // 2) + index // 2
                row = (kernel.lane // 4) * 2 + index % 2
                stored = kernel.arg[name][e.least(tile, tiles - 1) * stride + row]
                e.store(held[name], index, widen(dtype.name, stored))
        return held

    def flush(self, slot: Any, offsets: dict[str, int], group: int) -> None:
        """Flush with the metadata of group ``group`` of the block that lies in a ring slot, or of the single group."""
        self._flush(
            lambda name: self._from_slot(name, slot + offsets[name], group)
            if self.kernel.plan.has_groups
            else self._from_registers(name)
        )

    def flush_last(self) -> None:
        """Flush after the last block, for plans that never flush before."""
        self._flush(self._from_registers)

    def _from_registers(self, name: str) -> Reader:
        return lambda row_tile, half: self.single[name][2 * row_tile + half]

    def _from_slot(self, name: str, start: Any, group: int) -> Reader:
        dtype, groups = self._dtype(name), self.kernel.plan.packing.geometry.groups_per_block
        view = self.kernel.shared[STORAGE_VIEW[dtype.itemsize]]

        def read(row_tile: int, half: int) -> Any:
            tile = self.kernel.warp_n * self.multiply.stage.row_tiles + row_tile
            row = (self.kernel.lane // 4) * 2 + half
            return widen(
                dtype.name,
                view[start // dtype.itemsize + (tile * groups + group) * TILE_ROWS + row],
            )

        return read

    def _dtype(self, name: str) -> Any:
        packing = self.kernel.plan.packing
        return packing.scale_dtype if name == "scales" else packing.zero_dtype

    def _flush(self, reader: Callable[[str], Reader]) -> None:
        with e.stage(self.stage.name):
            for row_tile in range(self.multiply.stage.row_tiles):
                for half in range(2):
                    self._flush_row(row_tile, half, reader)
            self.multiply.clear()
        self.flushes += 1

    def _flush_row(self, row_tile: int, half: int, reader: Callable[[str], Reader]) -> None:
        tag = f"{self.flushes}_{row_tile}_{half}"
        scale = self._read(reader, "scales", row_tile, half, f"s{tag}")
        zero = self._read(reader, "zeros", row_tile, half, f"z{tag}")
        multiply = self.multiply
        program = self.kernel.plan.packing.program
        for cls in range(program.classes):
            alpha = float(program.affine[cls][half].alpha)
            factor = e.f32(alpha) if scale is None else scale * e.f32(alpha)
            if alpha != 1.0 and scale is not None:
                factor = e.bind(factor, f"f{tag}_{cls}")
            for tile in range(multiply.stage.token_tiles):
                acc = multiply.acc_index(row_tile, tile, cls) + 2 * half
                self._accumulate(row_tile, tile, half, multiply.acc, acc, factor)
        for index, betas in enumerate(self.kernel.plan.sum_sets):
            factor = self._zero_factor(scale, zero, float(betas[half]))
            if factor is None:
                continue
            factor = e.bind(factor, f"o{tag}_{index}")
            for tile in range(multiply.stage.token_tiles):
                at = multiply.sum_index(index, tile) + 2 * half
                self._accumulate(row_tile, tile, half, multiply.sum, at, factor)

    def _zero_factor(self, scale: Any, zero: Any, beta: float) -> Any:
        """Factor of a set of activation sums, or None when it is zero."""
        rescaled = self.kernel.plan.packing.weight.zero == "rescaled"
        offset = e.f32(beta) if beta else None
        if zero is not None and not rescaled:
            offset = _minus(offset, zero)
        if offset is not None and scale is not None:
            offset = scale * offset
        if zero is not None and rescaled:
            offset = _minus(offset, zero)
        return offset

    def _read(
        self, reader: Callable[[str], Reader], name: str, row_tile: int, half: int, label: str
    ) -> Any:
        if self._dtype(name) is None:
            return None
        return e.bind(reader(name)(row_tile, half), label)

    def _accumulate(
        self, row_tile: int, tile: int, half: int, source: Any, at: int, factor: Any
    ) -> None:
        """``total += factor * source`` for the two tokens of a row half (one FFMA each)."""
        first = (row_tile * self.multiply.stage.token_tiles + tile) * 4 + 2 * half
        for j in range(2):
            e.store(self.total, first + j, source[at + j] * factor + self.total[first + j])


def _minus(offset: Any, zero: Any) -> Any:
    return (e.f32(0.0) if offset is None else offset) - zero


#: arena view that holds elements of a size
STORAGE_VIEW = {1: "uint8", 2: "uint16", 4: "float32"}
