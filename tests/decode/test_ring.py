from __future__ import annotations

from itertools import combinations

import pytest

from ladder.decode.form import Form, mask_of, rotate
from ladder.decode.program import Affine
from ladder.decode.ring import FULL, RING, Ring, halves, rotation_sets
from ladder.decode.work import UNLIMITED, Work


def form(*positions):
    return Form(positions, 0, (), Affine())


FIELDS4 = [form(p, p + 1, p + 2, p + 3) for p in range(0, 7, 2)]
SPLICE = [form(9, 10, 11, 15)]


def every(kinds):
    """All sets of maps, as bits."""
    return frozenset(range(1 << kinds))


def taken(ring, cover, left):
    """Ring positions that a cover reads, with multiplicity."""
    out = []
    for choice in cover.choices:
        assert sum(mask for _, mask in choice.parts) == ring.forms[choice.form].mask
        for rotation, mask in choice.parts:
            out += [(p - rotation) % RING for p in range(RING) if mask >> p & 1]
    for rotation, mask in zip(cover.left_rotations, left, strict=True):
        out += [(p - rotation) % RING for p in range(RING) if mask >> p & 1]
    return sorted(out)


def extra(ring, cover):
    """Rotations and second pieces of a cover, as the emitter will need them."""
    rotations = {
        r
        for c in cover.choices
        for r, mask in c.parts
        if r and not (r == 8 and mask in (0xFF, 0xFF00))
    }
    rotations |= set(cover.left_rotations) - {0}
    return len(rotations) + sum(len(c.parts) - 1 for c in cover.choices)


@pytest.mark.parametrize(
    "forms, left, rotations, split",
    [
        (FIELDS4, (), 1, False),
        (FIELDS4, (), 2, False),
        (SPLICE, (), 4, True),
        ([form(0, 1, 2), form(3, 4, 5), form(6, 7, 8)], (1 << 8,), 2, False),
        ([form(*range(6)), form(*range(4, 10))], (0b110000, 0b11), 2, False),
        ([form(*range(8))], (), 0, False),
        ([form(7, 8, 9, 10, 11, 12, 13, 15)], (), 2, True),
    ],
)
def test_covers_take_every_bit_once(forms, left, rotations, split):
    ring = Ring(forms, list(range(len(forms))))
    covers = ring.covers(left, rotations, every(len(forms)), Work(UNLIMITED), split=split)
    assert covers
    for counts, cover in covers.items():
        assert taken(ring, cover, left) == list(range(RING))
        assert counts == tuple(sum(c.form == i for c in cover.choices) for i in range(len(forms)))
        assert extra(ring, cover) <= cover.extra


def test_no_cover_with_fewer_rotations_is_missed():
    """Brute force: every choice of four places for the exponent splice of fp4, each after one rotation."""
    places = [rotate(SPLICE[0].mask, -r, RING) for r in range(RING)]
    assert not any(sum(four) == FULL and len(set(four)) == 4 for four in combinations(places, 4))
    ring, work = Ring(SPLICE, [0]), Work(UNLIMITED)
    assert not any(ring.covers((), n, every(1), work, split=False) for n in range(4))
    found = [ring.covers((), n, every(1), work, split=True) for n in range(5)]
    cheapest = min(c.extra for covers in found for c in covers.values())
    assert cheapest == 6  # ten operations for four registers


def test_only_allowed_sets_of_maps_are_deferred():
    forms, work = [form(p, p + 1) for p in range(4)], Work(UNLIMITED)
    ring = Ring(forms, [0, 1, 2, 3])
    free = ring.covers((), 3, every(4), work, split=False)
    pairs = frozenset(s for s in range(16) if s.bit_count() <= 2 and s not in (0b0011, 0b1100))
    found = ring.covers((), 3, pairs, work, split=False)
    fits = {c: w.extra for c, w in free.items() if sum(1 << i for i in range(4) if c[i]) in pairs}
    assert 0 < len(found) < len(free)
    assert {c: w.extra for c, w in found.items()} == fits


def test_covers_end_with_the_work():
    forms = [form(p, p + 1) for p in range(8)]
    ring, full, little = Ring(forms, [0] * 8), Work(UNLIMITED), Work(20)
    assert ring.covers((), 0, every(1), full, split=False) == {}
    assert ring.covers((), 1, every(1), full, split=False)
    assert not full.cut
    assert ring.covers((), 1, every(1), little, split=False) == {}
    assert little.cut


def test_masks_are_halved_in_every_way_once():
    parts = list(halves(0b10110))
    assert len({frozenset(p) for p in parts}) == len(parts) == 3
    assert all(a | b == 0b10110 and not a & b and a and b for a, b in parts)


def test_of_equivalent_rotations_one_is_tried():
    sets = list(rotation_sets(2, 4))
    seen = set()
    for chosen in combinations(range(1, RING), 2):
        turns = {tuple(sorted((r - t) % RING for r in (0, *chosen))) for t in (0, *chosen)}
        assert any((0, *s) in turns for s in sets)
        seen.add(min(turns))
    assert len(sets) == len(seen)


def test_masks_and_rotations():
    assert mask_of((0, 2, 5)) == 0b100101
    assert rotate(0x8001, 1, 16) == 0x0003
    assert rotate(0x8001, -1, 16) == 0xC000
