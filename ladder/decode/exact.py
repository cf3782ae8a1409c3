"""Candidates of the form search in exact numbers: what floating point found is a form, or is not.

Lanes and values are compared as integers, in units of the smallest subnormal and of the values' common denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isnan, lcm

from ladder.decode.form import Form
from ladder.decode.lanes import LaneFormat
from ladder.decode.program import Affine
from ladder.decode.values import ValueSet

#: the sign's place in a lane
SIGN = 15


@dataclass(frozen=True, slots=True)
class Exact:
    """Checks candidates for one value set; ``numerators`` are its values times ``denominator``."""

    values: ValueSet
    fmt: LaneFormat
    numerators: tuple[int, ...]
    denominator: int

    @classmethod
    def of(cls, values: ValueSet, fmt: LaneFormat) -> Exact:
        """The check for a value set."""
        denominator = lcm(*(x.denominator for x in values.values))
        return cls(values, fmt, tuple(int(x * denominator) for x in values.values), denominator)

    def form(
        self, positions: tuple[int, ...], constant: int, ends: tuple[int, int], *, mirrored: bool
    ) -> Form | None:
        """The form of a candidate, or None where floating point was wrong.

        Args:
            positions: lane bits of the stored bits.
            constant: the other bits of the lane, without its sign.
            ends: lanes below the smallest and above the largest value.
            mirrored: whether the lanes match the negated set, so that the constant's sign has to be set.
        """
        constant |= mirrored << SIGN
        size = self.values.size
        lanes = lanes_of(positions, constant)
        low, high = reversed(ends) if mirrored else ends
        ranked = _ascending(size, signed=positions[-1] == SIGN, mirrored=mirrored)[
            low : size - high
        ]
        stored = self._assign([(s, self._integer(lanes[s])) for s in ranked])
        if stored is None:
            return None
        first, last = self._integer(lanes[ranked[0]]), self._integer(lanes[ranked[-1]])
        rise = self.numerators[-1] - self.numerators[0]
        unit = 1 << (self.fmt.bias + self.fmt.mantissa - 1)
        alpha = Fraction(rise * unit, self.denominator * (last - first))
        beta = self.values.values[0] - alpha * Fraction(first, unit)
        meaning = [float(x) for x in self.fmt.table[lanes]] if self.values.special else []
        carried = carry(self.values, stored, meaning)
        return Form(
            positions, constant, complete(stored, size), Affine(alpha, beta), carried=carried
        )

    def _integer(self, pattern: int) -> int:
        """A finite lane in units of the smallest subnormal."""
        e = pattern >> self.fmt.mantissa & ((1 << self.fmt.exponent) - 1)
        m = pattern & ((1 << self.fmt.mantissa) - 1)
        size = (m | 1 << self.fmt.mantissa) << (e - 1) if e else m
        return -size if pattern >> SIGN else size

    def _assign(self, lanes: list[tuple[int, int]]) -> dict[int, int] | None:
        """``code -> stored bits`` of equal value, both lists ascending; None where some value finds no lane."""
        least, first = self.numerators[0], lanes[0][1]
        rise, run = self.numerators[-1] - least, lanes[-1][1] - first
        stored: dict[int, int] = {}
        at = 0
        for code, value in zip(self.values.codes, self.numerators, strict=True):
            goal = (value - least) * run
            while at < len(lanes) and (lanes[at][1] - first) * rise < goal:
                at += 1
            if at == len(lanes) or (lanes[at][1] - first) * rise != goal:
                return None
            stored[code] = lanes[at][0]
            at += 1
        return stored


def carry(values: ValueSet, stored: dict[int, int], meaning: list[float]) -> tuple[int, ...]:
    """Give NaN and infinite codes lanes of their own kind where some are left, their own code first.

    Args:
        values: the value set.
        stored: ``code -> stored bits`` of the others, to which those that are carried are added.
        meaning: value of the lane of each stored pattern.
    """
    if not values.special:
        return ()
    free = [s for s in range(values.size) if s not in set(stored.values())]
    carried = []
    for code, value in values.special:
        same = [s for s in free if meaning[s] == value or (isnan(meaning[s]) and isnan(value))]
        if same:
            s = code if code in same else same[0]
            stored[code] = s
            free.remove(s)
            carried.append(code)
    return tuple(carried)


def _ascending(size: int, *, signed: bool, mirrored: bool) -> list[int]:
    """Stored bits by rising lane value."""
    order = list(range(size))
    if signed:
        half = size // 2
        order = order[: half - 1 : -1] + order[:half]
    return order[::-1] if mirrored else order


def complete(stored: dict[int, int], size: int) -> tuple[int, ...]:
    """A permutation: codes without a lane get the patterns that are left."""
    taken = set(stored.values())
    left = iter([s for s in range(size) if s not in taken])
    return tuple(stored[c] if c in stored else next(left) for c in range(size))


def spread(positions: tuple[int, ...], stored: int) -> int:
    """Stored bits put to their positions of a lane."""
    return sum(1 << p for i, p in enumerate(positions) if stored >> i & 1)


def lanes_of(positions: tuple[int, ...], constant: int) -> list[int]:
    """The lane of each pattern of stored bits, in order."""
    lanes = [constant]
    for position in positions:  # the lowest stored bit first
        lanes += [lane | 1 << position for lane in lanes]
    return lanes
