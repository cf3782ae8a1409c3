"""Compute: mma.m16n8k16 of decoded weights (A, 16 channels x 16 k) with activations (B, 16 k x 8 tokens), k32 of
bytes, or k64 of 4-bit integers.

The accumulator fragment (PTX ISA, "Matrix Fragments for mma.m16n8k16", the same for k32 and k64) holds rows g and g+8 (output channels) and
columns 2t, 2t+1 (tokens): ``acc[tile][token tile][class][2*half + j]``.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import swizzled_chunk
from ladder.scheduler.stage import Multiply
from ladder.scheduler.tiling import TILE_TOKENS

_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
#: register sets of B fragments: one is filled while products still read another
BANKS = 3
#: products that stand between two that add to the same accumulators (an mma takes some 33 cycles, its pipe 8)
INDEPENDENT_PRODUCTS = 4
#: ones of the compute type: the A fragment whose product is the sum of the activations
_ONES = {
    "float16": 0x3C003C00,
    "bfloat16": 0x3F803F80,
    "int8": 0x01010101,
    "fp8_e4m3fn": 0x38383838,
    "fp8_e5m2": 0x3C3C3C3C,
    **dict.fromkeys(("int4", "uint4"), 0x11111111),
}


class MultiplyEmitter:
    """Emits the products of one kernel and holds its accumulators."""

    asynchronous = False

    def __init__(self, kernel: Kernel, stage: Multiply) -> None:
        self.kernel, self.stage = kernel, stage
        plan = kernel.plan
        self.mma = plan.device.instruction(stage.instruction).emits
        self.ones, self.kind = _ONES[plan.program.compute], plan.accumulator
        tiles = stage.row_tiles * stage.token_tiles
        kept = e.ACCUMULATOR[self.kind]
        self.acc = e.registers("acc", tiles * stage.classes * 4, kept)
        self.sum = e.registers("activation_sum", max(1, stage.sums * stage.token_tiles * 4), kept)
        self.group = max(map(len, self.tile_groups()))
        self.b = e.registers("b", BANKS * 4 * self.group, "uint32")
        for tile in range(stage.token_tiles):
            self.clear(tile)

    def acc_index(self, row_tile: int, token_tile: int, cls: int) -> int:
        """First of the four accumulator registers of a tile and class."""
        return ((row_tile * self.stage.token_tiles + token_tile) * self.stage.classes + cls) * 4

    def sum_index(self, sums: int, token_tile: int) -> int:
        """First of the four registers of an activation sum."""
        return (sums * self.stage.token_tiles + token_tile) * 4

    def clear(self, tile: int) -> None:
        """Set a token tile's accumulators and sums to zero; the next mma then reads the zero register."""
        stage = self.stage
        for row_tile in range(stage.row_tiles):
            for cls in range(stage.classes):
                self._zero(self.acc, self.acc_index(row_tile, tile, cls))
        for index in range(stage.sums):
            self._zero(self.sum, self.sum_index(index, tile))

    def _zero(self, registers: Any, first: int) -> None:
        for i in range(4):
            e.store(registers, first + i, e.zero(self.kind))

    def tile_groups(self) -> list[tuple[int, ...]]:
        """Token tiles that are multiplied together.

        The two steps of a pair add to the same accumulators; between them stand the products of the group's other tiles,
        so that an mma does not wait for the one before it.
        """
        size = -(-INDEPENDENT_PRODUCTS // self.stage.row_tiles)
        tiles = range(self.stage.token_tiles)
        return [tuple(tiles[i : i + size]) for i in range(0, len(tiles), size)]

    def carried(
        self, _start: Any, _step: int, tiles: tuple[int, ...], bank: int
    ) -> list[list[Any]]:
        """The registers of a bank, four per token tile."""
        first = 4 * self.group * bank
        return [[self.b[first + 4 * i + j] for j in range(4)] for i in range(len(tiles))]

    def read(self, start: Any, step: int, tiles: tuple[int, ...], bank: int) -> list[list[Any]]:
        """B fragments of steps ``step`` and ``step + 1`` of a block, per token tile: b0, b1 of either step.

        One ldmatrix.x4 reads four 8x8 matrices: 8 tokens by the first and the second 16 bytes of either step.

        Args:
            start: first byte of the block's activations in the arena.
            step: even step of the block.
            tiles: token tiles of the warp.
            bank: register set that is filled.
        """
        kernel, plan = self.kernel, self.kernel.plan
        per_row = plan.packing.geometry.block_k // plan.piece
        chunk = step * 2 + kernel.lane // 8
        first_row = kernel.warp_m * (self.stage.token_tiles * TILE_TOKENS) + kernel.lane % 8
        clamped = plan.rows_loaded < plan.tiling.tokens
        origin = None
        if not clamped:
            place = start + swizzled_chunk(first_row, chunk, per_row) * 16
            origin = e.hold(kernel.shared_address(place), "b_address", "uint32")
        loaded = self.carried(start, step, tiles, bank)
        for tile, registers in zip(tiles, loaded, strict=True):
            if origin is not None:
                # Tiles are 8 rows apart: the swizzle repeats, and the distance is a constant.
                address = origin + e.u32(tile * TILE_TOKENS * per_row * 16)
            else:
                # Tokens that cannot exist read the last row that does; their columns are never stored.
                row = e.least(first_row + tile * TILE_TOKENS, plan.rows_loaded - 1)
                address = kernel.shared_address(start + swizzled_chunk(row, chunk, per_row) * 16)
            e.ptx(_LDMATRIX, *registers, address)
        return loaded

    def multiply(
        self,
        steps: list[tuple[int, list[list[Any]], int]],
        b: list[list[Any]],
        tiles: tuple[int, ...],
    ) -> None:
        """Multiply a pair with some token tiles: (half, A fragments per row tile, class) of each step."""
        for half, fragments, cls in steps:
            for tile, registers in zip(tiles, b, strict=True):
                self._products(fragments, registers[2 * half : 2 * half + 2], tile, cls)

    def _products(self, fragments: list[list[Any]], b: list[Any], tile: int, cls: int) -> None:
        for row_tile, a in enumerate(fragments):
            self._mma(self.acc, self.acc_index(row_tile, tile, cls), a, b)
        self._sum(b, tile, cls)

    def _sum(self, b: list[Any], tile: int, cls: int) -> None:
        """Add the activations of a step to the sum that its class needs, if any."""
        sums = self.kernel.plan.sum_set_of(cls)
        if sums is not None:
            self._mma_of_ones(sums, tile, b)

    def _mma_of_ones(self, sums: int, tile: int, b: list[Any]) -> None:
        self._mma(self.sum, self.sum_index(sums, tile), [e.u32(self.ones)] * 4, b)

    def _mma(self, accumulators: Any, first: int, a: list[Any], b: list[Any]) -> None:
        c = [accumulators[first + i] for i in range(4)]
        e.ptx(self.mma, *c, *a, *b, *c)

    def settle(self, pending: int) -> None:
        """Products of mma are complete when their results are read."""

    def before_barrier(self) -> None:
        """Activations are read in the proxy that they were written in."""
