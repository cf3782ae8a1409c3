"""Scales and zeros of the rows that a lane's accumulators hold, as float32 expressions.

Where a weight has groups along K they are read from the ring slot of the block; where it has one group they are read
from global memory once and kept in registers. A type without them yields None.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.widen import widen
from ladder.scheduler.packing import TILE_ROWS

#: arena view that holds elements of a size
_VIEW = {1: "uint8", 2: "uint16", 4: "float32"}


class Metadata:
    """Reads scales and zeros of one kernel.

    Attributes:
        offsets: first byte of "scales" and "zeros" in a ring slot.
    """

    def __init__(self, kernel: Kernel, offsets: dict[str, int]) -> None:
        self.kernel, self.offsets = kernel, offsets
        packing = kernel.plan.packing
        self.dtypes = {"scales": packing.scale_dtype, "zeros": packing.zero_dtype}
        self._held: dict[str, Any] = {}
        if not kernel.plan.has_groups:
            for name, dtype in self.dtypes.items():
                if dtype is not None:
                    self._held[name] = self._hold(name, dtype)

    def _hold(self, name: str, dtype: Any) -> Any:
        kernel, rows = self.kernel, 2 * self.kernel.plan.tiling.row_tiles
        packing = kernel.plan.packing
        held = e.registers(f"row_{name}", rows, "float32")
        for index in range(rows):
            tile = kernel.first_tile + kernel.warp_n * (rows // 2) + index // 2
            first = e.least(tile, packing.row_tiles - 1) * packing.geometry.padded_groups
            stored = kernel.arg[name][first * TILE_ROWS + self._row(index % 2)]
            e.store(held, index, widen(dtype.name, stored))
        return held

    def _row(self, half: int) -> Any:
        """Place of row g + 8*half in a tile's metadata."""
        return (self.kernel.lane // 4) * 2 + half

    def single(self, name: str, row_tile: int, half: int) -> Any:
        """Value of the only group."""
        return self._held[name][2 * row_tile + half] if name in self._held else None

    def in_slot(self, name: str, slot: Any, group: int, row_tile: int, half: int) -> Any:
        """Value of group ``group`` of the block in the slot that begins at byte ``slot``."""
        dtype = self.dtypes[name]
        if dtype is None:
            return None
        plan = self.kernel.plan
        tile = self.kernel.warp_n * plan.tiling.row_tiles + row_tile
        place = (tile * plan.packing.geometry.groups_per_block + group) * TILE_ROWS
        start = (slot + self.offsets[name]) // dtype.itemsize
        view = self.kernel.shared[_VIEW[dtype.itemsize]]
        return widen(dtype.name, view[start + place + self._row(half)])
