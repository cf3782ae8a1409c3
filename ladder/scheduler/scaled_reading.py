"""Whether a packing is read by a program for lanes that are scaled in registers: by the instructions of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ladder.decode.scaled import scaled
from ladder.scheduler.scale_lanes import scale_lanes

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing

#: instructions of an offset that takes zero points off: a difference and a product for either row, and rounding both
ZERO_INSTRUCTIONS = 5


def cheaper(packing: Packing) -> Packing:
    """The packing with the program of :func:`~ladder.decode.scaled.scaled` where that takes fewer instructions, else itself."""
    program = scaled(packing.element, packing.program) if packing.has_unit else None
    if program is None:
        return packing
    other = replace(packing, program=program)
    return other if _instructions(other) < _instructions(packing) else packing


def _instructions(packing: Packing) -> float:
    """Instructions of a lane for a group: decoding it, and making S and Z beyond the first S."""
    program, has_zeros = packing.program, packing.zero_dtype is not None
    lanes = scale_lanes(program.affine, has_zeros=has_zeros)
    offset = ZERO_INSTRUCTIONS if has_zeros else 1
    steps = packing.geometry.padded_group / program.step_k
    decoding = len(program.ops) / program.steps * steps
    return decoding + len(lanes.factors) - 1 + offset * len(lanes.offsets)
