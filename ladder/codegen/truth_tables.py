"""lop3 in NumPy: any function of three bits, in few operations on words."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint32]
Meaning = Callable[..., npt.NDArray[np.generic]]

_U32 = np.uint32


@functools.lru_cache(maxsize=256)
def lop3_function(table: int) -> Meaning:
    """Return ``f(a, b, c)`` for a lop3 truth table (PTX ISA lop3: a = 0xF0, b = 0xCC, c = 0xAA), in few operations."""
    low, high = table & 0x0F, table >> 4 & 0x0F  # the halves for a = 0 and a = 1
    if low == high:
        return lambda a, b, c: _two(low, b, c) | (a & _U32(0))
    if low == 0:
        return lambda a, b, c: a & _two(high, b, c)
    if high == 0:
        return lambda a, b, c: ~a & _two(low, b, c)
    if high == 0x0F:
        return lambda a, b, c: a | _two(low, b, c)
    if low == 0x0F:
        return lambda a, b, c: ~a | _two(high, b, c)
    if low == high ^ 0x0F:
        return lambda a, b, c: a ^ _two(low, b, c)
    return lambda a, b, c: (a & _two(high, b, c)) | (~a & _two(low, b, c))


_TWO: tuple[Callable[[Bits, Bits], Bits], ...] = (
    lambda b, c: (b | c) & _U32(0),
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b | (c & _U32(0)),
    lambda b, c: b & ~c,
    lambda b, c: ~c | (b & _U32(0)),
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c | (b & _U32(0)),
    lambda b, c: ~b | c,
    lambda b, c: b | (c & _U32(0)),
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: ~((b | c) & _U32(0)),
)


def _two(table: int, b: Bits, c: Bits) -> Bits:
    return _TWO[table](b, c)
