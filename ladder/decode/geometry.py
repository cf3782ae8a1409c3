"""How many words and steps an atom has for each width of code, and which code sits where in the fragment.

>>> STEPS[4], WORDS[4]
(4, 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

LANES = 32
ROWS = 16
#: fragment registers of one step
REGISTERS = 4
HALVES = 2

#: steps of an atom of 16-bit lanes by code width; the words below come out whole and without a wasted bit. With lanes of 8
#: or 4 bits an atom has half or a quarter as many, of twice or four times the codes. Codes of 16 bits are lane values: nothing is decoded
STEPS = {1: 16, 2: 8, 3: 4, 4: 4, 5: 4, 6: 2, 7: 4, 8: 2, 16: 2}
#: 32-bit words per lane and atom by code width
WORDS = {b: STEPS[b] * REGISTERS * HALVES * b // 32 for b in STEPS}

#: widths of codes that are decoded
WIDTHS = tuple(range(1, 9))


def steps_of(bits: int, lanes: int) -> int:
    """Steps of an atom of codes of ``bits`` bits with so many lanes to a register."""
    return STEPS[bits] * HALVES // lanes


@dataclass(frozen=True, slots=True)
class FragmentIndex:
    """Element coordinates of an atom's fragment: ``row`` and ``k``, both ``[32 threads, steps, 4, lanes]``."""

    row: npt.NDArray[np.intp]
    k: npt.NDArray[np.intp]


@cache
def fragment_index(steps: int, lanes: int = HALVES) -> FragmentIndex:
    """Coordinates of every fragment element (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... m16n8k32", "... m16n8k64", operand A)."""
    thread, step, register, lane = np.meshgrid(
        np.arange(LANES), np.arange(steps), np.arange(REGISTERS), np.arange(lanes), indexing="ij"
    )
    row = thread // 4 + 8 * (register & 1)
    k = 8 * lanes * step + lanes * (thread % 4) + 4 * lanes * (register >> 1) + lane
    row.flags.writeable = False
    k.flags.writeable = False
    return FragmentIndex(row, k)
