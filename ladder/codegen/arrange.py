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

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import ARENA_ALIGN, Kernel
from ladder.codegen.stages.decode import DecodeEmitter
from ladder.codegen.stages.finish import reduce_and_store
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.stages.load_ring import RingEmitter
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.stages.shared_decode import SharedWeights
from ladder.codegen.tvm_api import IRBuilder, T
from ladder.scheduler.plan import Plan
from ladder.scheduler.stage import Decode, GroupScale, Multiply


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
        self.scale = GroupScaleEmitter(kernel, self._stage(GroupScale), self.multiply)
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
                self.ring.issue(self._block(turn), self.ring.slot(turn))
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
        with e.loop(turns, "turn") as turn:
            e.ptx("cp.async.wait_group", depth - 2)
            self._ring_barrier()
            ahead = self._block(turn + (depth - 1))
            with e.when(ahead < blocks):
                self.ring.issue(ahead, self.ring.slot((turn + (depth - 1)) % depth))
            e.ptx("cp.async.commit_group")
            slot = e.bind(self.ring.slot(turn % depth), "slot")
            self._compute(slot)

    def _ring_barrier(self) -> None:
        tiling = self.plan.tiling
        if tiling.ring_warps == 1:
            e.sync_warp()
        elif tiling.warps_k == 1:
            e.sync_cta()
        else:
            # Barrier 0 is the CTA's; slices take 1 .. warps_k.
            e.sync_named(self.kernel.slice + 1, 32 * tiling.ring_warps)

    def _compute(self, slot: Any) -> None:
        """Products of one block, two steps at a time, and the flushes at the ends of its groups."""
        plan, program = self.plan, self.plan.packing.program
        if self.scratch is not None:
            self._decode_to_shared(slot)
        per_flush = self._steps_per_flush()
        for atom in range(plan.atoms_per_block):
            decoders = None if self.scratch is not None else self._atom_decoders(slot, atom)
            for pair in range(0, program.steps, 2):
                # Groups of 16 end in the middle of a pair: its steps are then multiplied apart.
                for halves in ((0,), (1,)) if per_flush == 1 else ((0, 1),):
                    step = atom * program.steps + pair
                    self._products(slot, decoders, step, pair, halves)
                    last = step + halves[-1] + 1
                    if per_flush and last % per_flush == 0:
                        self.scale.flush(slot, self.ring.offsets, last // per_flush - 1)

    def _steps_per_flush(self) -> int:
        plan = self.plan
        if not plan.flushes_per_block:
            return 0
        return plan.atoms_per_block * plan.packing.program.steps // plan.flushes_per_block

    def _products(
        self, slot: Any, decoders: Any, step: int, pair: int, halves: tuple[int, ...]
    ) -> None:
        """Products of the steps ``step + half`` of the block, which are ``pair + half`` of their atom."""
        program = self.plan.packing.program
        with e.stage("decode"):
            fragments = {
                half: self.scratch.fragments(step + half)
                if self.scratch is not None
                else [decoder.fragment(pair + half) for decoder in decoders]
                for half in halves
            }
        with e.stage("multiply"):
            classes = {half: program.step_class[pair + half] for half in halves}
            self.multiply.products(slot + self.ring.offsets["x"], step, fragments, classes)

    def _atom_start(self, slot: Any, row_tile: int, atom: int) -> Any:
        """First byte of an atom's packed words in a slot."""
        tile = self.kernel.warp_n * self.plan.tiling.row_tiles + row_tile
        return slot + (tile * self.plan.atoms_per_block + atom) * (self.plan.packing.atom_words * 4)

    def _atom_decoders(self, slot: Any, atom: int) -> list[Any]:
        with e.stage("decode"):
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
