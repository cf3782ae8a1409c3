from __future__ import annotations

import pytest

from ladder.decode.complete import families
from ladder.decode.cover import place
from ladder.decode.forms import search
from ladder.decode.fragment import classes
from ladder.decode.geometry import STEPS, WORDS
from ladder.decode.lanes import FLOAT16
from ladder.decode.values import ValueSet


def first_family(element):
    values = ValueSet.of(element)
    return next(families(values, search(values, FLOAT16), FLOAT16)).forms


@pytest.mark.parametrize("bits", range(1, 9))
def test_placements_take_every_bit_of_the_words_once(catalog, bits):
    placed = place(first_family(catalog[f"uint{bits}"]), bits)
    bits_taken = []
    for field in placed.fields:
        assert sum(piece.mask for piece in field.pieces) == field.form.mask
        for piece in field.pieces:
            lanes = [(p - piece.rotation) % 16 for p in range(16) if piece.mask >> p & 1]
            bits_taken += [(piece.word, p) for p in lanes]
    assert sorted(bits_taken) == [(w, p) for w in range(WORDS[bits]) for p in range(16)]
    assert len(placed.fields) == 4 * STEPS[bits]
    counts = {}
    for field in placed.fields:
        counts[field.form.deferred] = counts.get(field.form.deferred, 0) + 1
    assert classes(list(counts.values())) <= 2


def test_nothing_dearer_than_the_limit_is_returned(catalog):
    forms = first_family(catalog["uint4"])
    assert place(forms, 4).cost == 10.0
    assert place(forms, 4, below=10.0) is None
