"""Random operands of real size, made quickly: rows of a weight repeat with an odd period, their meaning is exact.

Quantising and multiplying 8192 x 28672 weights in float64 takes minutes on a CPU; of :data:`ROWS` rows it takes a second.
The period has no common factor with any tile, so that a row that is taken for another, or from another tile, still shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.graph import MatMul
from ladder.ttype import Quantized, quantize

#: rows that differ, at least; a prime
ROWS = 509
SEED = 0


@dataclass(frozen=True)
class Weights:
    """A quantised weight ``[n, k]`` whose rows repeat.

    Attributes:
        all: every row, as it is packed.
        some: the rows of one period, of the same type.
    """

    all: Quantized
    some: Quantized

    @classmethod
    def random(cls, op: MatMul, seed: int = SEED) -> Weights:
        """Normal weights of the operator's type."""
        period = min(op.n, _period(op))
        rng = np.random.default_rng(seed)
        some = quantize(rng.standard_normal((period, op.k), np.float32), op.weight)
        shape = op.weight.scale_shape(op.n, op.k)
        parts = {
            name: _repeated(array, shape[0])
            for name, array in (("scales", some.scales), ("zeros", some.zeros))
            if array is not None
        }
        codes = _repeated(some.codes, op.n)
        return cls(Quantized(op.weight, codes, **parts, global_scale=some.global_scale), some)


@dataclass(frozen=True)
class Inputs:
    """What goes with a weight, and the exact answer.

    Attributes:
        x: activations ``[m, k]``.
        bias: ``[n]`` of the output's type, or None.
        exact: float64 ``[m, n]``.
    """

    x: NDArray[Any]
    bias: NDArray[Any] | None
    exact: NDArray[np.float64]

    @classmethod
    def random(cls, op: MatMul, weights: Weights, seed: int = SEED) -> Inputs:
        """Normal activations and bias."""
        rng = np.random.default_rng([seed, op.m or 0])
        x = rng.standard_normal((op.m or 0, op.k), np.float32).astype(op.activation.dtype)
        bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
        some = x.astype(np.float64) @ weights.some.dequantize().T
        exact = np.ascontiguousarray(_repeated(some.T, op.n).T)
        if bias is not None:
            exact += bias.astype(np.float64)
        return cls(x, bias, exact)


def relative_error(y: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """``|y - exact|_2 / |exact|_2``; NaN where an element was never written over its poison."""
    gap = float(np.linalg.norm(y.astype(np.float64) - exact))
    size = float(np.linalg.norm(exact))
    return gap / size if size else gap


def _period(op: MatMul) -> int:
    """Rows of a period: whole groups, an odd number of them."""
    rows, _ = op.weight.group_extents(op.n, op.k)
    if rows >= op.n:  # one group holds all rows: any number of them has the same scales
        return ROWS
    groups = math.ceil(ROWS / rows)
    return rows * (groups + 1 - groups % 2)


def _repeated(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The first ``rows`` rows of endless copies."""
    copies = -(-rows // array.shape[0])
    return np.tile(array, (copies, 1))[:rows] if copies > 1 else array[:rows]
