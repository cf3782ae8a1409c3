"""The steps of one block of K: fragments of weights and activations, and their products, two steps at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.decode import DecodeEmitter
from ladder.codegen.stages.load_ring import RingEmitter
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.stages.shared_decode import SharedWeights
from ladder.codegen.stages.warpgroup import WarpgroupEmitter
from ladder.codegen.stages.zero_point import ZeroPoint
from ladder.scheduler.plan import Plan

#: registers a0..a3 of one step and row tile
Fragment = list[Any]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring steps of a block, or one of them.

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


def pairs_of(plan: Plan) -> tuple[Pair, ...]:
    """The steps of a block in pairs; groups of 16 end in the middle of one, which is then multiplied in two parts."""
    steps = plan.block_steps
    per_flush = steps // plan.flushes_per_block if plan.flushes_per_block else 0
    per_group = steps // plan.packing.geometry.groups_per_block if plan.has_groups else steps
    alone = per_flush == 1 or (per_group == 1 and plan.zero == "register")
    pairs = []
    for first in range(0, steps, 2):
        for halves in ((0,), (1,)) if alone else ((0, 1),):
            begin, end = first + halves[0], first + halves[-1] + 1
            pairs.append(
                Pair(
                    step=first,
                    halves=halves,
                    enter=begin // per_group if begin % per_group == 0 else None,
                    flush=end // per_flush - 1 if per_flush and end % per_flush == 0 else None,
                )
            )
    return tuple(pairs)


class Block:
    """Emits fragments and products of blocks that lie in ring slots.

    Attributes:
        pairs: the steps of a block.
        groups: token tiles that are multiplied together.
    """

    def __init__(
        self,
        kernel: Kernel,
        ring: RingEmitter,
        decode: DecodeEmitter,
        multiply: MultiplyEmitter | WarpgroupEmitter,
        zero: ZeroPoint | None,
        scratch: SharedWeights | None,
    ) -> None:
        self.kernel, self.ring, self.decode = kernel, ring, decode
        self.multiply, self.zero, self.scratch = multiply, zero, scratch
        self.plan, self.program = kernel.plan, kernel.plan.program
        self.pairs, self.groups = pairs_of(kernel.plan), multiply.tile_groups()
        self._decoders: dict[int, list[Any]] = {}

    def enter(self) -> None:
        """Forget the atoms of the block before: the next ones are read from another slot."""
        self._decoders = {}

    def preparation(self, slot: Any, pair: Pair) -> list[Callable[[], Fragment]]:
        """Emitters of the A fragments of a pair, one per (half, row tile) in that order."""
        rows = self.plan.tiling.row_tiles
        if self.zero is not None and pair.enter is not None:
            self.zero.enter_group(slot, pair.enter)
        for half in pair.halves:
            self._read_atom(slot, (pair.step + half) // self.program.steps)
        return [
            partial(self._fragment, row_tile, pair.step + half, dict(self._decoders))
            for half in pair.halves
            for row_tile in range(rows)
        ]

    def _read_atom(self, slot: Any, atom: int) -> None:
        """Decoders of an atom, one for each row tile; where weights were decoded to shared memory there are none."""
        if self.scratch is not None or atom in self._decoders:
            return
        with e.stage("decode"):
            self._decoders[atom] = [
                self.decode.atom(self._atom_start(slot, row_tile, atom))
                for row_tile in range(self.plan.tiling.row_tiles)
            ]

    def _fragment(self, row_tile: int, step: int, decoders: dict[int, list[Any]]) -> Fragment:
        """A fragment of a step, with the zero point taken off where that happens in registers."""
        atom, atom_step = divmod(step, self.program.steps)
        with e.stage("decode"):
            if self.scratch is not None:
                fragment = self.scratch.fragment(row_tile, step)
            else:
                fragment = decoders[atom][row_tile].fragment(atom_step)
            if self.zero is None:
                return fragment
            return self.zero.subtract(fragment, row_tile, self.program.step_class[atom_step])

    def read(self, slot: Any, pair: Pair, tiles: tuple[int, ...], bank: int) -> Any:
        """Activations of a pair for some token tiles, into a bank of registers."""
        with e.stage("multiply"):
            return self.multiply.read(slot + self.ring.offsets["x"], pair.step, tiles, bank)

    def carried(self, slot: Any, pair: Pair, tiles: tuple[int, ...], bank: int) -> Any:
        """What :meth:`read` left in a bank."""
        return self.multiply.carried(slot + self.ring.offsets["x"], pair.step, tiles, bank)

    def products(
        self, pair: Pair, fragments: list[Fragment], b: Any, tiles: tuple[int, ...]
    ) -> None:
        """Multiply the fragments of a pair with the activations of some token tiles."""
        rows = self.plan.tiling.row_tiles
        steps = [
            (
                half,
                fragments[index * rows : (index + 1) * rows],
                self.program.step_class[(pair.step + half) % self.program.steps],
            )
            for index, half in enumerate(pair.halves)
        ]
        with e.stage("multiply"):
            self.multiply.multiply(steps, b, tiles)

    def decode_to_shared(self, slot: Any, barrier: Callable[[], None]) -> None:
        """Decode a whole block into the scratch tile, for plans that convert in shared memory."""
        if self.scratch is None:
            return
        with e.stage("decode"):
            for row_tile in range(self.plan.tiling.row_tiles):
                for atom in range(self.plan.atoms_per_block):
                    self.scratch.write(row_tile, atom, self._atom_start(slot, row_tile, atom))
            barrier()

    def _atom_start(self, slot: Any, row_tile: int, atom: int) -> Any:
        """First byte of an atom's packed words in a slot."""
        tile = self.kernel.warp_n * self.plan.tiling.row_tiles + row_tile
        return slot + (tile * self.plan.atoms_per_block + atom) * (self.plan.packing.atom_words * 4)
