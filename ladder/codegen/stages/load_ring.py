"""Transform-Load, global -> shared: fill a slot of a ring with one block of K.

    weight  [tile_rows][block bytes]                      contiguous runs of the packed weight
    x       [rows][block_k], permuted                     slice, pad with zeros (edges of m and k), map
    scales  [tile_rows / w][groups_per_block][w][16]      contiguous runs, w tiles of a band together
    zeros   [tile_rows / w][groups_per_block][w][16]

Copies are 16-byte ``cp.async`` (PTX ISA, "Data Movement and Conversion Instructions: cp.async"); with ``src_size`` 0 the
destination is filled with zeros. The swizzle makes the 8 rows that one ``ldmatrix`` phase reads lie in different banks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import activation_place
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS
from ladder.scheduler.residency import grid_tiles
from ladder.scheduler.stage import CHUNK_BYTES, LoadRing
from ladder.scheduler.tiling import TILE_TOKENS, Tiling

_COPY = "cp.async.cg.shared.global.L2::128B"

#: elements that a thread of scalar access keeps on their way, each in a register with an address of two. Left to itself the
#: compiler takes up to all of a block (128 registers' worth); 8 fit into what decoding and products leave free before them.
ELEMENTS_TOGETHER = 8

#: what a slot holds; all but the activations are constants, which no kernel before this one writes
OPERANDS = ("weight", "x", "metadata")
#: the order in which they are asked for where a warp has its own ring and two tiles of tokens: what comes from L2 would wait in
#: queues behind weights (on an H200, M = 16, int4, nine kernels of four shapes: 2 % faster, some 6 %; M = 1: no faster)
WEIGHT_LAST = ("x", "metadata", "weight")
CONSTANTS = ("weight", "metadata")
ACTIVATIONS = ("x",)


def band_width(tiling: Tiling) -> int:
    """Tiles of one band that every CTA holds together: 4, or fewer where a CTA's tiles are no whole bands."""
    return math.gcd(tiling.tile_rows, BAND_TILES)


@dataclass(frozen=True)
class Copy:
    """One 16-byte copy that a thread makes for every block: the part of its addresses that no block changes.

    Attributes:
        guard: whether the thread makes it (True: always).
        source: element offset in the global array, before the block's own is added.
        target: byte offset in the slot.
        inside: whether the source exists; zeros are written where it does not (True: always).
    """

    guard: Any
    source: Any
    target: Any
    inside: Any = True


class RingEmitter:
    """Emits the load stage of one kernel.

    Attributes:
        kernel: the kernel under construction.
        ring: the stage.
        base: first byte of all rings in the arena.
        offsets: first byte of each operand in a slot.
        operands: what a slot holds, in the order in which it is asked for.
    """

    def __init__(self, kernel: Kernel, ring: LoadRing, base: int) -> None:
        self.kernel, self.ring = kernel, ring
        activations_first = kernel.plan.family == "skinny" and kernel.plan.rows_loaded > TILE_TOKENS
        self.operands = WEIGHT_LAST if activations_first else OPERANDS
        self.base = base + kernel.slice * (ring.slots * ring.slot_bytes)
        self.offsets = ring.offsets
        with e.stage(ring.name):
            self.weight = self._weight_copies()
            self.activations = self._activation_copies() if ring.access == "vector" else []
            self.metadata = {
                name: self._metadata_copies(name, nbytes)
                for name, nbytes in (("scales", ring.scale_bytes), ("zeros", ring.zero_bytes))
                if nbytes
            }
        self._copies_of = {
            "weight": self._copies_of_weight,
            "x": self._copies_of_activations,
            "metadata": self._copies_of_metadata,
        }

    # -- addresses, once a kernel --------------------------------------------------------------------------------

    def _weight_copies(self) -> list[Copy]:
        packing = self.kernel.plan.packing
        return self._run_copies("weight", 1, packing.geometry.blocks, packing.block_words, 4)

    def _metadata_copies(self, name: str, nbytes: int) -> list[Copy]:
        cut = self.kernel.plan.packing.geometry
        itemsize = nbytes // (self.kernel.plan.tiling.tile_rows * cut.groups_per_block * TILE_ROWS)
        per_chunk = CHUNK_BYTES // itemsize
        return self._run_copies(name, cut.groups_per_block, cut.padded_groups, TILE_ROWS, per_chunk)

    def _run_copies(
        self, name: str, pieces: int, band_pieces: int, tile_run: int, per_chunk: int
    ) -> list[Copy]:
        """Copies of what the CTA needs of an array ``[bands][band_pieces][4 tiles][tile_run]``: ``pieces`` of it a block.

        Tiles of one band lie side by side, so that a run holds as many of them as the CTA has together.
        """
        tiling, packing = self.kernel.plan.tiling, self.kernel.plan.packing
        width = band_width(tiling)
        run = width * tile_run
        chunks, threads = run // per_chunk, self.kernel.ring_threads
        clamped = packing.stored_tiles < grid_tiles(self.kernel.plan) * tiling.tile_rows
        band_stride = band_pieces * BAND_TILES * tile_run
        copies: list[Copy] = []
        count = tiling.tile_rows // width * pieces * chunks
        for turn, (chunk, guard) in enumerate(self._shares(count)):
            index, part = chunk // chunks, chunk % chunks
            tile = self.kernel.first_tile + index // pieces * width
            if clamped:
                # Beyond the last tile the last ones are read again; their products are never stored.
                tile = e.least(tile, packing.stored_tiles - width)
            bands_apart = width == BAND_TILES and threads % (chunks * pieces) == 0
            if turn and bands_apart and not clamped:
                bands = turn * (threads // (chunks * pieces))
                source = copies[0].source + e.i64(bands * band_stride)
            else:
                within = index % pieces * (BAND_TILES * tile_run) + tile % BAND_TILES * tile_run
                place = e.i64(tile // BAND_TILES) * e.i64(band_stride)
                source = e.bind(place + e.i64(within + part * per_chunk), f"{name}_source_{turn}")
            target = self.offsets[name] + chunk * CHUNK_BYTES
            copies.append(Copy(guard, source, target))
        return copies

    def _activation_copies(self) -> list[Copy]:
        kernel, plan = self.kernel, self.kernel.plan
        block_k, m = plan.packing.geometry.block_k, kernel.arg["m"]
        per_row, threads = block_k // plan.piece, kernel.ring_threads
        stride = kernel.arg["x_stride_m"]
        regular = threads % per_row == 0
        copies: list[Copy] = []
        for turn, (chunk, guard) in enumerate(self._shares(plan.rows_loaded * per_row)):
            row, part = chunk // per_row, chunk % per_row
            if regular and turn:
                source = copies[0].source + stride * e.i64(turn * (threads // per_row))
            else:
                place = e.i64(kernel.first_token + row) * stride + e.i64(part * self.piece_items)
                source = e.bind(place, f"x_source_{turn}")
            place = activation_place(plan, row, part) * CHUNK_BYTES
            target = e.bind(self.offsets["x"] + place, f"x_target_{turn}")
            copies.append(Copy(guard, source, target, kernel.first_token + row < m))
        return copies

    def _shares(self, count: int) -> list[tuple[Any, Any]]:
        """Split ``count`` chunks over the ring's threads: (chunk index, guard) of each turn."""
        threads = self.kernel.ring_threads
        shares = []
        for turn in range(-(-count // threads)):
            chunk = turn * threads + self.kernel.ring_thread
            whole = (turn + 1) * threads <= count
            shares.append((chunk, True if whole else chunk < count))
        return shares

    def items(self, count: int) -> int:
        """Items of the array of activations that hold so many of them."""
        return self.kernel.plan.op.activation.items(count)

    @property
    def piece_items(self) -> int:
        """Items in the 16 bytes of one copy."""
        return self.items(self.kernel.plan.piece)

    # -- copies, once a block ------------------------------------------------------------------------------------

    def issue(self, block: Any, slot: Any, operands: Sequence[str] | None = None) -> None:
        """Start the copies of block ``block`` of K, or of some operands, into the slot that begins at byte ``slot``."""
        for copy in self.copies(block, slot, operands):
            copy()

    def copies(
        self, block: Any, slot: Any, operands: Sequence[str] | None = None
    ) -> list[Callable[[], None]]:
        """Emitters of the copies of a block, for stages that place them between other work."""
        wanted = self.operands if operands is None else operands
        return [copy for operand in wanted for copy in self._copies_of[operand](block, slot)]

    def _copies_of_weight(self, block: Any, slot: Any) -> list[Callable[[], None]]:
        words = BAND_TILES * self.kernel.plan.packing.block_words
        return self._started("weight", self.weight, e.i64(block) * e.i64(words), slot)

    def _copies_of_activations(self, block: Any, slot: Any) -> list[Callable[[], None]]:
        if self.ring.access == "vector":
            return self._started_activations(block, slot)
        if self.ring.access == "column":
            return []
        return [partial(self._load_activations, block, slot + self.offsets["x"])]

    def _copies_of_metadata(self, block: Any, slot: Any) -> list[Callable[[], None]]:
        cut = self.kernel.plan.packing.geometry
        blocks_per_group = max(1, cut.padded_group // cut.block_k)
        group = block * cut.groups_per_block // blocks_per_group
        started: list[Callable[[], None]] = []
        for name, copies in self.metadata.items():
            started += self._started(name, copies, e.i64(group * (BAND_TILES * TILE_ROWS)), slot)
        return started

    def _started(
        self, name: str, copies: list[Copy], first: Any, slot: Any
    ) -> list[Callable[[], None]]:
        return [partial(self._start, name, copy, first, slot) for copy in copies]

    def _start(self, name: str, copy: Copy, first: Any, slot: Any, *size: Any) -> None:
        with e.stage(self.ring.name), e.when(copy.guard):
            source = self.kernel.arg[name].ptr_to([copy.source + first])
            target = self.kernel.shared_address(slot + copy.target)
            e.ptx(_COPY, target, source, CHUNK_BYTES, *size)

    def _started_activations(self, block: Any, slot: Any) -> list[Callable[[], None]]:
        """Copies of activations; beyond m and k nothing is read (source size 0) and zeros are written."""
        plan, cut = self.kernel.plan, self.kernel.plan.packing.geometry
        block_k = cut.block_k
        per_row = block_k // plan.piece
        first = e.i64(block * self.items(block_k))
        started: list[Callable[[], None]] = []
        for copy, (chunk, _) in zip(
            self.activations, self._shares(plan.rows_loaded * per_row), strict=True
        ):
            inside = copy.inside
            if cut.padded_k != plan.op.k:
                inside = e.both(inside, block * block_k + chunk % per_row * plan.piece < plan.op.k)
            size = e.select(inside, e.u32(CHUNK_BYTES), e.u32(0))
            started.append(partial(self._start, "x", copy, first, slot, size))
        return started

    def _load_activations(self, block: Any, start: Any) -> None:
        """Any stride, any alignment, any group: one element at a time, zero where there is none."""
        with e.stage(self.ring.name):
            self._load_elements(block, start)

    def _load_elements(self, block: Any, start: Any) -> None:
        kernel, plan = self.kernel, self.kernel.plan
        cut, kind = plan.packing.geometry, plan.op.activation
        per_row, piece = self.items(cut.block_k), self.piece_items
        count, threads = plan.rows_loaded * per_row, kernel.ring_threads
        itemsize = kind.storage.itemsize
        word = f"uint{8 * itemsize}"
        with e.loop(-(-count // threads), "element", together=ELEMENTS_TOGETHER) as i:
            index = i * threads + kernel.ring_thread
            with e.when(True if count % threads == 0 else index < count):
                row, column = index // per_row, index % per_row
                token = kernel.first_token + row
                target = start // itemsize + (
                    activation_place(plan, row, column // piece) * piece + column % piece
                )
                element = e.registers("element_bits", 1, word)
                e.store(element, 0, e.cast(word, e.u32(0)))
                for place in range(kind.per_item):
                    position = block * cut.block_k + column * kind.per_item + place
                    self._load_value(element, token, position, place)
                e.store(kernel.shared[word], target, element[0])

    def _load_value(self, element: Any, token: Any, position: Any, place: int) -> None:
        """Put the activation at a padded position of K into its place of an element; nothing where there is none."""
        kernel, kind = self.kernel, self.kernel.plan.op.activation
        k, inside = self._logical_k(position)
        inside = e.both(inside, token < kernel.arg["m"])
        item = k // kind.per_item
        offset = e.i64(token) * kernel.arg["x_stride_m"] + e.i64(item) * kernel.arg["x_stride_k"]
        with e.when(inside):
            value = kernel.arg["x"][offset]
            if kind.per_item > 1:
                # Groups are padded one by one: a value need not stand where it did in its byte.
                ones = e.u32((1 << kind.bits) - 1)
                first = e.cast("uint32", k % kind.per_item * kind.bits)
                code = ((e.cast("uint32", value) >> first) & ones) << e.u32(kind.bits * place)
                value = e.cast("uint8", e.cast("uint32", element[0]) | code)
            e.store(element, 0, value)

    def _logical_k(self, position: Any) -> tuple[Any, Any]:
        """Padded position along K -> (logical index, whether it exists)."""
        cut = self.kernel.plan.packing.geometry
        if cut.is_contiguous:
            return position, position < cut.k
        within = position % cut.padded_group
        k = position // cut.padded_group * cut.group + within
        return k, e.both(within < cut.group, k < cut.k)
