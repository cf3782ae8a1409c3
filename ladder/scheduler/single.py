"""Operations on float32 as devices round them, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

#: smallest normal float32
TINY = float(np.finfo(np.float32).tiny)


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """``a * b + c`` of float32: exact product, rounded once from float64."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def dots(a: NDArray[Any], b: NDArray[Any]) -> Floats:
    """``a @ b.T`` of numbers ``[..., rows, k]`` and ``[..., columns, k]``, rounded once from float64.

    In float32 the answer would hang on the order in which a machine's BLAS adds.
    """
    exact = np.matmul(a.astype(np.float64), np.swapaxes(b.astype(np.float64), -1, -2))
    rounded: Floats = exact.astype(np.float32)
    return rounded


def exp2(a: Floats) -> Floats:
    """``2 ** a``, subnormals flushed to 0 (PTX ISA, ex2.approx.ftz.f32, which may be 2**-22 of it off)."""
    return _flushed(np.exp2(np.asarray(a, np.float32).astype(np.float64)))


def reciprocal(a: Floats) -> Floats:
    """``1 / a``, subnormals flushed to 0 (PTX ISA, rcp.approx.ftz.f32, which may be 2**-23 of it off)."""
    return _flushed(1.0 / _flushed(np.asarray(a, np.float32)).astype(np.float64))


def _flushed(a: NDArray[np.floating]) -> Floats:
    single = a.astype(np.float32)
    zero = np.copysign(np.float32(0), single)
    return np.where(np.abs(single) < TINY, zero, single)
