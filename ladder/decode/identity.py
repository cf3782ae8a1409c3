"""Programs without operations, for codes that are lane values already.

Word w of a lane is register a(w mod 4) of step w / 4, as ``mma.m16n8k16`` and ``wgmma`` read it: one 16-byte load brings the
fragment of a step.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ladder.decode.geometry import HALVES, REGISTERS, STEPS, WORDS
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import Affine, DecodeProgram, Slot
from ladder.decode.values import Element

#: bits of a lane value
LANE_BITS = 16


def identity(element: Element, compute: str) -> DecodeProgram | None:
    """The program without operations, where an element's table is that of the compute type; None elsewhere."""
    if element.bits != LANE_BITS or compute not in LANE_FORMATS:
        return None
    own = LANE_FORMATS[compute].table
    return _identity(compute) if np.array_equal(element.values, own, equal_nan=True) else None


@cache
def _identity(compute: str) -> DecodeProgram:
    steps, words = STEPS[LANE_BITS], WORDS[LANE_BITS]
    outputs = np.arange(words).reshape(steps, REGISTERS).tolist()
    return DecodeProgram(
        element=compute,
        bits=LANE_BITS,
        compute=compute,
        form="identity",
        words=words,
        steps=steps,
        ops=(),
        outputs=tuple((a, b, c, d) for a, b, c, d in outputs),
        slots=tuple(tuple(_slots(word) for word in step) for step in outputs),
        relabels=(range(1 << LANE_BITS),),
        step_class=(0,) * steps,
        affine=((Affine(), Affine()),),
    )


def _slots(word: int) -> tuple[Slot, Slot]:
    low, high = (
        Slot(tuple(range(32 * word + LANE_BITS * half, 32 * word + LANE_BITS * (half + 1))))
        for half in range(HALVES)
    )
    return low, high
