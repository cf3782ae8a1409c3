from __future__ import annotations

import numpy as np
import pytest

from ladder.decode.geometry import REGISTERS, STEPS, WIDTHS, WORDS, fragment_index
from ladder.ttile.fragments import MMA_M16N8K16_A


def test_no_packed_bit_is_wasted():
    assert tuple(range(1, 9)) == WIDTHS
    for bits in WIDTHS:
        assert STEPS[bits] * REGISTERS * 2 * bits == 32 * WORDS[bits]


@pytest.mark.parametrize("steps", [2, 16])
def test_each_element_of_an_atom_lies_in_one_place(steps):
    index = fragment_index(steps)
    seen = np.zeros((16, 16 * steps), int)
    np.add.at(seen, (index.row, index.k), 1)
    assert (seen == 1).all()


def test_places_are_those_of_the_instruction():
    index = fragment_index(2)
    for lane in range(32):
        for register in range(4):
            for half in range(2):
                at = MMA_M16N8K16_A.layout.apply(register=register, lane=lane, half=half)
                assert index.row[lane, 0, register, half] == at["row"]
                assert index.k[lane, 1, register, half] == 16 + at["k"]
