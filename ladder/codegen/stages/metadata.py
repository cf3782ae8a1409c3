"""Scales and zeros of the rows that a lane's accumulators hold, as float32 expressions.

Where a weight has groups along K they are read from the ring slot of the block; where it has one group they are read
from global memory once and kept in registers. A type without them yields None.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.load_ring import band_width
from ladder.codegen.widen import widen, widen_pair
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS

#: arena view that holds elements of a size
_VIEW = {1: "uint8", 2: "uint16", 4: "float32"}
#: the same for two of them
_BOTH = {1: "uint16", 2: "uint32"}


class Metadata:
    """Reads scales and zeros of one kernel.

    Attributes:
        offsets: first byte of "scales" and "zeros" in a ring slot.
    """

    def __init__(self, kernel: Kernel, offsets: dict[str, int]) -> None:
        self.kernel, self.offsets = kernel, offsets
        packing = kernel.plan.packing
        self.dtypes = {"scales": packing.scale_dtype, "zeros": packing.zero_dtype}
        self._converts = kernel.plan.device.has("cvt.e4m3x2")
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
            stored_tile = e.least(tile, packing.stored_tiles - 1)
            band = stored_tile // BAND_TILES * packing.geometry.padded_groups
            first = (band * BAND_TILES + stored_tile % BAND_TILES) * TILE_ROWS
            stored = kernel.arg[name][first + self._row(index % 2)]
            e.store(held, index, widen(dtype.name, stored))
        return held

    def _row(self, half: int) -> Any:
        """Place of row g + 8*half in a tile's metadata."""
        return (self.kernel.lane // 4) * 2 + half

    def single(self, name: str, row_tile: int, half: int) -> Any:
        """Value of the only group."""
        return self._held[name][2 * row_tile + half] if name in self._held else None

    def single_rows(self, name: str, row_tile: int) -> tuple[Any, Any] | None:
        """Values of the only group for rows g and g+8."""
        if name not in self._held:
            return None
        return self.single(name, row_tile, 0), self.single(name, row_tile, 1)

    def rows_in_slot(
        self, name: str, row_tile: int, *, slot: Any, group: Any
    ) -> tuple[Any, Any] | None:
        """Values of a group of the block in a slot for rows g and g+8, which lie side by side: by one load if it can be."""
        dtype = self.dtypes[name]
        if dtype is None:
            return None
        if dtype.itemsize in _BOTH:
            stored = self.both_in_slot(name, row_tile, slot=slot, group=group)
            pair = widen_pair(dtype.name, stored, self._converts)
            if pair is not None:
                return pair
        g, h = (self.in_slot(name, slot, group, row_tile, half) for half in range(2))
        return g, h

    def both_in_slot(self, name: str, row_tile: int, *, slot: Any, group: Any) -> Any:
        """What is stored of a group for rows g and g+8, in the low bits of a word: elements of one or two bytes."""
        dtype = self.dtypes[name]
        assert dtype is not None
        itemsize = dtype.itemsize
        place = self._place(slot, name, group, row_tile) // (2 * itemsize)
        stored = e.cast("uint32", self.kernel.shared[_BOTH[itemsize]][place])
        return e.hold(stored, f"{name}_rows", "uint32")

    def in_slot(self, name: str, slot: Any, group: Any, row_tile: int, half: int) -> Any:
        """Value of group ``group`` of the block in the slot that begins at byte ``slot``."""
        dtype = self.dtypes[name]
        if dtype is None:
            return None
        first = self._place(slot, name, group, row_tile) // dtype.itemsize
        view = self.kernel.shared[_VIEW[dtype.itemsize]]
        return widen(dtype.name, view[first + half])

    def _place(self, slot: Any, name: str, group: Any, row_tile: int) -> Any:
        """First byte of the lane's two rows of a row tile in a slot."""
        plan, dtype = self.kernel.plan, self.dtypes[name]
        assert dtype is not None
        tile = self.kernel.warp_n * plan.tiling.row_tiles + row_tile
        width = band_width(plan.tiling)
        piece = tile // width * plan.packing.geometry.groups_per_block + group
        place = (piece * width + tile % width) * TILE_ROWS + self._row(0)
        return slot + self.offsets[name] + place * dtype.itemsize
