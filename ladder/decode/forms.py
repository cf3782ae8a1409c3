"""Every way to hold a code in a 16-bit lane with one mask: the exhaustive search.

A lane is ``(word & positions) | constant``. For each set of positions and each constant on the other bits, the 2^b lane
values either are an affine image of the declared value set or they are not; which code gets which pattern is free,
because weights are packed offline. The search knows no format: it finds two's complement behind a magic exponent, the
exponent splice of small floats, sign and magnitude, and forms of codebooks that nobody wrote down.

Two facts make it quick. Lanes of one sign grow with their bit pattern, so lane values come sorted; and two interior
values of the normalised set reject nearly every candidate before the rest is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt

from ladder.decode.exact import SIGN, Exact
from ladder.decode.form import Form
from ladder.decode.holes import (
    FREE_HOLES,
    LANE_WORK,
    SHORT,
    Ends,
    candidates,
    first_ends,
    more_ends,
)
from ladder.decode.lanes import FloatArray, LaneFormat
from ladder.decode.values import ValueSet
from ladder.decode.work import UNLIMITED, Work

Index = npt.NDArray[np.int64]

#: candidates per chunk of the search, bounds its memory
CHUNK = 1 << 19
TOLERANCE = 1e-9
#: relative error of a few operations in float64, with room
ROUNDING = 2.0**-48
#: constants kept for each set of positions, by each of two orders
CONSTANTS = 8
#: lanes that could be looked at while one match is weighed against the others
THIN_WORK = 12
#: forms that a stage may hand on where half the codes or more have no value: fewer constants are kept then, at least one
MOST_FORMS = 8192


@dataclass(frozen=True, slots=True)
class Grid:
    """Candidates of one chunk: ``positions[i]`` with every constant; flat arrays index ``(set, constant)``."""

    positions: Index
    which: Index
    constant: Index
    signed: bool
    table: FloatArray
    known: dict[int, FloatArray] = field(default_factory=dict)

    def all_lanes(self, rank: int, size: int) -> FloatArray:
        """:meth:`lane` for all candidates, worked out once."""
        if rank not in self.known:
            self.known[rank] = self.lane(rank, size)
        return self.known[rank]

    def lane(self, rank: int, size: int, pick: Index | None = None) -> FloatArray:
        """The ``rank``-th smallest of the ``size`` lane values, for the candidates ``pick``, or for all."""
        if not self.signed:
            return self._lane(rank, pick)
        half = size // 2
        magnitude = half - 1 - rank if rank < half else rank - half
        value = self._lane(magnitude, pick)
        return -value if rank < half else value

    def _lane(self, stored: int, pick: Index | None) -> FloatArray:
        """Lane values of stored bits, without a sign."""
        spread = self._spread(stored)
        if pick is None:
            sets = self.constant.reshape(len(spread), -1) | spread[:, None]
            return np.take(self.table, sets.reshape(-1))
        return np.take(self.table, self.constant[pick] | spread[self.which[pick]])

    def _spread(self, stored: int) -> Index:
        """Stored bits put to the positions of each set."""
        out = np.zeros(len(self.positions), np.int64)
        for bit in range(self.positions.shape[1]):
            if stored >> bit & 1:
                out |= np.int64(1) << self.positions[:, bit]
        return out


def grids(bits: int, fmt: LaneFormat) -> Iterator[Grid]:
    """Every set of ``bits`` positions with every constant. The constant's sign bit stays 0: 1 would only negate alpha."""
    for signed in (False, True):
        width = bits - signed
        sets = np.array(list(combinations(range(SIGN), width)), np.int64).reshape(
            comb(SIGN, width), width
        )
        free = SIGN - width
        each = max(1, CHUNK >> free)
        for start in range(0, len(sets), each):
            part = sets[start : start + each]
            rest = np.array(
                [[p for p in range(SIGN) if p not in row] for row in part.tolist()], np.int64
            )
            rest = rest.reshape(len(part), free)
            index = np.arange(1 << free)
            constant = np.zeros((len(part), 1 << free), np.int64)
            for bit in range(free):
                constant |= (index >> bit & 1)[None, :] << rest[:, bit, None]
            which = np.repeat(np.arange(len(part)), 1 << free)
            yield Grid(part, which, constant.reshape(-1), signed, fmt.table)


@dataclass(frozen=True, slots=True)
class Hit:
    """A candidate whose lane values match the set in floating point: to be checked exactly.

    ``ends`` counts the lanes below the smallest and above the largest value; ``mirrored`` says that the lanes match the
    negated set, so that the constant's sign bit has to be set.
    """

    positions: tuple[int, ...]
    constant: int
    ends: Ends
    mirrored: bool


def search(values: ValueSet, fmt: LaneFormat) -> list[Form]:
    """Every form of a value set, without fma; per set of positions the few constants with the smallest beta.

    Forms come with ``value = alpha*lane + beta``, alpha > 0, exact. Where many codes have no value this is the first
    stage only (:mod:`ladder.decode.holes`).
    """
    find = _Search.of(values, first_ends(values.missing))
    hits: dict[Hit, None] = {}
    if find is None:
        return []
    for grid in grids(values.bits, fmt):
        kept = list(find.near(grid, Work(UNLIMITED)))
        if find.most < CONSTANTS:  # few values: the best of all ways, as in the second stage
            kept = [_Near.pool(kept).thin(grid, find.most)]
        for near in kept:
            hits.update((hit, None) for hit in near.hits(grid, find.ways))
    return _exact(hits, values, fmt)


def search_more(values: ValueSet, fmt: LaneFormat) -> tuple[list[Form], bool]:
    """Forms of the second stage, and whether no way to part the holes was left out for the work it would be.

    With so many holes many sets of positions have forms without end, so the best of all ways are kept, not those of each.
    """
    find = _Search.of(values, more_ends(values.missing))
    hits: dict[Hit, None] = {}
    exhausted, limit = True, LANE_WORK[values.bits > SHORT]
    if find is None:
        return [], True
    for grid in grids(values.bits, fmt):
        work = Work(limit * len(grid.constant) // candidates(values.bits))
        pool = _Near.pool(list(find.near(grid, work))).thin(grid, find.most)
        hits.update((hit, None) for hit in pool.hits(grid, find.ways))
        exhausted = exhausted and not work.cut
    return _exact(hits, values, fmt), exhausted


def _exact(hits: Iterable[Hit], values: ValueSet, fmt: LaneFormat) -> list[Form]:
    """The hits that are forms in rational numbers."""
    exact = Exact.of(values, fmt)
    forms = (exact.form(h.positions, h.constant, h.ends, mirrored=h.mirrored) for h in hits)
    return [form for form in forms if form is not None]


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for in every grid: ``values`` float64 in units of 2^``unit``, ascending, with the ``ways`` to part holes.

    ``most`` constants are kept for each set of positions, way and order. With ``strict``, those whose deferred map no
    accumulator can apply are dropped before: few values with many holes match nearly every lane.
    """

    size: int
    values: FloatArray
    unit: float
    ways: Sequence[Ends]
    most: int
    strict: bool

    @classmethod
    def of(cls, values: ValueSet, ways: Sequence[Ends]) -> _Search | None:
        """The search, or None where there is nothing to find: no way, a single value, or values that repeat.

        Lanes of one constant differ but for plus and minus zero, so one value may stand twice and no other.
        """
        repeated = len(values.values) - len(set(values.values))
        if not ways or values.values[0] == values.values[-1] or repeated > 1:
            return None
        largest = values.largest  # so that nothing overflows
        unit = math.log2(largest.numerator) - math.log2(largest.denominator)
        scaled = np.array([float(x / largest) for x in values.values])
        sets = comb(SIGN, values.bits) + comb(SIGN, values.bits - 1)
        strict = values.missing > FREE_HOLES
        few = strict and 2 * len(values.codes) <= values.size
        most = max(1, min(CONSTANTS, MOST_FORMS // (2 * sets))) if few else CONSTANTS
        return cls(values.size, scaled, unit, ways, most, strict)

    def near(self, grid: Grid, work: Work) -> Iterator[_Near]:
        """The best candidates of a grid for each way, also of the negated set where that is another."""
        v = self.values
        goal = (v - v[0]) / (v[-1] - v[0])
        mirror = 1 - goal[::-1]
        lopsided = not np.allclose(goal, mirror, rtol=0, atol=TOLERANCE)
        for way, ends in enumerate(self.ways):
            if not work.goes_on():
                return
            found = _matches(grid, goal, self.size, ends, work)
            yield self._near(found, v, 2 * way).thin(grid, self.most)
            if lopsided and not grid.signed:
                found = _matches(grid, mirror, self.size, ends, work)
                yield self._near(found, -v[::-1], 2 * way + 1).thin(grid, self.most)

    def _near(self, found: tuple[Index, FloatArray, FloatArray], v: FloatArray, way: int) -> _Near:
        """Matches with their deferred maps."""
        pick, first, last = found
        alpha = (v[-1] - v[0]) / (last - first)
        moved = alpha * first
        beta = v[0] - moved
        if self.strict:
            odd = 2 ** (self.unit % 1)  # a power of two changes no digit
            error = ROUNDING * odd * (np.abs(v[0]) + np.abs(moved))
            kept = _few_digits(alpha * odd, ROUNDING * odd * alpha) & _few_digits(beta * odd, error)
            pick, alpha, beta = pick[kept], alpha[kept], beta[kept]
        beta = np.where(np.abs(beta) <= TOLERANCE, 0.0, np.abs(beta))
        return _Near(pick, np.abs(np.log2(alpha) + self.unit), beta, np.full(len(pick), way))


def _matches(
    grid: Grid, goal: FloatArray, size: int, ends: Ends, work: Work
) -> tuple[Index, FloatArray, FloatArray]:
    """Candidates whose normalised lane values equal ``goal`` (ascending, 0 to 1), their smallest and largest lane."""
    low, high = ends
    inside = size - len(goal) - low - high
    first, last = grid.all_lanes(low, size), grid.all_lanes(size - 1 - high, size)
    with np.errstate(over="ignore", invalid="ignore"):
        span = last - first
    fits = (span > 0) & (span < np.inf)
    work.spend(len(grid.constant))
    n = len(goal)
    turns = [k for k in dict.fromkeys((1, n - 2, n // 2, *range(1, n - 1))) if 0 < k < n - 1]
    if turns:  # rejects nearly all, so the arrays of all candidates are read as they lie
        work.spend(np.count_nonzero(fits) * (inside + 1))
        ranks = range(low + turns[0], low + turns[0] + inside + 1)
        fits &= _near_goal((grid.all_lanes(r, size) for r in ranks), first, span, goal[turns[0]])
    pick = np.flatnonzero(fits)
    first, span = first[pick], span[pick]
    for k in turns[1:]:
        if not len(pick):
            break
        work.spend(len(pick) * (inside + 1))
        ranks = range(low + k, low + k + inside + 1)
        near = _near_goal((grid.lane(r, size, pick) for r in ranks), first, span, goal[k])
        pick, first, span = pick[near], first[near], span[near]
    work.spend(THIN_WORK * len(pick))
    return pick, first, last[pick]


def _near_goal(
    lanes: Iterable[FloatArray], first: FloatArray, span: FloatArray, goal: float
) -> npt.NDArray[np.bool_]:
    """Whether one of some lanes divides the way from the first to the last lane as ``goal`` says."""
    near = np.zeros(len(first), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        target = span * goal
        limit = target * TOLERANCE
        for lane in lanes:
            gap = lane - first
            gap -= target
            near |= np.abs(gap, out=gap) <= limit
    return near


@dataclass(frozen=True, slots=True)
class _Near:
    """Candidates of one grid that match in floating point, as arrays of one length.

    ``pick`` is the candidate, ``distance`` how far alpha is from 1 (in powers of two), ``beta`` its magnitude, ``way`` twice
    the index of the way to part the holes, plus 1 where the lanes match the negated set.
    """

    pick: Index
    distance: FloatArray
    beta: FloatArray
    way: Index

    @classmethod
    def pool(cls, parts: Sequence[_Near]) -> _Near:
        """All candidates of several."""
        return cls(
            np.concatenate([part.pick for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.beta for part in parts]),
            np.concatenate([part.way for part in parts]),
        )

    def only(self, kept: npt.NDArray[np.bool_]) -> _Near:
        """Those for which ``kept`` holds."""
        return _Near(self.pick[kept], self.distance[kept], self.beta[kept], self.way[kept])

    def thin(self, grid: Grid, most: int) -> _Near:
        """Per set of positions, ``most`` constants with alpha nearest to 1 and as many with the smallest beta."""
        which = grid.which[self.pick]
        keys = ((self.distance, self.beta), (self.beta, self.distance))
        kept = np.zeros(len(self.pick), bool)
        for first, second in keys:
            some = np.flatnonzero(first <= _limit(first, which, len(grid.positions), most)[which])
            order = some[np.lexsort((second[some], first[some], which[some]))]
            rank = np.arange(len(order)) - np.searchsorted(which[order], which[order])
            kept[order[rank < most]] = True
        return self.only(kept)

    def hits(self, grid: Grid, ways: Sequence[Ends]) -> Iterator[Hit]:
        """The candidates as values, to be checked exactly."""
        sign = (SIGN,) if grid.signed else ()
        positions = grid.positions[grid.which[self.pick]].tolist()
        constants = grid.constant[self.pick].tolist()
        for places, constant, way in zip(positions, constants, self.way.tolist(), strict=True):
            yield Hit((*places, *sign), constant, ways[way // 2], mirrored=bool(way % 2))


def _limit(key: FloatArray, which: Index, sets: int, most: int) -> FloatArray:
    """``float64[sets]``: the ``most``-th smallest key of each set, infinity where it has fewer."""
    if len(key) <= 2 * most * sets:  # sorting them all is as quick
        return np.full(sets, np.inf)
    out = np.full(sets, np.inf)
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(sets + 1))
    for i, (a, b) in enumerate(pairwise(ends.tolist())):
        if b - a > most:
            out[i] = np.partition(key[order[a:b]], most - 1)[most - 1]
    return out


def _few_digits(x: FloatArray, error: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether x has at most the 24 digits of a float32, whatever its exponent, within an error."""
    digits, exponent = np.frexp(x)
    digits *= 1 << 24
    near: npt.NDArray[np.bool_] = np.abs(digits - np.rint(digits)) <= np.ldexp(error, 24 - exponent)
    return near
