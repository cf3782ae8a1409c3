"""Compute: mma.m16n8k16 of decoded weights (A, 16 channels x 16 k) with activations (B, 16 k x 8 tokens).

The accumulator fragment (PTX ISA, "Matrix Fragments for mma.m16n8k16") holds rows g and g+8 (output channels) and
columns 2t, 2t+1 (tokens): ``acc[tile][token tile][class][2*half + j]``.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.load_ring import swizzled_chunk
from ladder.scheduler.plan import TILE_TOKENS
from ladder.scheduler.stage import Multiply

_MMA = {
    "float16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
}
_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
#: two ones of the compute type: the A fragment whose product is the sum of the activations
_ONES = {"float16": 0x3C003C00, "bfloat16": 0x3F803F80}


class MultiplyEmitter:
    """Emits the products of one kernel and holds its accumulators."""

    def __init__(self, kernel: Kernel, stage: Multiply) -> None:
        self.kernel, self.stage = kernel, stage
        compute = kernel.plan.op.activation.name
        self.mma, self.ones = _MMA[compute], _ONES[compute]
        tiles = stage.row_tiles * stage.token_tiles
        self.acc = e.registers("acc", tiles * stage.classes * 4, "float32")
        self.sum = e.registers("activation_sum", max(1, stage.sums * stage.token_tiles * 4), "float32")
        self.b = e.registers("b", 4, "uint32")
        self.clear()

    def acc_index(self, row_tile: int, token_tile: int, cls: int) -> int:
        """First of the four accumulator registers of a tile and class."""
        return ((row_tile * self.stage.token_tiles + token_tile) * self.stage.classes + cls) * 4

    def sum_index(self, sums: int, token_tile: int) -> int:
        """First of the four registers of an activation sum."""
        return (sums * self.stage.token_tiles + token_tile) * 4

    def clear(self) -> None:
        """Set accumulators and sums to zero; the next mma then reads the zero register."""
        stage = self.stage
        for i in range(stage.row_tiles * stage.token_tiles * stage.classes * 4):
            e.store(self.acc, i, e.f32(0.0))
        for i in range(stage.sums * stage.token_tiles * 4):
            e.store(self.sum, i, e.f32(0.0))

    def products(
        self, start: Any, step: int, fragments: dict[int, list[list[Any]]], classes: dict[int, int]
    ) -> None:
        """Multiply one or both steps of a pair with the activations whose block begins at byte ``start``.

        Args:
            start: first byte of the block's activations in the arena.
            step: even step of the pair in the block.
            fragments: half (0 or 1) of the pair -> A fragments per row tile.
            classes: half -> accumulator class of that step.
        """
        for tile in range(self.stage.token_tiles):
            self._load_activations(start, step, tile)
            for half, rows in fragments.items():
                b = [self.b[2 * half + i] for i in range(2)]
                cls = classes[half]
                for row_tile, a in enumerate(rows):
                    self._mma(self.acc, self.acc_index(row_tile, tile, cls), a, b)
                sums = self.kernel.plan.sum_set_of(cls)
                if sums is not None:
                    self._mma(self.sum, self.sum_index(sums, tile), [e.u32(self.ones)] * 4, b)

    def _load_activations(self, start: Any, step: int, tile: int) -> None:
        """B fragments of steps ``step`` and ``step + 1`` for one token tile.

        One ldmatrix.x4 reads four 8x8 matrices: 8 tokens by k = 0..7, 8..15 of either step.
        """
        kernel, plan = self.kernel, self.kernel.plan
        per_row = plan.packing.geometry.block_k // 8
        chunk = step * 2 + kernel.lane // 8
        row = (
            kernel.warp_m * (self.stage.token_tiles * TILE_TOKENS)
            + tile * TILE_TOKENS
            + kernel.lane % 8
        )
        if plan.rows_loaded < plan.tiling.tokens:
            # Tokens that cannot exist read the last row that does; their columns are never stored.
            row = e.least(row, plan.rows_loaded - 1)
        address = start + swizzled_chunk(row, chunk, per_row) * 16
        e.ptx(_LDMATRIX, *[self.b[i] for i in range(4)], kernel.shared_address(address))

    def _mma(self, accumulators: Any, first: int, a: list[Any], b: list[Any]) -> None:
        c = [accumulators[first + i] for i in range(4)]
        e.ptx(self.mma, *c, *a, *b, *c)
