"""The main loop of the specialised family: a warpgroup decodes the next steps while its products run.

    for each block:   wait for its slot
                      for each chunk of steps: decode it; issue its products; wait for those of the chunk before,
                      or of the one before that (then nothing reads the slot before this one any more: it is freed)

K slices of a CTA take its blocks in turns, so that their warpgroups decode and multiply side by side.

A chunk's fragments are registers of their own, so that they stay untouched until its products were waited for; decoding of
a block's first chunk overlaps the products of the last chunk of the block before.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.decode import AtomDecoder, DecodeEmitter
from ladder.codegen.stages.finish import finish_accumulators
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.stages.pipeline import Cursor, PipelineEmitter
from ladder.codegen.stages.scale_registers import ScaleRegistersEmitter
from ladder.codegen.stages.warpgroup import WarpgroupEmitter
from ladder.codegen.stages.zero_point import ZeroPoint
from ladder.scheduler.registers import ALL_WORDS_TOKENS, atoms_at_once
from ladder.scheduler.stage import GroupScale
from ladder.scheduler.walk import steps_held, sums_of_tokens

#: most turns of a loop of known length that the compiler unrolls as a whole
UNROLLED_TURNS = 2


class Consume:
    """Emits the loop over blocks of the warps that multiply."""

    def __init__(
        self,
        kernel: Kernel,
        pipeline: PipelineEmitter,
        decode: DecodeEmitter,
        multiply: WarpgroupEmitter,
        group_scale: GroupScale,
    ) -> None:
        self.kernel, self.pipeline, self.decode = kernel, pipeline, decode
        self.multiply = multiply
        self.zero: ZeroPoint | None = None
        self.scale: ScaleRegistersEmitter | None = None
        self.metadata: Metadata | None = None
        self.plan, self.program = kernel.plan, kernel.plan.program
        cut = self.plan.packing.geometry
        self.steps = self.plan.block_steps
        self.steps_of_group = max(1, self.steps // cut.groups_per_block)
        #: steps between two flushes of the accumulators; 0 where they are the totals
        self.per_flush = (
            self.steps // self.plan.flushes_per_block if self.plan.flushes_per_block else 0
        )
        self.group_scale = group_scale
        self.flushed: GroupScaleEmitter | None = None
        self.tiles = multiply.tile_groups()[0]
        together = self.plan.turns_together
        self.cursor = Cursor(
            "reading", pipeline.ring.slots // together, pipeline.units * together, self.kernel.slice
        )
        self.before = e.registers("slot_before", 1, "int32")
        e.store(self.before, 0, 0)

    def emit(self) -> None:
        """The loop; afterwards all products are complete, and where more tiles follow the last slot is free."""
        pipeline, slices = self.pipeline, self.plan.tiling.warps_k
        cursor, before = self.cursor, self.before
        self.metadata = metadata = Metadata(self.kernel, pipeline.offsets)
        if self.plan.zero == "register":
            self.zero = ZeroPoint(self.kernel, metadata, live=steps_held(self.plan), together=True)
        if self.plan.scale == "register":
            self.scale = ScaleRegistersEmitter(self.kernel, metadata)
        if self.per_flush:
            self.flushed = GroupScaleEmitter(self.kernel, self.group_scale, self.multiply, metadata)
        together = self.plan.turns_together
        turns = self._turns()
        with e.loop(turns, "turn", together=self._unrolled(turns)) as turn:
            first_slot = e.bind(pipeline.base + cursor.place, "first_slot")
            # Of the whole warp: descriptors of all steps are then sums of uniform registers.
            low = self.multiply.low_word(first_slot + pipeline.offsets["x"])
            activations = e.bind(self.multiply.descriptor(e.first_lanes(low)), "activations")
            for index in range(together):
                number = cursor.slot * together + index
                pipeline.wait_full(number, cursor.phase)
                self._block(
                    first_slot + index * pipeline.ring.slot_bytes,
                    self.multiply.further(activations, index * pipeline.ring.slot_bytes),
                    (number - 1, True) if index else (before[0], turn > 0),
                )
            e.store(before, 0, cursor.slot * together + (together - 1))
            for _ in range(slices):
                cursor.advance()
        self.multiply.settle(0)
        if self.plan.persistent:
            pipeline.release(before[0], True)

    def totals(self) -> Any:
        """The totals of the tile whose loop was emitted last, read as ``totals[i]`` in float32."""
        if self.flushed is not None:
            return self.flushed.total
        assert self.metadata is not None, "emit() comes first"
        return finish_accumulators(self.kernel, self.multiply, self.metadata)

    def _block(self, slot: Any, activations: Any, finished: tuple[Any, Any]) -> None:
        """One block: ``finished`` is the slot before it, and whether there is one that is to be freed."""
        # Words are read ahead, all at once where there is room: the waits for products would hold later loads back.
        ahead = atoms_at_once(self.plan) - 1
        decoders: list[AtomDecoder] = []
        size = self.plan.chunk_steps
        for first in range(0, self.steps, size):
            chunk = range(first, min(first + size, self.steps))
            wanted = min(chunk[-1] // self.program.steps + 1 + ahead, self.plan.atoms_per_block)
            decoders += [self._decoder(slot, atom) for atom in range(len(decoders), wanted)]
            fragments = [self._fragment(slot, decoders, step) for step in chunk]
            self._products(activations, first, fragments)
            if first == (self.plan.chunks_in_flight - 1) * size:
                self.pipeline.release(*finished)
            self._flush(slot, chunk[-1] + 1)

    def _flush(self, slot: Any, end: int) -> None:
        """Where a group of the block ends before step ``end``: scale its sums and add them to the totals."""
        if self.flushed is None or end % self.per_flush:
            return
        terms = self.flushed.open(slot, end // self.per_flush - 1)
        self.multiply.settle(0)
        self.flushed.flush(terms, self.tiles)

    def _turns(self) -> Any:
        """Turns of the loop: the blocks of this K slice, or that many together."""
        turns, slices = self.pipeline.turns, self.plan.tiling.warps_k
        if self.plan.turns_together > 1:
            return turns // self.plan.turns_together
        if slices == 1 or (isinstance(turns, int) and turns % slices == 0):
            return turns if slices == 1 else turns // slices
        return e.bind((turns - self.kernel.slice + (slices - 1)) // slices, "slice_turns")

    def _unrolled(self, turns: Any) -> int | None:
        """Turns of the loop that the compiler may unroll: as it likes, but where it would unroll all, and many tokens leave no
        registers for the decoding of several blocks at once.
        """
        few = isinstance(turns, int) and turns <= UNROLLED_TURNS
        return 1 if few and sums_of_tokens(self.plan) > ALL_WORDS_TOKENS else None

    def _decoder(self, slot: Any, atom: int) -> AtomDecoder:
        place = self.kernel.warp_n * self.plan.atoms_per_block + atom
        with e.stage("decode"):
            return self.decode.atom(slot + place * (self.plan.packing.atom_words * 4))

    def _fragment(self, slot: Any, decoders: list[AtomDecoder], step: int) -> list[Any]:
        """Registers a0..a3 of a step of the block in a slot."""
        for stage in (self.zero, self.scale):
            if step % self.steps_of_group == 0 and stage is not None:
                stage.enter_group(slot, step // self.steps_of_group)
        atom, atom_step = divmod(step, self.program.steps)
        with e.stage("decode"):
            fragment = decoders[atom].fragment(atom_step)
        cls = self.program.step_class[atom_step]
        if self.zero is not None:
            fragment = self.zero.subtract(fragment, 0, cls)
        return fragment if self.scale is None else self.scale.apply(fragment, step, atom_step)

    def _products(self, activations: Any, first: int, fragments: list[list[Any]]) -> None:
        with e.stage("multiply"):
            steps = [(index, [fragment], 0) for index, fragment in enumerate(fragments)]
            self.multiply.multiply(steps, (activations, first), self.tiles)
            self.multiply.settle(self.plan.chunks_in_flight)
