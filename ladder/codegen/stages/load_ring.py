"""Transform-Load, global -> shared: fill a slot of a ring with one block of K.

    weight  [tile_rows][block bytes]              contiguous runs of the packed weight
    x       [rows][block_k] 16-bit, swizzled      slice, pad with zeros (edges of m and k), map
    scales  [tile_rows][groups_per_block][16]     contiguous runs
    zeros   [tile_rows][groups_per_block][16]

Copies are 16-byte ``cp.async`` (PTX ISA, "Data Movement and Conversion Instructions: cp.async"); with ``src_size`` 0 the
destination is filled with zeros. The swizzle makes the 8 rows that one ``ldmatrix`` phase reads lie in different banks.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import CHUNK_BYTES, LoadRing

_COPY = "cp.async.cg.shared.global.L2::128B"
_HALVES = CHUNK_BYTES // 2


def swizzled_chunk(row: Any, chunk: Any, chunks_per_row: int) -> Any:
    """Index of a 16-byte chunk of a row-major tile after the XOR swizzle.

    Eight consecutive rows of one logical chunk column fall into eight different 16-byte bank groups: with 8 or more
    chunks a row the row's low bits are XORed in; narrower rows share a 128-byte line, so only the line's index is.
    """
    if chunks_per_row >= 8:
        return row * chunks_per_row + (chunk ^ (row & 7))
    rows_per_line = 8 // chunks_per_row
    return row * chunks_per_row + (chunk ^ ((row // rows_per_line) & (chunks_per_row - 1)))


class RingEmitter:
    """Emits the load stage of one kernel.

    Attributes:
        kernel: the kernel under construction.
        ring: the stage.
        base: first byte of all rings in the arena.
    """

    def __init__(self, kernel: Kernel, ring: LoadRing, base: int) -> None:
        self.kernel, self.ring, self.base = kernel, ring, base
        self.offsets = self._region_offsets()

    def _region_offsets(self) -> dict[str, int]:
        offsets, at = {}, 0
        parts = (
            ("weight", self.ring.weight_bytes),
            ("x", self.ring.activation_bytes),
            ("scales", self.ring.scale_bytes),
            ("zeros", self.ring.zero_bytes),
        )
        for name, nbytes in parts:
            offsets[name] = at
            at += -(-nbytes // 128) * 128
        return offsets

    def slot(self, index: Any) -> Any:
        """First byte of a slot of this thread's ring."""
        return self.base + (self.kernel.slice * self.ring.slots + index) * self.ring.slot_bytes

    def issue(self, block: Any, slot: Any) -> None:
        """Start the copies of block ``block`` of K into the slot that begins at byte ``slot``."""
        with e.stage(self.ring.name):
            self._copy_weight(block, slot)
            if self.ring.access == "vector":
                self._copy_activations(block, slot + self.offsets["x"])
            else:
                self._load_activations(block, slot + self.offsets["x"])
            for name, nbytes in (
                ("scales", self.ring.scale_bytes),
                ("zeros", self.ring.zero_bytes),
            ):
                if nbytes:
                    self._copy_metadata(name, nbytes, block, slot + self.offsets[name])

    def _copy_weight(self, block: Any, slot: Any) -> None:
        kernel, packing = self.kernel, self.kernel.plan.packing
        tile_rows = kernel.plan.tiling.tile_rows
        words = kernel.plan.atoms_per_block * packing.atom_words
        chunks = words * 4 // CHUNK_BYTES
        row_words = packing.atoms * packing.atom_words
        for chunk, guard in self._shares(tile_rows * chunks):
            row, part = chunk // chunks, chunk % chunks
            tile = self._clamped_tile(row)
            with e.when(guard):
                source = kernel.arg["weight"].ptr_to(
                    [e.i64(tile) * row_words + e.i64(block * words + part * 4)]
                )
                e.ptx(_COPY, kernel.shared_address(slot + chunk * CHUNK_BYTES), source, CHUNK_BYTES)

    def _copy_metadata(self, name: str, nbytes: int, block: Any, start: Any) -> None:
        kernel, packing = self.kernel, self.kernel.plan.packing
        cut = packing.geometry
        tile_rows = kernel.plan.tiling.tile_rows
        run = nbytes // tile_rows
        itemsize = run // (cut.groups_per_block * TILE_ROWS)
        chunks = run // CHUNK_BYTES
        group = block * cut.groups_per_block // max(1, cut.padded_group // cut.block_k)
        for chunk, guard in self._shares(tile_rows * chunks):
            row, part = chunk // chunks, chunk % chunks
            tile = self._clamped_tile(row)
            with e.when(guard):
                first = (tile * cut.padded_groups + group) * TILE_ROWS
                source = kernel.arg[name].ptr_to([first + part * (CHUNK_BYTES // itemsize)])
                e.ptx(
                    _COPY, kernel.shared_address(start + chunk * CHUNK_BYTES), source, CHUNK_BYTES
                )

    def _clamped_tile(self, row: Any) -> Any:
        """Tile of the packed weight for a row tile of the CTA; beyond the last one, the last one again."""
        kernel = self.kernel
        tile = kernel.first_tile + row
        tiles = kernel.plan.packing.row_tiles
        return tile if tiles % kernel.plan.tiling.tile_rows == 0 else e.least(tile, tiles - 1)

    def _copy_activations(self, block: Any, start: Any) -> None:
        kernel, plan = self.kernel, self.kernel.plan
        block_k = plan.packing.geometry.block_k
        per_row = block_k // _HALVES
        whole_k = plan.op.k % block_k == 0
        for chunk, guard in self._shares(plan.rows_loaded * per_row):
            row, part = chunk // per_row, chunk % per_row
            k = block * block_k + part * _HALVES
            token = kernel.first_token + row
            inside = token < kernel.arg["m"]
            if not whole_k:
                inside = e.both(inside, k < plan.op.k)
            with e.when(guard):
                offset = e.select(
                    inside, e.i64(token) * kernel.arg["x_stride_m"] + e.i64(k), e.i64(0)
                )
                size = e.select(inside, e.u32(CHUNK_BYTES), e.u32(0))
                target = start + swizzled_chunk(row, part, per_row) * CHUNK_BYTES
                e.ptx(
                    _COPY,
                    kernel.shared_address(target),
                    kernel.arg["x"].ptr_to([offset]),
                    CHUNK_BYTES,
                    size,
                )

    def _load_activations(self, block: Any, start: Any) -> None:
        """Any stride, any alignment, any group: one element at a time, zero where there is none."""
        kernel, plan = self.kernel, self.kernel.plan
        cut = plan.packing.geometry
        per_row = cut.block_k // _HALVES
        count, threads = plan.rows_loaded * cut.block_k, kernel.ring_threads
        with e.loop(-(-count // threads), "element") as i:
            index = i * threads + kernel.ring_thread
            guard = True if count % threads == 0 else index < count
            with e.when(guard):
                row, column = index // cut.block_k, index % cut.block_k
                k, inside = self._logical_k(block * cut.block_k + column)
                token = kernel.first_token + row
                target = start // 2 + (
                    swizzled_chunk(row, column // _HALVES, per_row) * _HALVES + column % _HALVES
                )
                inside = e.both(inside, token < kernel.arg["m"])
                offset = (
                    e.i64(token) * kernel.arg["x_stride_m"] + e.i64(k) * kernel.arg["x_stride_k"]
                )
                value = kernel.arg["x"][e.select(inside, offset, e.i64(0))]
                e.store(kernel.shared["uint16"], target, e.select(inside, value, e.u16(0)))

    def _logical_k(self, position: Any) -> tuple[Any, Any]:
        """Padded position along K -> (logical index, whether it exists)."""
        cut = self.kernel.plan.packing.geometry
        if cut.is_contiguous:
            return position, position < cut.k
        within = position % cut.padded_group
        k = position // cut.padded_group * cut.group + within
        return k, e.both(within < cut.group, k < cut.k)

    def _shares(self, count: int) -> list[tuple[Any, Any]]:
        """Split ``count`` chunks over the ring's threads: (chunk index, guard) of each round."""
        threads = self.kernel.ring_threads
        rounds = []
        for i in range(-(-count // threads)):
            chunk = i * threads + self.kernel.ring_thread
            whole = (i + 1) * threads <= count
            rounds.append((chunk, True if whole else chunk < count))
        return rounds
