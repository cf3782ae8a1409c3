"""Zero points taken off in registers: ``lane' = lane * 2^shift + (beta - z) * 2^shift / alpha``.

One packed fma per fragment register. The offsets of a group are made once per row tile, row half and class, from the
zeros that lie in the ring slot (or from those of the single group), and hold the same number in both lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.widen import narrow_pair
from ladder.scheduler.zero import power, register_shifts

_FMA = {"float16": "fma_f16x2", "bfloat16": "fma_bf16x2"}
_EXPONENT = {"float16": (10, 15), "bfloat16": (7, 127)}


class ZeroPoint:
    """Emits the subtraction of one kernel; see the module's docstring.

    Args:
        live: steps whose fragments live at once: one pair is multiplied while the next is made, or one chunk.
        together: whether zero points of both rows come by one load: a register less on the way, where there is none to spare.
    """

    def __init__(
        self, kernel: Kernel, metadata: Metadata, live: int = 4, *, together: bool = False
    ) -> None:
        self.kernel, self.metadata, self.together = kernel, metadata, together
        packing = kernel.plan.reading
        self.compute, self.affine = packing.program.compute, packing.program.affine
        shifts = register_shifts(packing)
        assert shifts is not None, "the plan checker admits exact subtraction only"
        self.shifts = shifts
        rows = kernel.plan.tiling.row_tiles
        self.offsets = e.registers("zero_offset", rows * 2 * len(self.affine), "uint32")
        self.sets, self.turn = live * rows, 0
        self.lanes = e.registers("lanes", 4 * self.sets, "uint32")
        if packing.zero_dtype is None or not kernel.plan.has_groups:
            self._set(lambda row_tile, half: self.metadata.single("zeros", row_tile, half))

    def enter_group(self, slot: Any, group: int) -> None:
        """Make the offsets of a group of the block that lies in a ring slot."""
        if self.kernel.plan.packing.zero_dtype is None or not self.kernel.plan.has_groups:
            return
        with e.stage("zero point"):
            self._set(self._rows_of(slot, group) if self.together else self._one_of(slot, group))

    def _one_of(self, slot: Any, group: Any) -> Callable[[int, int], Any]:
        return lambda tile, half: self.metadata.in_slot("zeros", slot, group, tile, half)

    def _rows_of(self, slot: Any, group: Any) -> Callable[[int, int], Any]:
        tiles = range(self.kernel.plan.tiling.row_tiles)
        rows = [self.metadata.rows_in_slot("zeros", t, slot=slot, group=group) for t in tiles]
        return lambda tile, half: (rows[tile] or (None, None))[half]

    def _set(self, zero_of: Any) -> None:
        for row_tile in range(self.kernel.plan.tiling.row_tiles):
            for half in range(2):
                zero = zero_of(row_tile, half)
                for cls in range(len(self.affine)):
                    e.store(
                        self.offsets,
                        self._place(row_tile, half, cls),
                        self._offset(cls, half, zero),
                    )

    def _offset(self, cls: int, half: int, zero: Any) -> Any:
        affine, shift = self.affine[cls][half], self.shifts[cls][half]
        unit = power(shift) / affine.alpha
        value = e.f32(float(affine.beta * unit))
        if zero is not None:
            value = e.fma(zero, e.f32(-float(unit)), value)
        held = e.hold(value, "offset", "float32")
        return narrow_pair(self.compute, held, held)

    def _place(self, row_tile: int, half: int, cls: int) -> int:
        return (row_tile * 2 + half) * len(self.affine) + cls

    def subtract(self, fragment: list[Any], row_tile: int, cls: int) -> list[Any]:
        """A fragment with its zero point taken off."""
        mantissa, bias = _EXPONENT[self.compute]
        self.turn = (self.turn + 1) % self.sets
        result = []
        for index, value in enumerate(fragment):
            half = index & 1
            factor = ((self.shifts[cls][half] + bias) << mantissa) * 0x00010001
            offset = self.offsets[self._place(row_tile, half, cls)]
            place = 4 * self.turn + index
            e.store(self.lanes, place, e.call(_FMA[self.compute], value, e.u32(factor), offset))
            result.append(self.lanes[place])
        return result
