"""Activations of one token in registers, and products whose eight columns are the steps of a block.

One token fills one of the eight columns of a product. Here step s of a block goes to column s % 8 and finds zeros in the
others, so that each column holds the sums of its own steps: groups of one step are told apart without a flush between
them. The columns are added up at the end, when they are float32 totals.

    B fragment of step s (PTX ISA, mma.m16n8k16): lane (g, t) holds k = 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
    lane (g, t) loads them of step g, for all steps at once, and hands out zeros where g is not the step's column
    totals: lane (g, t) holds columns 2t and 2t + 1 of rows g and g + 8

Sums of activations, where zero points need them, are one product for eight steps: what a lane has loaded is, without a mask,
the fragment of all of them. Columns that no step has hold zeros.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import Multiply
from ladder.scheduler.tiling import TILE_TOKENS
from ladder.scheduler.walk import sums_columns

#: bytes of a word
WORD = 4
#: lanes that hold a row of totals, or the words of half a step's activations
ROW_LANES = 4


class TokenColumns:
    """Emits the loads of one kernel: two words a lane for every eight steps, one block ahead."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.plan = kernel, kernel.plan
        self.steps = self.plan.block_steps
        self.rounds = -(-self.steps // TILE_TOKENS)
        self.words = e.registers("token", 2 * self.rounds, "uint32")
        self.ahead = e.registers("token_ahead", 2 * self.rounds, "uint32")
        self.column = kernel.lane // 4
        count = min(self.steps, TILE_TOKENS)
        self.masks = e.registers("column", count, "uint32")
        for place in range(count):
            mask = e.select(self.column == place, e.u32(0xFFFFFFFF), e.u32(0))
            # Opaque to the compiler, which would make each mask anew in every block: two operations in place of none.
            e.store(self.masks, place, e.call("hold_u32", mask))
        #: whether a lane may be beyond the activations: in what pads K, or in a column that no step has
        self.edged = self.plan.packing.geometry.padded_k != self.plan.op.k or bool(
            self.steps % TILE_TOKENS
        )

    def fetch(self, block: Any) -> None:
        """Start to load what the steps of a block multiply."""
        with e.stage("load token"):
            for place in range(2 * self.rounds):
                element = self._element(block, place)
                if self.edged:
                    element = e.select(self._exists(element, place), element, 0)
                item = element // self.plan.op.activation.per_item
                source = self.kernel.arg["x"].ptr_to([item])
                e.ptx("ld.global.b32", self.ahead[place], source)

    def take(self, block: Any) -> None:
        """Make the block that was fetched last the one to multiply."""
        with e.stage("load token"):
            for place in range(2 * self.rounds):
                word = self.ahead[place]
                if self.edged:
                    exists = self._exists(self._element(block, place), place)
                    word = e.select(exists, word, e.u32(0))
                e.store(self.words, place, word)

    def fragment(self, step: int) -> list[Any]:
        """The B fragment of a step: its activations in its own column, zeros in the others."""
        turn, column = divmod(step, TILE_TOKENS)
        return [self.words[2 * turn + half] & self.masks[column] for half in range(2)]

    def unmasked(self, turn: int) -> list[Any]:
        """The B fragment of eight steps together, each in its own column."""
        return [self.words[2 * turn + half] for half in range(2)]

    def _element(self, block: Any, place: int) -> Any:
        """Index of the first activation of one of the lane's words."""
        half, step = place % 2, self._step(place)
        within = step * (2 * self.plan.piece) + half * self.plan.piece
        within += self.kernel.lane % ROW_LANES * self.plan.program.lanes
        return block * self.plan.packing.geometry.block_k + within

    def _step(self, place: int) -> Any:
        """Step that the lane's column has in the round of one of its words."""
        return place // 2 * TILE_TOKENS + self.column

    def _exists(self, element: Any, place: int) -> Any:
        """Whether a word holds activations of the block: a column that no step has would hold those of the next block."""
        inside = element < self.plan.op.k
        whole = (place // 2 + 1) * TILE_TOKENS <= self.steps
        return inside if whole else e.both(inside, self._step(place) < self.steps)


class ColumnMultiplyEmitter(MultiplyEmitter):
    """Products of one token: see the module's docstring."""

    def __init__(self, kernel: Kernel, stage: Multiply, token: TokenColumns) -> None:
        super().__init__(kernel, stage)
        self.token = token
        self.sums_columns = sums_columns(kernel.plan)

    def read(self, _start: Any, step: int, tiles: tuple[int, ...], bank: int) -> list[list[Any]]:
        """B fragments of steps ``step`` and ``step + 1`` of a block, for the one token tile."""
        if self.sums_columns and step % TILE_TOKENS == 0:
            # Each pair of a block is read once, and sums are flushed where it ends: they may be ahead of the products.
            self._mma_of_ones(0, 0, self.token.unmasked(step // TILE_TOKENS))
        for half in range(min(2, self.token.steps - step)):
            for index, word in enumerate(self.token.fragment(step + half)):
                e.store(self.b, 4 * bank + 2 * half + index, word)
        return self.carried(_start, step, tiles, bank)

    def _sum(self, b: list[Any], tile: int, cls: int) -> None:
        if not self.sums_columns:
            super()._sum(b, tile, cls)


def write_columns(kernel: Kernel, totals: Any, base: int) -> None:
    """Write the warp's totals, columns added in pairs: ``[slice][row tile][16 rows][4 lanes]`` float32 from byte ``base`` on."""
    tiling = kernel.plan.tiling
    for row_tile in range(tiling.row_tiles):
        tile = kernel.slice * tiling.tile_rows + kernel.warp_n * tiling.row_tiles + row_tile
        for half in range(2):
            first = 4 * row_tile + 2 * half
            target = base // WORD + tile * (TILE_ROWS * ROW_LANES) + half * 32 + kernel.lane
            e.store(kernel.shared["float32"], target, totals[first] + totals[first + 1])


def sum_of_columns(kernel: Kernel, row: Any, base: int) -> Any:
    """The total of a row of the CTA: its columns, then the K slices, in order."""
    tiling = kernel.plan.tiling
    parts = e.registers("columns", ROW_LANES, "float32")
    value = None
    for k_slice in range(tiling.warps_k):
        place = base // WORD + (k_slice * tiling.channels + row) * ROW_LANES
        e.load_vector(parts, 0, kernel.shared["float32"], place, ROW_LANES)
        part = (parts[0] + parts[1]) + (parts[2] + parts[3])
        value = e.hold(part if value is None else value + part, "row_total", "float32")
    return value
