"""Encoding to nearest for any value table, exact to the last tie.

Neighbouring values meet at a threshold, the smallest float64 that goes to the upper one. With it a
whole array is encoded by one binary search, and no midpoint is ever rounded the wrong way. Large arrays
are encoded by :class:`Buckets` instead, with the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ladder.ttype.arrays import Bools, Codes, Values

#: inputs from which on buckets are made and used
LARGE = 1 << 16
#: inputs that are encoded at once: temporaries stay in the second-level cache
CHUNK = 1 << 15
#: bits of a float64's fraction that tell buckets apart, least and most
FRACTION_BITS = (4, 8)


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
    _buckets: list[Buckets | None] = field(default_factory=list)

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
        if inputs.size >= LARGE:
            if not self._buckets:
                self._buckets.append(Buckets.of(self))
            if (buckets := self._buckets[0]) is not None:
                return buckets.encode(inputs)
        return self.search(inputs)

    def search(self, inputs: Values) -> Codes:
        """:meth:`encode` by binary search."""
        codes: Codes = self.codes[np.searchsorted(self.thresholds, inputs, side="right")]
        if self.signed_zeros is not None:  # a comparison cannot tell -0.0 from 0.0
            minus = self.codes[self.signed_zeros[0]]
            codes = np.where((inputs == 0) & np.signbit(inputs), minus, codes)
        return codes

    @property
    def signed_zeros(self) -> tuple[int, int] | None:
        """Places of -0.0 and 0.0, where both are values."""
        zeros = np.flatnonzero(self.values == 0)
        return (int(zeros[0]), int(zeros[1])) if len(zeros) == 2 else None

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


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """The same search in three steps: sign, exponent and first bits of the fraction name a bucket of float64s with at most
    one threshold in it; a table says where the bucket begins; one comparison decides.

    Attributes:
        shift: of a float64's bits, so that the bucket's number is left.
        places: of each bucket: place among the values of its lowest number.
        thresholds: as of :class:`Nearest`, NaN behind the last and for -0.0.
        codes: code of each place.
    """

    shift: int
    places: NDArray[np.unsignedinteger]
    thresholds: Values
    codes: Codes

    @classmethod
    def of(cls, nearest: Nearest) -> Buckets | None:
        """Derive it; None where thresholds lie too close for the finest buckets."""
        least, most = FRACTION_BITS
        for bits in range(least, most + 1):
            shift = 52 - bits
            low, high = _ends(shift)
            places = np.searchsorted(nearest.thresholds, low, side="right")
            last = np.searchsorted(nearest.thresholds, high, side="right")
            if (last - places).max() <= 1:
                return cls._made(nearest, shift, places)
        return None

    @classmethod
    def _made(cls, nearest: Nearest, shift: int, places: NDArray[np.intp]) -> Buckets:
        thresholds, codes = [*nearest.thresholds, np.nan], list(nearest.codes)
        if nearest.signed_zeros is not None:
            # of the bucket of -0.0 all numbers become -0.0: it gets a place of its own, which nothing leaves
            places[1 << (63 - shift)] = len(codes)
            thresholds.append(np.nan)
            codes.append(codes[nearest.signed_zeros[0]])
        width = np.uint8 if len(codes) <= 256 else np.uint16
        return cls(
            shift,
            places.astype(width),
            np.array(thresholds, np.float64),
            np.array(codes, nearest.codes.dtype),
        )

    def encode(self, inputs: Values) -> Codes:
        """See :meth:`Nearest.encode`."""
        flat = np.ascontiguousarray(inputs).reshape(-1)
        codes = np.empty(flat.size, self.codes.dtype)
        for first in range(0, flat.size, CHUNK):
            some = flat[first : first + CHUNK]
            place = self.places.take((some.view(np.uint64) >> np.uint64(self.shift)).view(np.int64))
            place += some >= self.thresholds.take(place)
            codes[first : first + CHUNK] = self.codes.take(place)
        return codes.reshape(inputs.shape)


def _ends(shift: int) -> tuple[Values, Values]:
    """The lowest and the highest number of every bucket, in the order of the buckets' numbers; no NaN."""
    numbers = np.arange(1 << (64 - shift), dtype=np.uint64) << np.uint64(shift)
    rest = np.uint64((1 << shift) - 1)
    small, large = (np.minimum(n & ~SIGN, INFINITY) | (n & SIGN) for n in (numbers, numbers | rest))
    is_negative = (numbers & SIGN) != 0
    low, high = np.where(is_negative, large, small), np.where(is_negative, small, large)
    return low.view(np.float64), high.view(np.float64)


#: of a float64's bits
SIGN = np.uint64(1 << 63)
INFINITY = np.uint64(0x7FF << 52)


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
