"""The arrangement of stages into a kernel: fill the rings, walk the blocks of K, finish.

    fill slots 0 .. depth-2
    for each block of this K slice:
        wait for its slot; ring barrier; start the copies of the block depth-1 ahead
        for each pair of steps: activations by ldmatrix, weights decoded, products
        at the end of a group: flush
    sum the slices, epilogue, store

Both families are this one arrangement. In the skinny family a ring belongs to one warp, so that the ring barrier is a warp
barrier and warps run freely; in the ring family all warps of a K slice share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import ARENA_ALIGN, Kernel
from ladder.codegen.stages.decode import DecodeEmitter
from ladder.codegen.stages.finish import reduce_and_store
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.stages.load_ring import RingEmitter
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.stages.shared_decode import SharedWeights
from ladder.codegen.stages.zero_point import ZeroPoint
from ladder.codegen.tvm_api import IRBuilder, T
from ladder.scheduler.plan import Plan
from ladder.scheduler.stage import Decode, GroupScale, Multiply


@dataclass(frozen=True)
class Pair:
    """Two neighbouring k16 steps of a block, or one of them.

    Attributes:
        step: the even step.
        halves: which of the two steps are multiplied.
        enter: group of the block that begins here, or None.
        flush: group of the block that ends here and is flushed, or None.
    """

    step: int
    halves: tuple[int, ...]
    enter: int | None
    flush: int | None


class Arrangement:
    """Builds the PrimFunc of a plan."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.name = plan, name

    def build(self) -> Any:
        """The PrimFunc."""
        with IRBuilder() as builder, T.prim_func():
            T.func_name(self.name)
            self._body()
        return builder.get()

    def _body(self) -> None:
        plan = self.plan
        kernel = Kernel(plan, max(ARENA_ALIGN, plan.shared_bytes))
        decode_stage = self._stage(Decode)
        # The arena: lookup table, decoded weights, then the rings, whose memory the reduction takes over.
        scratch_base = decode_stage.shared_bytes - decode_stage.scratch_bytes
        ring_base = decode_stage.shared_bytes
        self.ring = RingEmitter(kernel, plan.load_ring, ring_base)
        self.decode = DecodeEmitter(kernel, table_base=0)
        self.multiply = MultiplyEmitter(kernel, self._stage(Multiply))
        self.kernel = kernel
        self._fill_rings()
        self.decode.fill_table()
        if plan.packing.program.table is not None:
            e.sync_cta()
        metadata = Metadata(kernel, self.ring.offsets)
        self.scale = GroupScaleEmitter(kernel, self._stage(GroupScale), self.multiply, metadata)
        self.zero = ZeroPoint(kernel, metadata) if plan.zero == "register" else None
        self.scratch = (
            SharedWeights(kernel, self.decode, scratch_base) if plan.convert == "shared" else None
        )
        self._walk_blocks()
        if not plan.flushes_per_block:
            self.scale.flush_last()
        e.ptx("cp.async.wait_group", 0)
        reduce_and_store(kernel, self.scale, ring_base)

    def _stage(self, kind: type[Any]) -> Any:
        (stage,) = (s for s in self.plan.stages if isinstance(s, kind))
        return stage

    def _block(self, turn: Any) -> Any:
        """Block of K that a slice meets in a turn: slices take blocks in turns, so that a CTA reads consecutive bytes."""
        return turn * self.plan.tiling.warps_k + self.kernel.slice

    def _fill_rings(self) -> None:
        blocks = self.plan.packing.geometry.blocks
        for turn in range(self.plan.depth - 1):
            with e.when(self._exists(self._block(turn), turn, blocks)):
                slot = self.ring.base + turn * self.plan.load_ring.slot_bytes
                self.ring.issue(self._block(turn), slot)
            e.ptx("cp.async.commit_group")

    def _exists(self, block: Any, turn: int, blocks: int) -> Any:
        slices = self.plan.tiling.warps_k
        return True if (turn + 1) * slices <= blocks else block < blocks

    def _walk_blocks(self) -> None:
        plan, slices = self.plan, self.plan.tiling.warps_k
        blocks, depth = plan.packing.geometry.blocks, plan.depth
        turns = (
            blocks // slices
            if blocks % slices == 0
            else (blocks - self.kernel.slice + (slices - 1)) // slices
        )
        # Slots are walked by adding; the last one is followed by the first.
        cursor = e.registers("cursor", 2, "int32")
        e.store(cursor, 0, self.ring.base)
        e.store(cursor, 1, self.ring.base + (depth - 1) * plan.load_ring.slot_bytes)
        with e.loop(turns, "turn") as turn:
            e.ptx("cp.async.wait_group", depth - 2)
            self._ring_barrier()
            slot, free = e.bind(cursor[0], "slot"), e.bind(cursor[1], "free_slot")

            def copy_ahead() -> None:
                ahead = self._block(turn + (depth - 1))
                with e.when(ahead < blocks):
                    self.ring.issue(ahead, free)
                e.ptx("cp.async.commit_group")

            if plan.tiling.ring_warps == 1:
                # Bound by memory: the next copies come first. A ring shared by warps is bound by products: these come first.
                copy_ahead()
                self._compute(slot, lambda: None)
            else:
                self._compute(slot, copy_ahead)
            self._advance(cursor)

    def _advance(self, cursor: Any) -> None:
        ring = self.plan.load_ring
        last = self.ring.base + (ring.slots - 1) * ring.slot_bytes
        for i in range(2):
            following = cursor[i] + ring.slot_bytes
            e.store(cursor, i, e.select(cursor[i] == last, self.ring.base, following))

    def _ring_barrier(self) -> None:
        tiling = self.plan.tiling
        if tiling.ring_warps == 1:
            e.sync_warp()
        elif tiling.warps_k == 1:
            e.sync_cta()
        else:
            # Barrier 0 is the CTA's; slices take 1 .. warps_k.
            e.sync_named(self.kernel.slice + 1, 32 * tiling.ring_warps)

    def _compute(self, slot: Any, copy_ahead: Callable[[], None]) -> None:
        """Products of one block, and the flushes at the ends of its groups.

        While the products of one pair of steps run, the weights of the next are decoded and the activations of the next
        token tile are read; ``copy_ahead`` is emitted after the first pair.
        """
        if self.scratch is not None:
            self._decode_to_shared(slot)
        pairs, groups = self._pairs(), self.multiply.tile_groups()
        start = slot + self.ring.offsets["x"]
        decoders: dict[int, Any] = {}
        fragments = [part() for part in self._preparation(slot, pairs[0], decoders)]
        b = self._read(start, pairs[0], groups[0])
        for index, pair in enumerate(pairs):
            following = pairs[index + 1] if index + 1 < len(pairs) else None
            parts = [] if following is None else self._preparation(slot, following, decoders)
            upcoming: list[Any] = []
            terms = None if pair.flush is None else self.scale.open(slot, pair.flush)
            for place, tiles in enumerate(groups):
                # Decode a share of the next pair, read the next activations, multiply, flush the tiles before.
                due = -(-len(parts) * (place + 1) // len(groups))
                upcoming += [part() for part in parts[len(upcoming) : due]]
                after = (pair, groups[place + 1]) if place + 1 < len(groups) else (following, groups[0])
                ahead = self._read(start, *after) if after[0] is not None else b
                self._multiply(pair, fragments, b, tiles)
                if terms is not None and place:
                    self.scale.flush(terms, groups[place - 1])
                b = ahead
            if terms is not None:
                self.scale.flush(terms, groups[-1])
            if index == 0:
                copy_ahead()
            fragments = upcoming

    def _pairs(self) -> list[Pair]:
        """The steps of a block in pairs; groups of 16 end in the middle of one, which is then multiplied in two parts."""
        plan, program = self.plan, self.plan.packing.program
        steps = plan.atoms_per_block * program.steps
        per_flush = steps // plan.flushes_per_block if plan.flushes_per_block else 0
        per_group = per_flush if plan.has_groups else steps
        pairs = []
        for first in range(0, steps, 2):
            for halves in ((0,), (1,)) if per_flush == 1 else ((0, 1),):
                begin, end = first + halves[0], first + halves[-1] + 1
                pairs.append(
                    Pair(
                        step=first,
                        halves=halves,
                        enter=begin // per_group if begin % per_group == 0 else None,
                        flush=end // per_flush - 1 if per_flush and end % per_flush == 0 else None,
                    )
                )
        return pairs

    def _preparation(
        self, slot: Any, pair: Pair, decoders: dict[int, Any]
    ) -> list[Callable[[], list[Any]]]:
        """Emitters of the A fragments of a pair, one per (half, row tile) in that order."""
        program, rows = self.plan.packing.program, self.plan.tiling.row_tiles
        if self.zero is not None and pair.enter is not None:
            self.zero.enter_group(slot, pair.enter)
        atom = pair.step // program.steps
        if self.scratch is None and atom not in decoders:
            with e.stage("decode"):
                decoders[atom] = self._atom_decoders(slot, atom)
        return [
            partial(self._fragment, decoders.get(atom), row_tile, pair.step + half)
            for half in pair.halves
            for row_tile in range(rows)
        ]

    def _fragment(self, decoders: Any, row_tile: int, step: int) -> list[Any]:
        """A fragment of a step, with the zero point taken off where that happens in registers."""
        program = self.plan.packing.program
        with e.stage("decode"):
            if self.scratch is not None:
                fragment = self.scratch.fragment(row_tile, step)
            else:
                fragment = decoders[row_tile].fragment(step % program.steps)
            if self.zero is None:
                return fragment
            cls = program.step_class[step % program.steps]
            return self.zero.subtract(fragment, row_tile, cls)

    def _read(self, start: Any, pair: Pair, tiles: tuple[int, ...]) -> list[list[Any]]:
        with e.stage("multiply"):
            return self.multiply.load_activations(start, pair.step, tiles)

    def _multiply(
        self, pair: Pair, fragments: list[Any], b: list[list[Any]], tiles: tuple[int, ...]
    ) -> None:
        program, rows = self.plan.packing.program, self.plan.tiling.row_tiles
        with e.stage("multiply"):
            for index, half in enumerate(pair.halves):
                a = fragments[index * rows : (index + 1) * rows]
                cls = program.step_class[(pair.step + half) % program.steps]
                for tile, registers in zip(tiles, b, strict=True):
                    self.multiply.products(a, registers[2 * half : 2 * half + 2], tile, cls)

    def _atom_start(self, slot: Any, row_tile: int, atom: int) -> Any:
        """First byte of an atom's packed words in a slot."""
        tile = self.kernel.warp_n * self.plan.tiling.row_tiles + row_tile
        return slot + (tile * self.plan.atoms_per_block + atom) * (self.plan.packing.atom_words * 4)

    def _atom_decoders(self, slot: Any, atom: int) -> list[Any]:
        return [
            self.decode.atom(self._atom_start(slot, row_tile, atom))
            for row_tile in range(self.plan.tiling.row_tiles)
        ]

    def _decode_to_shared(self, slot: Any) -> None:
        assert self.scratch is not None
        with e.stage("decode"):
            for row_tile in range(self.plan.tiling.row_tiles):
                for atom in range(self.plan.atoms_per_block):
                    self.scratch.write(row_tile, atom, self._atom_start(slot, row_tile, atom))
            self._ring_barrier()
