"""Placement of an atom: every bit of its words in exactly one code, with the cheapest registers.

Words are covered one by one (:mod:`ladder.decode.ring`). Where the width does not divide 16, the bits left over in
several words, kept at the lane positions where they are wanted, join to further registers. Which deferred factors come
out together decides the accumulator classes, so placement and fragment are priced together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from operator import add

from ladder.decode.cost import issue
from ladder.decode.form import Field, Form, Piece, mask_of
from ladder.decode.fragment import classes
from ladder.decode.geometry import STEPS, WORDS
from ladder.decode.ring import BYTES, FULL, RING, Counts, Ring, WordCover

#: different factors in one program: two for each of at most two accumulator classes
MOST_KINDS = 4
#: factors looked at in one family
MOST_LABELS = 8
#: fields that gather from two rotations are tried for families of at most so many forms
SPLIT_FORMS = 2
#: and up to so many rotations
SPLIT_ROTATIONS = 4

#: for each word, ``(shared register, lane bits)``
_Parts = list[list[tuple[int, int]]]
#: the lane bits alone, of one word
_Left = tuple[int, ...]
#: sums over words: how many fields defer each map -> (operations, one cover per word), the cheapest
_Totals = dict[Counts, tuple[int, tuple[WordCover, ...]]]


@dataclass(frozen=True, slots=True)
class Placement:
    """Fields that cover an atom, and what they cost: cycles per step without an fma or a deferred zero."""

    cost: float
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """Geometry of the placement: what is left over in each word and how many registers that makes."""

    bits: int

    @property
    def words(self) -> int:
        return WORDS[self.bits]

    @property
    def left(self) -> int:
        return RING % self.bits

    @property
    def shared(self) -> int:
        """Registers made of left-over bits."""
        return self.words * self.left // self.bits

    def slices(self, form: Form) -> _Parts:
        """For each word, ``(shared register, lane bits)`` of what is left over, when all shared registers have ``form``."""
        places = [(i, p) for i in range(self.shared) for p in form.positions]
        parts = [places[j * self.left : (j + 1) * self.left] for j in range(self.words)]
        return [
            [
                (i, mask_of(tuple(p for k, p in part if k == i)))
                for i in sorted({k for k, _ in part})
            ]
            for part in parts
        ]

    def shared_pieces(self) -> int:
        """Pieces, and so operations, of all shared registers."""
        ends = {j * self.left for j in range(self.words + 1)}
        ends |= {i * self.bits for i in range(self.shared + 1)}
        return len(ends) - 1 if self.left else 0

    def price(self, extra: int, class_count: int) -> float:
        """Cycles per step with ``extra`` operations beyond one per field of the words."""
        alu = self.words * (RING // self.bits) + extra + self.shared_pieces()
        return issue({"alu": alu / STEPS[self.bits]}, class_count)


def place(forms: Sequence[Form], bits: int, below: float = float("inf")) -> Placement | None:
    """The cheapest placement of a family, if any costs less than ``below`` cycles per step."""
    search = _Search(forms, _Shape(bits), below)
    for rotations in range(search.fewest, RING // bits + 2):
        if not search.widen(rotations):
            break
    return search.best


class _Search:
    """Covers of single words by rising number of rotations, and the cheapest way to put them together so far."""

    def __init__(self, forms: Sequence[Form], shape: _Shape, below: float) -> None:
        affines = sorted({f.deferred for f in forms}, key=lambda a: (-a.alpha, a.beta))
        del affines[MOST_LABELS:]
        self.forms = tuple(f for f in forms if f.deferred in affines)
        self.labels = tuple(affines.index(f.deferred) for f in self.forms)
        self.shape, self.below = shape, below
        self.ring = Ring(self.forms, self.labels, MOST_KINDS)
        self.fewest = _fewest_rotations(self.forms, shape)
        self.best: Placement | None = None
        shared: Sequence[Form | None] = self.forms if shape.left else (None,)
        self.shared = [
            (form, shape.slices(form) if form else [[]] * shape.words) for form in shared
        ]
        self.known: dict[_Left, dict[Counts, WordCover]] = {
            _left(part): {} for _, parts in self.shared for part in parts
        }

    def widen(self, rotations: int) -> bool:
        """Try covers with so many rotations; False where they can no longer pay."""
        covers_so_far = [c.extra for known in self.known.values() for c in known.values()]
        others = (self.shape.words - 1) * min([rotations, *covers_so_far])
        if self.shape.price(others + rotations, 1) >= self.below:
            return False
        split = len(self.forms) <= SPLIT_FORMS and rotations <= SPLIT_ROTATIONS
        for left, covers in self.known.items():
            for counts, cover in self.ring.covers(left, rotations, split=split).items():
                if counts not in covers or cover.extra < covers[counts].extra:
                    covers[counts] = cover
        self._combine()
        return True

    def _combine(self) -> None:
        """Put words together for every choice of few maps and of the form of the shared registers."""
        for form, parts in self.shared:
            words = [_by_support(self.known[_left(part)]) for part in parts]
            label = self.labels[self.forms.index(form)] if form else None
            for kinds in _choices(self.ring.kinds, label):
                covers = [[c for s, cs in word.items() if s <= kinds for c in cs] for word in words]
                if all(covers):
                    self._sum(covers, form, parts, len(kinds))

    def _sum(
        self, words: list[list[_Counted]], form: Form | None, parts: _Parts, kinds: int
    ) -> None:
        """Add up the words, keeping the cheapest for each sum of counts, and price what fits a fragment."""
        least = [min(c.cover.extra for c in covers) for covers in words]
        totals: _Totals = {(0,) * self.ring.kinds: (0, ())}
        for j, covers in enumerate(words):
            bound = min(extra for extra, _ in totals.values()) + sum(least[j:])
            if self.shape.price(bound, ceil(kinds / 2)) >= self.below:
                return
            nxt: _Totals = {}
            for counts, (extra, chosen) in totals.items():
                for c in covers:
                    key = tuple(map(add, counts, c.counts))
                    if key not in nxt or extra + c.cover.extra < nxt[key][0]:
                        nxt[key] = extra + c.cover.extra, (*chosen, c.cover)
            totals = nxt
        for counts, (extra, chosen) in totals.items():
            final = list(counts)
            if form:
                final[self.labels[self.forms.index(form)]] += self.shape.shared
            need = classes(final)
            if need and self.shape.price(extra, need) < self.below:
                self.below = self.shape.price(extra, need)
                self.best = Placement(self.below, _fields(self.forms, chosen, form, parts))


def _left(part: list[tuple[int, int]]) -> _Left:
    return tuple(mask for _, mask in part)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A word's cover with its counts."""

    counts: Counts
    cover: WordCover


def _by_support(covers: dict[Counts, WordCover]) -> dict[frozenset[int], list[_Counted]]:
    """Covers by the set of maps that they defer."""
    out: dict[frozenset[int], list[_Counted]] = {}
    for counts, cover in covers.items():
        out.setdefault(frozenset(i for i, n in enumerate(counts) if n), []).append(
            _Counted(counts, cover)
        )
    return out


def _choices(kinds: int, needed: int | None) -> Iterator[frozenset[int]]:
    """Sets of at most MOST_KINDS maps that contain the needed one, small ones first."""
    for size in range(1, min(MOST_KINDS, kinds) + 1):
        for chosen in combinations(range(kinds), size):
            if needed is None or needed in chosen:
                yield frozenset(chosen)


def _fewest_rotations(forms: Sequence[Form], shape: _Shape) -> int:
    """Rotations without which a word cannot be covered: a source serves at most so many fields at once."""
    masks = {f.mask for f in forms}
    common = FULL
    for mask in masks:
        common &= mask
    at_once = 1 if common else _packing(sorted(masks))
    moved = len(masks & set(BYTES))  # a whole byte is moved by its own prmt
    return max(0, ceil((RING // shape.bits - moved) / at_once) - 1)


def _packing(masks: list[int]) -> int:
    """Most masks that are pairwise disjoint."""
    if not masks:
        return 0
    first, rest = masks[0], masks[1:]
    return max(_packing(rest), 1 + _packing([m for m in rest if not m & first]))


def _fields(
    forms: tuple[Form, ...],
    covers: tuple[WordCover, ...],
    shared: Form | None,
    parts: _Parts,
) -> tuple[Field, ...]:
    """Fields of all words, then those made of left-over bits."""
    fields = [
        Field(forms[c.form], tuple(Piece(word, r, mask) for r, mask in c.parts))
        for word, cover in enumerate(covers)
        for c in cover.choices
    ]
    if shared:
        pieces: dict[int, list[Piece]] = {}
        for word, part in enumerate(parts):
            for (i, mask), turn in zip(part, covers[word].left_rotations, strict=True):
                pieces.setdefault(i, []).append(Piece(word, turn, mask))
        fields += [Field(shared, tuple(pieces[i])) for i in sorted(pieces)]
    return tuple(fields)
