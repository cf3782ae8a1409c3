"""Convert placed in shared memory: decoded weights are written there and read back as A fragments by ldmatrix.

Every warp of a ring decodes its share of the block's row tiles; after a ring barrier each warp reads the tiles that it
multiplies. The scratch tile is ``[channels][block_k]`` of lane values, swizzled like the activations.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import TILE_CHUNKS, swizzled_chunk
from ladder.codegen.stages.decode import DecodeEmitter
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import CHUNK_BYTES

_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"


class SharedWeights:
    """Emits decoding into, and reading from, the scratch tile of the thread's ring."""

    def __init__(self, kernel: Kernel, decode: DecodeEmitter, base: int) -> None:
        self.kernel, self.decode = kernel, decode
        tiling = kernel.plan.tiling
        plan = kernel.plan
        self.row_chunks = plan.packing.geometry.block_k // plan.piece
        self.base = base + kernel.slice * (tiling.channels * self.row_chunks * CHUNK_BYTES)
        self.a = e.registers("a", 16 * tiling.row_tiles, "uint32")

    def write(self, row_tile: int, atom: int, start: Any) -> None:
        """Decode one atom (packed words at byte ``start``) into the scratch tile, if this warp is to do it."""
        kernel, tiling = self.kernel, self.kernel.plan.tiling
        mine = True if tiling.warps_m == 1 else kernel.warp_m == row_tile % tiling.warps_m
        with e.when(mine):
            decoder = self.decode.atom(start)
            row = (kernel.warp_n * tiling.row_tiles + row_tile) * TILE_ROWS + kernel.lane // 4
            for step in range(decoder.program.steps):
                for index, value in enumerate(decoder.fragment(step)):
                    chunk = (atom * decoder.program.steps + step) * 2 + (index >> 1)
                    place = self._place(row, chunk) + index % 2 * (8 * self.row_chunks)
                    at = self.base // 4 + place * 4 + kernel.lane % 4
                    e.store(kernel.shared["uint32"], at, value)

    def _place(self, row: Any, chunk: int, behind: Any = 0) -> Any:
        """Index in the scratch tile of the 16-byte chunk ``chunk + behind`` of a row; ``chunk`` is even if ``behind`` is not 0.

        Rows are permuted within 8 chunks, so that whole eights are constant distances: the compiler, which does not see it,
        would keep the address of every chunk in a register throughout the main loop.
        """
        within = chunk % TILE_CHUNKS
        place = swizzled_chunk(row, within + behind, self.row_chunks)
        return place + (chunk - within)

    def fragment(self, row_tile: int, step: int) -> list[Any]:
        """A fragment of a step of the block for one row tile."""
        kernel, tiling = self.kernel, self.kernel.plan.tiling
        row = (kernel.warp_n * tiling.row_tiles + row_tile) * TILE_ROWS + kernel.lane % TILE_ROWS
        place = self._place(row, step * 2, kernel.lane // TILE_ROWS)
        address = self.base + place * 16
        # Four steps' worth of registers take turns: two steps are multiplied while two are read.
        first = 4 * (step % 4 * tiling.row_tiles + row_tile)
        registers = [self.a[first + i] for i in range(4)]
        e.ptx(_LDMATRIX, *registers, kernel.shared_address(address))
        return registers
