"""Holes: where the lanes without a value may lie, for types with NaN, infinite or unused codes.

A form of ``b`` bits has 2^b lanes; the codes without a finite value take what the values leave. Ascending, so many lanes
lie below the smallest value, so many above the largest, and the others inside. There are about m^2/2 ways to part m holes.
Up to FREE_HOLES all of them are searched at once; beyond, first those without holes inside, and the others where a
cheaper program could still come of it, as many as LANE_WORK allows. What was left out is told in the program
(:attr:`ladder.decode.program.DecodeProgram.exhausted`).
"""

from __future__ import annotations

from math import comb

from ladder.decode.exact import SIGN

#: ``(lanes below the smallest value, lanes above the largest)``
Ends = tuple[int, int]

#: holes that are searched at every place at once
FREE_HOLES = 3
#: lanes that the second stage may look at, shared by all candidates alike: for codes up to SHORT bits, and for longer ones
LANE_WORK = (100_000_000, 500_000_000)
#: codes up to so many bits are searched in seconds
SHORT = 4


def first_ends(missing: int) -> list[Ends]:
    """The ways of the first stage: all up to FREE_HOLES holes, beyond it those without holes inside, by halves or whole."""
    if missing <= FREE_HOLES:
        return every_end(missing)
    half = missing // 2
    return [(half, missing - half), (0, missing), (missing, 0), (missing - half, half)]


def every_end(missing: int) -> list[Ends]:
    """All ways to part so many holes."""
    return [(low, high) for low in range(missing + 1) for high in range(missing + 1 - low)]


def more_ends(missing: int) -> list[Ends]:
    """The ways of the second stage: all that were not in the first.

    Holes nearly all inside come first, with those nearly all outside: bits below the values' own make the former, bits
    above the latter.
    """
    first = set(first_ends(missing))
    ways = [way for way in every_end(missing) if way not in first]
    return sorted(ways, key=lambda way: (min(sum(way), missing - sum(way)), abs(way[0] - way[1])))


def candidates(bits: int) -> int:
    """Sets of positions times constants that one way looks at, with and without the sign among the positions."""
    return sum(comb(SIGN, width) << (SIGN - width) for width in (bits, bits - 1))
