"""Encoding to nearest for any value table, exact to the last tie.

Neighbouring values meet at a threshold, the smallest float64 that goes to the upper one. With it a
whole array is encoded by one binary search, and no midpoint is ever rounded the wrong way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ladder.ttype.arrays import Bools, Codes, Values


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The search structure of one table.

    Attributes:
        codes: codes in the order of their values, -0.0 before 0.0, the lowest code of equal values.
        values: the value of each of them.
        thresholds: ``thresholds[i]`` is the smallest input that goes to ``codes[i + 1]``.
    """

    codes: Codes
    values: Values
    thresholds: Values

    @classmethod
    def of(cls, values: Values) -> Nearest:
        """Derive it from a table; NaN entries (NaN and unused codes) are left out."""
        lowest: dict[tuple[float, bool], int] = {}
        for code, value in enumerate(values.tolist()):
            if not math.isnan(value):
                lowest.setdefault((value, math.copysign(1.0, value) > 0), code)
        keys = sorted(lowest)
        codes = [lowest[key] for key in keys]
        points = [value for value, _ in keys]
        thresholds = [
            _threshold(points[i], points[i + 1], prefer_upper(codes[i], codes[i + 1]))
            for i in range(len(points) - 1)
        ]
        return cls(np.array(codes, np.uint8), np.array(points), np.array(thresholds, np.float64))

    def encode(self, inputs: Values) -> Codes:
        """Codes of ``inputs``, none of which is NaN; beyond the ends it saturates."""
        codes: Codes = self.codes[np.searchsorted(self.thresholds, inputs, side="right")]
        zeros = np.flatnonzero(self.values == 0)
        if len(zeros) == 2:  # both signs exist, and a comparison cannot tell -0.0 from 0.0
            codes = np.where((inputs == 0) & np.signbit(inputs), self.codes[zeros[0]], codes)
        return codes

    def overflows(self, inputs: Values) -> Bools:
        """Which inputs a cast without saturation would send beyond the largest finite value.

        The last step is continued once, and a tie goes to the even code as everywhere else: 464 stays
        448 in fp8_e4m3fn, anything above it overflows (IEEE 754, 7.4).
        """
        finite = np.flatnonzero(np.isfinite(self.values))
        lowest, low_odd = self._end(finite[::-1])
        highest, high_odd = self._end(finite)
        beyond: Bools = (inputs > highest) | (inputs < lowest)
        beyond |= (high_odd & (inputs == highest)) | (low_odd & (inputs == lowest))
        return beyond

    def _end(self, ordered: NDArray[np.intp]) -> tuple[float, bool]:
        """Half a step beyond the last of ``ordered``, and whether its code is odd."""
        last = float(self.values[ordered[-1]])
        before = float(self.values[ordered[-2]]) if len(ordered) > 1 else last
        return last + (last - before) / 2, bool(self.codes[ordered[-1]] % 2)


def prefer_upper(lower: int, upper: int) -> bool:
    """Who wins a tie: the even code, or the lower code where both are even or both odd."""
    if lower % 2 != upper % 2:
        return upper % 2 == 0
    return upper < lower


def _threshold(lower: float, upper: float, upper_wins: bool) -> float:
    """Smallest float64 that is nearer to ``upper``, or as near and ``upper`` wins ties."""
    if math.isinf(upper):
        return math.inf
    if math.isinf(lower):
        return math.nextafter(-math.inf, 0.0)
    if lower == upper:  # -0.0 and 0.0
        return 0.0
    middle = (Fraction(lower) + Fraction(upper)) / 2
    nearby = float(middle)
    if nearby > middle or (nearby == middle and upper_wins):
        return nearby
    return math.nextafter(nearby, math.inf)
