"""Placement of an atom: every bit of its words in exactly one code, with the cheapest registers.

Words are covered one by one (:mod:`ladder.decode.ring`). Where the width does not divide 16, the bits left over in
several words, kept at the lane positions where they are wanted, join to further registers. Which deferred factors come
out together decides the accumulator classes, so placement and fragment are priced together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import ceil, comb
from operator import add

from ladder.decode.cost import issue
from ladder.decode.form import Field, Form, Piece, mask_of
from ladder.decode.fragment import classes
from ladder.decode.geometry import STEPS, WORDS
from ladder.decode.ring import BYTES, RING, Counts, Ring, WordCover
from ladder.decode.work import UNLIMITED, Work

#: different factors in one program: two for each of at most two accumulator classes
MOST_KINDS = 4
#: factors looked at in one family
MOST_LABELS = 8
#: families of so many forms are tried map by map and shared form by shared form
MANY_FORMS = 64
#: fields that gather from two rotations are tried for families of at most so many forms
SPLIT_FORMS = 2
#: and up to so many rotations
SPLIT_ROTATIONS = 4

#: for each word, ``(shared register, lane bits)``
_Parts = list[list[tuple[int, int]]]
#: the form of the registers that words share, and what each word gives to them
_Shared = tuple[Form | None, _Parts]
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
    ring: int = RING

    @property
    def words(self) -> int:
        return WORDS[self.bits]

    @property
    def left(self) -> int:
        return self.ring % self.bits

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
        return _price(self, extra, class_count)


@cache
def _price(shape: _Shape, extra: int, class_count: int) -> float:
    alu = shape.words * (shape.ring // shape.bits) + extra + shape.shared_pieces()
    return issue({"alu": alu / STEPS[shape.bits]}, class_count)


def place(
    forms: Sequence[Form],
    bits: int,
    below: float = float("inf"),
    work: Work | None = None,
    *,
    ring: int = RING,
) -> Placement | None:
    """The cheapest placement of a family, if any costs less than ``below`` cycles per step.

    Args:
        forms: the family.
        bits: width of a code.
        below: what is known already.
        work: counts the search's steps; without one it may take any number. Where it is used up, the cheapest so far is
            returned and ``work.cut`` is set.
        ring: width of a lane.
    """
    shape = _Shape(bits, ring)
    if shape.price(0, 1) >= below:
        return None
    search = _Search(forms, shape, below, work or Work(UNLIMITED))
    for rotations in range(search.fewest, ring // bits + 2):
        if not search.widen(rotations):
            break
    return search.best


def is_worth(bits: int, below: float) -> bool:
    """Whether a placement could cost less than ``below``: one operation per field is the least."""
    return _Shape(bits).price(0, 1) < below


class _Search:
    """Covers of single words by rising number of rotations, and the cheapest way to put them together so far."""

    def __init__(self, forms: Sequence[Form], shape: _Shape, below: float, work: Work) -> None:
        affines = sorted({f.deferred for f in forms}, key=lambda a: (-a.alpha, a.beta))
        del affines[MOST_LABELS:]
        self.forms = tuple(f for f in forms if f.deferred in affines)
        self.labels = tuple(affines.index(f.deferred) for f in self.forms)
        self.shape, self.below, self.work = shape, below, work
        self.ring = Ring(self.forms, self.labels, shape.ring)
        self.fewest = _fewest_rotations(self.forms, shape)
        self.best: Placement | None = None
        shared: Sequence[Form | None] = self.forms if shape.left else (None,)
        #: operations of the cheapest known cover of a word, by the factors that it defers, as bits
        self.least: dict[int, int] = {}
        self.all_kinds = _choices(self.ring.kinds)
        self.asked: set[tuple[_Left, int, frozenset[int]]] = set()
        self.shared: list[_Shared] = [
            (form, shape.slices(form) if form else [[]] * shape.words) for form in shared
        ]
        self.known: dict[_Left, dict[Counts, WordCover]] = {
            _left(part): {} for _, parts in self.shared for part in parts
        }

    def widen(self, rotations: int) -> bool:
        """Try covers with so many rotations; False where they can no longer pay, or where the work is used up."""
        if not self._allowed(rotations, self.all_kinds):
            return False
        if len(self.forms) < MANY_FORMS:
            self._widen(rotations, self.shared, self.all_kinds)
        else:
            # With many forms the least that words can cost is mostly reached by the first few, and all others excluded.
            alone = [[kinds] for kinds in self.all_kinds if len(kinds) == 1]
            for choices in (*alone, self.all_kinds[: pairs(self.ring.kinds)], self.all_kinds):
                for shared in self.shared:
                    self._widen(rotations, [shared], choices)
        return self.work.goes_on()

    def _widen(
        self, rotations: int, shared: Sequence[_Shared], choices: Sequence[frozenset[int]]
    ) -> None:
        """Try covers for some forms of the shared registers, with the factors of one of the choices."""
        allowed = self._allowed(rotations, choices)
        if not allowed:
            return
        split = len(self.forms) <= SPLIT_FORMS and rotations <= SPLIT_ROTATIONS
        for left in dict.fromkeys(_left(part) for _, parts in shared for part in parts):
            covers = self.known[left]
            found = self._covers(left, rotations, allowed, split)
            for counts, cover in found.items():
                if counts not in covers or cover.extra < covers[counts].extra:
                    covers[counts] = cover
                    support = sum(1 << i for i, n in enumerate(counts) if n)
                    self.least[support] = min(cover.extra, self.least.get(support, cover.extra))
        self._combine(shared, choices)

    def _covers(
        self, left: _Left, rotations: int, allowed: frozenset[int], split: bool
    ) -> dict[Counts, WordCover]:
        """Covers of one word, once only for the same request."""
        if (left, rotations, allowed) in self.asked:
            return {}
        self.asked.add((left, rotations, allowed))
        return self.ring.covers(left, rotations, allowed, self.work, split=split)

    def _allowed(self, rotations: int, choices: Sequence[frozenset[int]]) -> frozenset[int]:
        """Sets of factors, as bits, that a word with so many rotations may defer for the program to cost less than known.

        All words of a program defer factors of one of the choices. There each other word needs at least the operations of
        its cheapest known cover, or as many rotations; and the number of factors bounds the classes from below.
        """
        if self.shape.price(0, 1) >= self.below:
            return frozenset()
        allowed: set[int] = set()
        for chosen in choices:
            kinds = sum(1 << i for i in chosen)
            known_extra = [extra for support, extra in self.least.items() if not support & ~kinds]
            others = (self.shape.words - 1) * min([rotations, *known_extra])
            if self.shape.price(others + rotations, ceil(len(chosen) / 2)) < self.below:
                allowed.update(_subsets(kinds))
        return frozenset(allowed)

    def _combine(self, shared: Sequence[_Shared], choices: Sequence[frozenset[int]]) -> None:
        """Put words together for every choice of few maps and of the form of the shared registers."""
        for form, parts in shared:
            words = [_by_support(self.known[_left(part)]) for part in parts]
            label = self.labels[self.forms.index(form)] if form else None
            for kinds in choices:
                if label is not None and label not in kinds:
                    continue
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
            if self.shape.price(bound, ceil(kinds / 2)) >= self.below or not self.work.goes_on():
                return
            self.work.spend(len(totals) * len(covers))
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


def _subsets(kinds: int) -> Iterator[int]:
    """Every subset of a set given as bits, itself and the empty one too."""
    part = kinds
    while part:
        yield part
        part = (part - 1) & kinds
    yield 0


def _choices(kinds: int) -> list[frozenset[int]]:
    """Sets of at most MOST_KINDS maps, small ones first."""
    return [
        frozenset(chosen)
        for size in range(1, min(MOST_KINDS, kinds) + 1)
        for chosen in combinations(range(kinds), size)
    ]


def pairs(kinds: int) -> int:
    """How many of the choices have one or two maps, which one accumulator class may serve."""
    return kinds + comb(kinds, 2)


def _fewest_rotations(forms: Sequence[Form], shape: _Shape) -> int:
    """Rotations without which a word cannot be covered: a source serves at most so many fields at once."""
    masks = {f.mask for f in forms}
    full = (1 << shape.ring) - 1
    common = full
    for mask in masks:
        common &= mask
    at_once = 1 if common else _packing(sorted(masks), shape.bits, full)
    moved = len(masks & set(BYTES)) if shape.ring == RING else 0  # a byte is moved by its own prmt
    return max(0, ceil((shape.ring // shape.bits - moved) / at_once) - 1)


def _packing(masks: Sequence[int], bits: int, full: int) -> int:
    """Most masks of ``bits`` bits that are pairwise disjoint: free positions are taken or left out from below."""
    by_lowest: dict[int, list[int]] = {}
    for mask in masks:
        by_lowest.setdefault(mask & -mask, []).append(mask)
    memo: dict[int, int] = {}

    def most(free: int) -> int:
        limit = free.bit_count() // bits
        if not limit:
            return 0
        if free not in memo:
            lowest, best = free & -free, 0
            for mask in by_lowest.get(lowest, ()):
                if not mask & ~free:
                    best = max(best, 1 + most(free & ~mask))
                if best == limit:
                    break
            memo[free] = best if best == limit else max(best, most(free & ~lowest))
        return memo[free]

    return most(full)


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
