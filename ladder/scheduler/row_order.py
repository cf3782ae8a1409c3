"""In which order the rows of a weight are packed.

``natural``  one below the other
``paired``   where the first half of the rows gates the second: 8 gates, then the 8 channels that they gate, so that a tile of
             16 rows holds both, row g the gate of row g + 8. A thread has rows g and g + 8 of every fragment of
             accumulators (PTX ISA, Matrix Fragments for mma.m16n8k16 and wgmma), and so both halves of a pair.

    n = 6:  rows 0 1 2 3 4 5  -->  stored rows 0 1 2, 8 9 10
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ladder.errors import PackingError

#: rows of a tile's half
HALF = 8

#: the stored row of each row; a slice where rows stay where they are, which copies nothing
Places = slice | NDArray[np.intp]


def _natural(n: int) -> Places:
    return slice(0, n)


def _paired(n: int) -> Places:
    pair = np.arange(n // 2)
    gate = pair // HALF * (2 * HALF) + pair % HALF
    return np.concatenate([gate, gate + HALF])


#: order -> the stored row of each row
ORDERS: Mapping[str, Callable[[int], Places]] = MappingProxyType(
    {"natural": _natural, "paired": _paired}
)


def places(order: str, n: int) -> Places:
    """The stored row of each of n rows.

    Raises:
        PackingError: there is no such order, or it is one of pairs and n is odd.
    """
    if order not in ORDERS:
        raise PackingError(
            f"rows in the order {order!r}", at="packing", hint=f"one of {', '.join(ORDERS)}"
        )
    if order == "paired" and n % 2:
        raise PackingError(f"{n} rows in pairs", at="packing", hint="an even number of rows")
    return ORDERS[order](n)


def sources(stored: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """The inverse on all ``count`` rows that are stored: those behind the last row are padding, in the places left over."""
    rows = np.full(count, -1)
    rows[stored] = np.arange(len(stored))
    rows[rows < 0] = np.arange(len(stored), count)
    return rows
