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
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from ladder.decode.form import Form
from ladder.decode.lanes import FloatArray, LaneFormat
from ladder.decode.program import Affine
from ladder.decode.values import ValueSet

Index = npt.NDArray[np.int64]

SIGN = 15
#: holes (codes without a value) are searched at every place up to this many, beyond it at the ends only
FREE_HOLES = 3
#: candidates per chunk of the search, bounds its memory
CHUNK = 1 << 19
TOLERANCE = 1e-9
#: constants kept for each set of positions, by each of two orders
CONSTANTS = 8


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
            self.known[rank] = self.lane(rank, size, slice(None))
        return self.known[rank]

    def lane(self, rank: int, size: int, pick: Index | slice) -> FloatArray:
        """The ``rank``-th smallest of the ``size`` lane values, for the candidates ``pick``."""
        if not self.signed:
            return np.take(self.table, self.constant[pick] | self._spread(rank)[self.which[pick]])
        half = size // 2
        magnitude = half - 1 - rank if rank < half else rank - half
        value = np.take(self.table, self.constant[pick] | self._spread(magnitude)[self.which[pick]])
        return -value if rank < half else value

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


def hole_ends(missing: int) -> list[tuple[int, int]]:
    """How many of the missing values lie below the smallest and above the largest value; the others are holes inside."""
    if missing <= FREE_HOLES:
        return [(low, high) for low in range(missing + 1) for high in range(missing + 1 - low)]
    half = missing // 2
    return [(half, missing - half), (0, missing), (missing, 0), (missing - half, half)]


@dataclass(frozen=True, slots=True)
class Hit:
    """A candidate whose lane values match the set in floating point: to be checked exactly.

    ``ends`` counts the lanes below the smallest and above the largest value; ``mirrored`` says that the lanes match the
    negated set, so that the constant's sign bit has to be set.
    """

    positions: tuple[int, ...]
    constant: int
    ends: tuple[int, int]
    mirrored: bool


def search(values: ValueSet, fmt: LaneFormat) -> list[Form]:
    """Every form of a value set, without fma; per set of positions the few constants with the smallest beta.

    Forms come with ``value = alpha*lane + beta``, alpha > 0, exact.
    """
    if values.values[0] == values.values[-1]:
        return []
    v = np.array([float(x / values.largest) for x in values.values])  # so that nothing overflows
    goal = (v - v[0]) / (v[-1] - v[0])
    mirror = 1 - goal[::-1]
    lopsided = not np.allclose(goal, mirror, rtol=0, atol=TOLERANCE)
    unit = math.log2(values.largest.numerator) - math.log2(values.largest.denominator)
    hits: dict[Hit, None] = {}
    for grid in grids(values.bits, fmt):
        for ends in hole_ends(values.missing):
            found = _thin(grid, _matches(grid, goal, values.size, ends), v, unit)
            hits.update((Hit(*hit, ends, mirrored=False), None) for hit in found)
            if lopsided and not grid.signed:
                found = _thin(grid, _matches(grid, mirror, values.size, ends), -v[::-1], unit)
                hits.update((Hit(*hit, ends, mirrored=True), None) for hit in found)
    forms = (exact_form(hit, values, fmt) for hit in hits)
    return [form for form in forms if form is not None]


def _matches(
    grid: Grid, goal: FloatArray, size: int, ends: tuple[int, int]
) -> tuple[Index, FloatArray, FloatArray]:
    """Candidates whose normalised lane values equal ``goal`` (ascending, 0 to 1), their smallest and largest lane."""
    low, high = ends
    inside = size - len(goal) - low - high
    first, last = grid.all_lanes(low, size), grid.all_lanes(size - 1 - high, size)
    pick = np.flatnonzero((np.abs(first) < np.inf) & (np.abs(last) < np.inf) & (last > first))
    first, last = first[pick], last[pick]
    n = len(goal)
    for turn, k in enumerate(dict.fromkeys((1, n - 2, n // 2, *range(1, n - 1)))):
        if not 0 < k < n - 1 or not len(pick):
            continue
        near = np.zeros(len(pick), bool)
        for hole in range(inside + 1):
            rank = low + k + hole
            x = grid.lane(rank, size, pick) if turn else grid.all_lanes(rank, size)[pick]
            with np.errstate(over="ignore", invalid="ignore"):
                near |= np.abs((x - first) / (last - first) - goal[k]) <= TOLERANCE * goal[k]
        pick, first, last = pick[near], first[near], last[near]
    return pick, first, last


def _thin(
    grid: Grid,
    found: tuple[Index, FloatArray, FloatArray],
    v: FloatArray,
    unit: float,
) -> list[tuple[tuple[int, ...], int]]:
    """Per set of positions, the constants with the smallest beta and those with alpha nearest to 1.

    ``v`` is in units of 2^unit.
    """
    pick, first, last = found
    alpha = (v[-1] - v[0]) / (last - first)
    beta = v[0] - alpha * first
    which = grid.which[pick]
    beta = np.where(np.abs(beta) <= TOLERANCE, 0.0, np.abs(beta))
    distance = np.abs(np.log2(alpha) + unit)
    kept = np.zeros(len(pick), bool)
    for keys in ((distance, beta, which), (beta, distance, which)):
        order = np.lexsort(keys)
        rank = np.arange(len(order)) - np.searchsorted(which[order], which[order])
        kept[order[rank < CONSTANTS]] = True
    best = pick[kept]
    sign = (SIGN,) if grid.signed else ()
    return [
        ((*positions, *sign), constant)
        for positions, constant in zip(
            map(tuple, grid.positions[grid.which[best]].tolist()),
            grid.constant[best].tolist(),
            strict=True,
        )
    ]


def exact_form(hit: Hit, values: ValueSet, fmt: LaneFormat) -> Form | None:
    """The form of a hit, checked in rational numbers, or None where floating point was wrong."""
    constant = hit.constant | (1 << SIGN if hit.mirrored else 0)
    lanes = [float(fmt.table[constant | _put(hit.positions, s)]) for s in range(values.size)]
    order = list(range(values.size))
    if hit.positions[-1] == SIGN:
        half = values.size // 2
        order = order[: half - 1 : -1] + order[:half]
    low, high = hit.ends
    if hit.mirrored:
        order.reverse()
        low, high = high, low
    ranked = order[low : values.size - high]
    first, last = Fraction(lanes[ranked[0]]), Fraction(lanes[ranked[-1]])
    alpha = (values.values[-1] - values.values[0]) / (last - first)
    beta = values.values[0] - alpha * first
    stored = _assign(values, [(s, alpha * Fraction(lanes[s]) + beta) for s in ranked])
    if stored is None:
        return None
    carried = _carry(values, stored, lanes)
    return Form(
        hit.positions,
        constant,
        _complete(stored, values.size),
        Affine(alpha, beta),
        carried=carried,
    )


def _assign(values: ValueSet, lanes: list[tuple[int, Fraction]]) -> dict[int, int] | None:
    """``code -> stored bits`` of equal value, both lists ascending; None where some value finds no lane."""
    stored: dict[int, int] = {}
    at = 0
    for code, value in zip(values.codes, values.values, strict=True):
        while at < len(lanes) and lanes[at][1] < value:
            at += 1
        if at == len(lanes) or lanes[at][1] != value:
            return None
        stored[code] = lanes[at][0]
        at += 1
    return stored


def _carry(values: ValueSet, stored: dict[int, int], lanes: list[float]) -> tuple[int, ...]:
    """Give NaN and infinite codes lanes of their own kind where some are left, their own code first."""
    free = [s for s in range(values.size) if s not in set(stored.values())]
    carried = []
    for code, value in values.special:
        same = [s for s in free if lanes[s] == value or (np.isnan(lanes[s]) and np.isnan(value))]
        if same:
            s = code if code in same else same[0]
            stored[code] = s
            free.remove(s)
            carried.append(code)
    return tuple(carried)


def _complete(stored: dict[int, int], size: int) -> tuple[int, ...]:
    """A permutation: codes without a lane get the patterns that are left."""
    taken = set(stored.values())
    left = iter([s for s in range(size) if s not in taken])
    return tuple(stored[c] if c in stored else next(left) for c in range(size))


def _put(positions: tuple[int, ...], stored: int) -> int:
    return sum(1 << p for i, p in enumerate(positions) if stored >> i & 1)
