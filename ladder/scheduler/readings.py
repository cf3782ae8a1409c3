"""The programs by which plans read the same packed words: each leaves to the rest of its kernel what that does anyway."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ladder.decode.bare import bare, spared
from ladder.decode.complete import is_float32
from ladder.decode.lanes import BFLOAT16
from ladder.scheduler.scaled_reading import cheaper

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing
    from ladder.scheduler.plan import Plan


#: most tokens of a tile beside whose sums there are registers for further scales and zeros (int5, 256 tokens: 8 B spilled)
SCALED_TOKENS = 192


@dataclass(frozen=True)
class Readings:
    """A packing as plans read it that take zero points off, or scale, in one way or another.

    Attributes:
        packing: the packing, read by its own program.
    """

    packing: Packing

    @cached_property
    def shifts(self) -> tuple[tuple[int, int], ...] | None:
        """How zero points come off exactly in registers, see :mod:`ladder.scheduler.zero`."""
        from ladder.scheduler.zero import find_shifts

        return find_shifts(self.packing)

    @cached_property
    def bare(self) -> Packing | None:
        """Without closing fmas; None where there are none, or some have to stay (:mod:`ladder.decode.bare`)."""
        program = bare(self.packing.program)
        return None if program is None else replace(self.packing, program=program)

    @cached_property
    def subtracted(self) -> Packing:
        """Where an fma takes zero points off in registers: bare where that is exact, for it does the closing fma's work, too."""
        return self.bare if self.bare is not None and self.bare.readings.shifts else self.packing

    @cached_property
    def scaled(self) -> Packing:
        """Where lanes are scaled in registers, and nothing takes zeros off before.

        In float16 by a program for that, where one is cheaper (:mod:`ladder.decode.scaled`); in bfloat16 bare, where lanes differ by
        a float32 alone: a zero that is left would be rounded with its scale.
        """
        found = self.bare
        if self.packing.program.compute != BFLOAT16.name:
            return cheaper(self.packing)
        if found is None or self.packing.zero_dtype is not None or found.program.defers_zero:
            return self.packing
        factors = [affine.alpha for pair in found.program.affine for affine in pair]
        return found if all(map(is_float32, factors)) else self.packing

    @cached_property
    def summed(self) -> Packing:
        """Where sums of the activations take zero points off: without the closing fmas that they make good."""
        program = spared(self.packing.program)
        same = program is self.packing.program or self.packing.zero_dtype is None
        return self.packing if same else replace(self.packing, program=program)


def reading_of(plan: Plan) -> Packing:
    """The packing with the program that a plan decodes by.

    A plan picks its program by its product: a warp's mma takes the packing's, which is the cheapest. A warpgroup's wgmma keeps one
    set of accumulators, so where that program has several classes it takes the packing's other one, which finds every code at the
    same bits and brings all lanes to one factor (:attr:`Packing.one_class`); unless it scales lanes in registers, by which all of
    them come to one factor, too. To look codes up in registers: :attr:`Packing.in_registers`. Then the fma that finishes a register
    goes where the plan does its work elsewhere (:class:`Readings`).
    """
    packing = plan.packing
    if plan.lookup == "register" and packing.in_registers:
        return packing.in_registers
    if plan.compute == "wgmma" and plan.scale != "register":
        packing = packing.one_class
    if plan.zero == "register":
        return packing.readings.subtracted
    if plan.scale != "register":
        return packing.readings.summed
    found = packing.readings.scaled
    return packing if found.program.is_scaled and plan.tiling.tokens > SCALED_TOKENS else found
