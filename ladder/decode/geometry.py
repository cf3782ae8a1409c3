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
STEP_K = 16
#: fragment registers of one m16n8k16 step and codes in one register
REGISTERS = 4
HALVES = 2

#: k16 steps of an atom by code width; the words below come out whole and without a wasted bit. Codes of 16 bits are lane
#: values: nothing is decoded
STEPS = {1: 16, 2: 8, 3: 4, 4: 4, 5: 4, 6: 2, 7: 4, 8: 2, 16: 2}
#: 32-bit words per lane and atom by code width
WORDS = {b: STEPS[b] * REGISTERS * HALVES * b // 32 for b in STEPS}

#: widths of codes that are decoded
WIDTHS = tuple(range(1, 9))


@dataclass(frozen=True, slots=True)
class FragmentIndex:
    """Element coordinates of an atom's fragment: ``row`` and ``k``, both ``[32 lanes, steps, 4, 2]``."""

    row: npt.NDArray[np.intp]
    k: npt.NDArray[np.intp]


@cache
def fragment_index(steps: int) -> FragmentIndex:
    """Coordinates of every fragment element (PTX ISA, "Matrix Fragments for mma.m16n8k16", A in .f16/.bf16)."""
    lane, step, register, half = np.meshgrid(
        np.arange(LANES), np.arange(steps), np.arange(REGISTERS), np.arange(HALVES), indexing="ij"
    )
    row = lane // 4 + 8 * (register & 1)
    k = STEP_K * step + 2 * (lane % 4) + 8 * (register >> 1) + half
    row.flags.writeable = False
    k.flags.writeable = False
    return FragmentIndex(row, k)
