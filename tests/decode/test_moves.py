from __future__ import annotations

from itertools import combinations

import pytest

from ladder.decode.form import Form, Piece
from ladder.decode.moves import cheapest
from ladder.decode.program import Affine


def ways(*given):
    """Options of a register: ``(word, distance, has an fma)`` each."""
    out = {}
    for word, distance, fma in given:
        form = Form((0,), 0, (0, 1), Affine(), fma=(1, 2) if fma else None)
        moves = frozenset({(word, distance)} if distance else ())
        out[moves] = form, (Piece(word, distance, 1),)
    return out


def cost_of(chosen):
    moves = {(p.word, p.rotation) for _, pieces in chosen for p in pieces if p.rotation}
    return 2 * len(moves) + sum(1 for form, _ in chosen if form.fma)


def test_a_move_is_made_where_it_saves_three_fmas():
    registers = [ways((0, 0, True), (0, 4, False)) for _ in range(3)]
    cost, chosen = cheapest(registers, 100)
    assert cost == cost_of(chosen) == 2
    cost, chosen = cheapest(registers[:1], 100)
    assert cost == cost_of(chosen) == 1
    assert cheapest(registers, 2) is None


def test_registers_of_several_words_bring_their_moves_along():
    form = Form((0, 1), 0, (0, 1, 2, 3), Affine())
    both = {frozenset({(0, 4), (1, 2)}): (form, (Piece(0, 4, 1), Piece(1, 2, 2)))}
    cost, chosen = cheapest([both, ways((0, 4, False), (0, 0, True))], 100)
    assert cost == 4
    assert chosen[1][1] == (Piece(0, 4, 1),)


def test_what_cannot_be_made_has_no_answer():
    assert cheapest([ways((0, 0, False)), {}], 100) is None


@pytest.mark.parametrize("seed", range(8))
def test_small_words_are_covered_in_the_cheapest_way(seed):
    import random

    rng = random.Random(seed)
    registers = [
        ways(*((0, d, rng.random() < 0.5) for d in rng.sample(range(6), 3))) for _ in range(5)
    ]
    distances = range(1, 6)
    best = float("inf")
    for size in range(6):
        for taken in combinations(distances, size):
            moves = {(0, d) for d in taken}
            options = [
                [made[0].fma is not None for way, made in r.items() if way <= moves]
                for r in registers
            ]
            if all(options):
                best = min(best, 2 * size + sum(map(min, options)))
    cost, chosen = cheapest(registers, 100)
    assert cost == cost_of(chosen) == best
