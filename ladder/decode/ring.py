"""Exact covers of one packed word by the forms of a family.

Seen from the word, a register that reads its bits after a rotation by r occupies the form's mask turned back by r, in a
ring of 16 positions (both halves of the word alike), of 8 (its four bytes alike) or of 4 (its eight nibbles alike). A set of rotations offers so many places; the cover takes every
free position once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any

from ladder.decode.form import Form, rotate
from ladder.decode.work import Work

RING = 16
FULL = (1 << RING) - 1
#: sets of rotations are tried exhaustively up to this size, beyond it only the regular ones
EXHAUSTIVE = 4

#: how many fields defer the i-th affine map
Counts = tuple[int, ...]
#: fields as a chain: ``(first, (second, (.., ())))``
_Chain = tuple[Any, ...]
#: the cheapest way for each outcome: (operations beyond one per field, fields)
_Ways = dict[int, tuple[int, _Chain]]
#: bits of a count of fields inside an outcome: a word has at most 16
COUNT_BITS = 5


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
    """Covers words by ``forms``; ``labels[i] < kinds`` says which affine map form i defers."""

    def __init__(self, forms: Sequence[Form], labels: Sequence[int], size: int = RING) -> None:
        self.forms, self.labels = tuple(forms), tuple(labels)
        self.size, self.full = size, (1 << size) - 1
        self.masks = tuple(form.mask for form in self.forms)
        self.kinds = max(labels) + 1
        self.bits = len(self.forms[0].positions)
        self.fields = size // self.bits

    def moves_bytes(self, mask: int) -> bool:
        """Whether one prmt brings a lane's mask from elsewhere in the lane: it is one of its two bytes."""
        return self.size == RING and mask in BYTES

    def covers(
        self,
        left: tuple[int, ...],
        rotations: int,
        allowed: frozenset[int],
        work: Work,
        *,
        split: bool,
    ) -> dict[Counts, WordCover]:
        """The cheapest cover for each outcome of deferred maps, with exactly so many rotations beside the word itself.

        Args:
            left: lane bits that fields shared with other words take from this word, one mask per field.
            rotations: number of distinct rotations.
            allowed: sets of maps, as bits, that a word may defer together; with a set its subsets.
            work: counts places tried; once it is used up, further sets of rotations are left out.
            split: whether a field may gather its bits after two different rotations.
        """
        found: dict[Counts, WordCover] = {}
        for chosen in rotation_sets(rotations, self.bits, self.size):
            if not work.goes_on():
                return found
            places = self._places((0, *chosen), allowed, split)
            work.spend(len(places))
            for turns in product((0, *chosen), repeat=len(left)):
                free = self.full
                for mask, turn in zip(left, turns, strict=True):
                    free &= ~rotate(mask, -turn, self.size)
                if free.bit_count() != self.fields * self.bits:
                    continue
                if not work.goes_on():
                    return found
                fill = _Fill(places, self.kinds, allowed, work)
                for counts, (extra, choices) in fill.ways(free, self.fields).items():
                    if counts not in found or extra + rotations < found[counts].extra:
                        found[counts] = WordCover(extra + rotations, choices, turns)
        return found

    def _places(
        self, sources: tuple[int, ...], allowed: frozenset[int], split: bool
    ) -> dict[int, list[_Place]]:
        """Places by their lowest ring position."""
        best: dict[tuple[int, int], _Place] = {}
        for place in self._offers(sources, allowed, split):
            key = place.taken, place.label
            if key not in best or place.extra < best[key].extra:
                best[key] = place
        by_lowest: dict[int, list[_Place]] = {}
        for place in best.values():
            by_lowest.setdefault(place.taken & -place.taken, []).append(place)
        return by_lowest

    def _offers(
        self, sources: tuple[int, ...], allowed: frozenset[int], split: bool
    ) -> Iterator[_Place]:
        """Every form after every rotation, and where ``split`` its bits after two."""
        for i, (mask, label) in enumerate(zip(self.masks, self.labels, strict=True)):
            if 1 << label not in allowed:
                continue
            for r in sources if not self.moves_bytes(mask) else sorted({*sources, 8}):
                yield _Place(rotate(mask, -r, self.size), Choice(i, ((r, mask),)), 0, label)
            for low, high in halves(mask) if split else ():
                for a, b in permutations(sources, 2):
                    x, y = rotate(low, -a, self.size), rotate(high, -b, self.size)
                    if not x & y:
                        yield _Place(x | y, Choice(i, ((a, low), (b, high))), 1, label)


class _Fill:
    """Takes free positions by places, for one set of rotations.

    An outcome is one integer: below, which maps are deferred, a bit each; above, how many fields defer each.
    """

    def __init__(
        self, places: dict[int, list[_Place]], kinds: int, allowed: frozenset[int], work: Work
    ) -> None:
        self.places, self.kinds, self.allowed, self.work = places, kinds, allowed, work
        self.support = (1 << kinds) - 1
        #: with a single map the first way without an operation beyond is as good as any
        self.single = len(allowed - {0}) == 1
        self.memo: dict[int, _Ways] = {}

    def ways(self, free: int, fields: int) -> dict[Counts, tuple[int, tuple[Choice, ...]]]:
        """Ways to take every free position with so many fields, the cheapest for each outcome."""
        out: dict[Counts, tuple[int, tuple[Choice, ...]]] = {}
        for key, (extra, chain) in self._ways(free, fields).items():
            choices = []
            while chain:
                choice, chain = chain
                choices.append(choice)
            counts = (key >> self.kinds + COUNT_BITS * i for i in range(self.kinds))
            out[tuple(n & ((1 << COUNT_BITS) - 1) for n in counts)] = extra, tuple(choices)
        return out

    def _ways(self, free: int, fields: int) -> _Ways:
        if fields == 0:
            return {} if free else {0: (0, ())}
        if free in self.memo:
            return self.memo[free]
        out: _Ways = {}
        for place in self.places.get(free & -free, ()):
            if not place.taken & ~free:
                self._take(place, self._ways(free & ~place.taken, fields - 1), out)
                if self.single and (0 in (extra for extra, _ in out.values())):
                    break
        self.memo[free] = out
        return out

    def _take(self, place: _Place, tails: _Ways, out: _Ways) -> None:
        """Put a place before the ways to take the rest."""
        self.work.spend(1 + len(tails))
        one, kind = 1 << self.kinds + COUNT_BITS * place.label, 1 << place.label
        more, choice = place.extra, place.choice
        for counts, (extra, tail) in tails.items():
            key = counts + one | kind
            if key & self.support not in self.allowed:
                continue
            if key not in out or extra + more < out[key][0]:
                out[key] = extra + more, (choice, tail)


#: lane masks that one prmt moves
BYTES = (0x00FF, 0xFF00)


def halves(mask: int) -> Iterator[tuple[int, int]]:
    """Every way to part a mask in two, each once: ``0b11 -> (0b01, 0b10)``."""
    part = (mask - 1) & mask
    while part:
        if part < mask ^ part:
            yield part, mask ^ part
        part = (part - 1) & mask


def rotation_sets(size: int, bits: int, ring: int = RING) -> Iterator[tuple[int, ...]]:
    """Sets of non-zero rotations. A ring may be turned, so of all sets that are turns of each other one is tried."""
    if size > EXHAUSTIVE:
        gap = ring % bits
        for at in range(size + 1) if gap else (size,):
            yield tuple(
                sorted((bits * i + (gap if i > at else 0)) % ring for i in range(1, size + 1))
            )
        return
    for chosen in combinations(range(1, ring), size):
        sources = (0, *chosen)
        if all(sources <= tuple(sorted((r - t) % ring for r in sources)) for t in chosen):
            yield chosen
