"""Exact covers of one packed word by the forms of a family.

Seen from the word, a register that reads its bits after a rotation by r occupies the form's mask turned back by r, in a
ring of 16 positions (both halves of the word alike). A set of rotations offers so many places; the cover takes every
free position once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from ladder.decode.form import Form, rotate

RING = 16
FULL = (1 << RING) - 1
#: sets of rotations are tried exhaustively up to this size, beyond it only the regular ones
EXHAUSTIVE = 4

#: how many fields defer the i-th affine map
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A field inside one word: its form (by index) and ``(rotation, lane bits read after it)``, one pair or two."""

    form: int
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WordCover:
    """A word's fields, the rotations that its left-over bits are read after, and the operations beyond one per field."""

    extra: int
    choices: tuple[Choice, ...]
    left_rotations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """A field at a place in the ring."""

    taken: int
    choice: Choice
    extra: int
    label: int


class Ring:
    """Covers words by ``forms``; ``labels[i] < kinds`` says which affine map form i defers.

    Covers with more than ``most`` different maps are left out.
    """

    def __init__(self, forms: Sequence[Form], labels: Sequence[int], most: int) -> None:
        self.forms, self.labels, self.most = tuple(forms), tuple(labels), most
        self.kinds = max(labels) + 1
        self.bits = len(self.forms[0].positions)
        self.fields = RING // self.bits

    def covers(
        self, left: tuple[int, ...], rotations: int, *, split: bool
    ) -> dict[Counts, WordCover]:
        """The cheapest cover for each outcome of deferred maps, with exactly so many rotations beside the word itself.

        Args:
            left: lane bits that fields shared with other words take from this word, one mask per field.
            rotations: number of distinct rotations.
            split: whether a field may gather its bits after two different rotations.
        """
        found: dict[Counts, WordCover] = {}
        for chosen in rotation_sets(rotations, self.bits):
            places = self._places((0, *chosen), split)
            for turns in product((0, *chosen), repeat=len(left)):
                free = FULL
                for mask, turn in zip(left, turns, strict=True):
                    free &= ~rotate(mask, -turn, RING)
                if free.bit_count() != self.fields * self.bits:
                    continue
                for counts, (extra, choices) in self._fill(free, self.fields, places, {}).items():
                    if counts not in found or extra + rotations < found[counts].extra:
                        found[counts] = WordCover(extra + rotations, choices, turns)
        return found

    def _places(self, sources: tuple[int, ...], split: bool) -> dict[int, list[_Place]]:
        """Places by their lowest ring position."""
        best: dict[tuple[int, int], _Place] = {}

        def offer(taken: int, choice: Choice, extra: int) -> None:
            label = self.labels[choice.form]
            old = best.get((taken, label))
            if old is None or extra < old.extra:
                best[taken, label] = _Place(taken, choice, extra, label)

        for i, form in enumerate(self.forms):
            for r in sources if form.mask not in BYTES else sorted({*sources, 8}):
                offer(rotate(form.mask, -r, RING), Choice(i, ((r, form.mask),)), 0)
            for low, high in halves(form.mask) if split else ():
                for r1, r2 in combinations(sources, 2):
                    for a, b in ((r1, r2), (r2, r1)):
                        x, y = rotate(low, -a, RING), rotate(high, -b, RING)
                        if not x & y:
                            offer(x | y, Choice(i, ((a, low), (b, high))), 1)
        by_lowest: dict[int, list[_Place]] = {}
        for place in best.values():
            by_lowest.setdefault(place.taken & -place.taken, []).append(place)
        return by_lowest

    def _fill(
        self,
        free: int,
        fields: int,
        places: dict[int, list[_Place]],
        memo: dict[int, dict[Counts, tuple[int, tuple[Choice, ...]]]],
    ) -> dict[Counts, tuple[int, tuple[Choice, ...]]]:
        """Ways to take every free position with so many fields, the cheapest for each outcome."""
        if fields == 0:
            return {(0,) * self.kinds: (0, ())} if free == 0 else {}
        if free in memo:
            return memo[free]
        out: dict[Counts, tuple[int, tuple[Choice, ...]]] = {}
        for place in places.get(free & -free, ()):
            if place.taken & ~free:
                continue
            for counts, (extra, tail) in self._fill(
                free & ~place.taken, fields - 1, places, memo
            ).items():
                key = (*counts[: place.label], counts[place.label] + 1, *counts[place.label + 1 :])
                if sum(map(bool, key)) > self.most:
                    continue
                if key not in out or extra + place.extra < out[key][0]:
                    out[key] = extra + place.extra, (place.choice, *tail)
        memo[free] = out
        return out


#: lane masks that one prmt moves
BYTES = (0x00FF, 0xFF00)


def halves(mask: int) -> Iterator[tuple[int, int]]:
    """Every way to part a mask in two, each once: ``0b11 -> (0b01, 0b10)``."""
    part = (mask - 1) & mask
    while part:
        if part < mask ^ part:
            yield part, mask ^ part
        part = (part - 1) & mask


def rotation_sets(size: int, bits: int) -> Iterator[tuple[int, ...]]:
    """Sets of non-zero rotations. A ring may be turned, so of all sets that are turns of each other one is tried."""
    if size > EXHAUSTIVE:
        gap = RING % bits
        for at in range(size + 1) if gap else (size,):
            yield tuple(
                sorted((bits * i + (gap if i > at else 0)) % RING for i in range(1, size + 1))
            )
        return
    for chosen in combinations(range(1, RING), size):
        sources = (0, *chosen)
        if all(sources <= tuple(sorted((r - t) % RING for r in sources)) for t in chosen):
            yield chosen
