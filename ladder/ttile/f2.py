"""Linear algebra over the field of two elements on integers as bit vectors.

A map is the tuple of the images of the unit vectors ``1 << i``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def apply(basis: Sequence[int], vector: int) -> int:
    """Image of ``vector``: the xor of the images of its bits."""
    result = 0
    for i, image in enumerate(basis):
        if vector >> i & 1:
            result ^= image
    return result


def rank(vectors: Iterable[int]) -> int:
    """Dimension of the span of ``vectors``."""
    pivots: list[int] = []
    for vector in vectors:
        rest = vector
        for pivot in pivots:
            rest = min(rest, rest ^ pivot)
        if rest:
            pivots.append(rest)
    return len(pivots)


def inverse(basis: Sequence[int]) -> tuple[int, ...]:
    """Images of the unit vectors under the inverse of a bijection (Gauss-Jordan).

    The caller has checked that ``rank(basis) == len(basis)`` and that no image needs more bits.
    """
    size = len(basis)
    # each row: (image, combination of unit vectors that has this image)
    rows = [(image, 1 << i) for i, image in enumerate(basis)]
    for bit in range(size):
        pivot = next(i for i in range(bit, size) if rows[i][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        image, combination = rows[bit]
        rows = [
            (r ^ image, c ^ combination) if i != bit and r >> bit & 1 else (r, c)
            for i, (r, c) in enumerate(rows)
        ]
    return tuple(combination for _, combination in rows)
