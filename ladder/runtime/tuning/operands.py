"""Random operands of real size, made quickly: rows of a weight repeat with an odd period of bands, their meaning is exact.

Quantising, packing and multiplying 8192 x 28672 weights takes a minute on a CPU; of some :data:`ROWS` rows it takes a second.
All rows of a period differ, and a period is an odd number of bands of 64 rows, so that a row that is taken for another, or from
another band, still shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.graph import MatMul
from ladder.graph.draw import activations, residuals, row_scales
from ladder.graph.epilogue import with_operands
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS, Packing
from ladder.ttype import Quantized, quantize

#: rows that lie together in a packed weight
BAND_ROWS = BAND_TILES * TILE_ROWS
#: rows that differ, at least: 9 bands of 64 make an odd number
ROWS = 496
SEED = 0


@dataclass(frozen=True)
class Weights:
    """A quantised weight ``[n, k]`` whose rows repeat.

    Attributes:
        n: its rows.
        some: the rows of one period; all of them where there are fewer.
    """

    n: int
    some: Quantized

    @classmethod
    def random(cls, op: MatMul, seed: int = SEED) -> Weights:
        """Normal weights of the operator's type."""
        rng = np.random.default_rng(seed)
        rows = min(op.n, _period(op))
        return cls(op.n, quantize(rng.standard_normal((rows, op.k), np.float32), op.weight))

    def whole(self) -> Quantized:
        """All rows."""
        some = self.some
        groups, _ = some.type.scale_shape(self.n, some.shape[1])
        parts = {
            name: _repeated(array, groups)
            for name, array in (("scales", some.scales), ("zeros", some.zeros))
            if array is not None
        }
        codes = _repeated(some.codes, self.n)
        return Quantized(some.type, codes, **parts, global_scale=some.global_scale)

    def pack(self, packing: Packing) -> dict[str, NDArray[Any]]:
        """The packed arrays of all rows; bands repeat in them as rows do in the weight."""
        rows = self.some.shape[0]
        apart = packing.order != "natural"  # a band of pairs has rows of both halves
        if apart or rows == self.n or rows % BAND_ROWS or self.n % BAND_ROWS:
            return dict(packing.pack(self.whole()))
        bands = replace(packing, n=rows).pack(self.some)
        wanted = packing.shapes()
        return {
            name: array if array.shape == wanted[name][0] else _repeated(array, wanted[name][0][0])
            for name, array in bands.items()
        }


@dataclass(frozen=True)
class Inputs:
    """What goes with a weight, and the exact answer.

    Attributes:
        x: activations ``[m, items(k)]`` as kernels read them.
        bias: ``[n]`` of the output's type, or None.
        exact: float64 ``[m, out_n]``.
        x_scale: float32 ``[m]``, or None.
        residual: ``[m, out_n]`` of the output's type, or None.
    """

    x: NDArray[Any]
    bias: NDArray[Any] | None
    exact: NDArray[np.float64]
    x_scale: NDArray[Any] | None = None
    residual: NDArray[Any] | None = None

    @classmethod
    def random(cls, op: MatMul, weights: Weights, seed: int = SEED) -> Inputs:
        """Normal activations, bias and residual, and scales of rows."""
        rng = np.random.default_rng([seed, op.m or 0])
        x = activations(op, rng, op.m or 0)
        bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
        some = x.astype(np.float64) @ weights.some.dequantize().T
        exact = np.ascontiguousarray(_repeated(some.T, op.n).T)
        x_scale = row_scales(op, rng, op.m or 0)
        if x_scale is not None:
            exact *= x_scale.astype(np.float64)[:, None]
        if bias is not None:
            exact += bias.astype(np.float64)
        residual = residuals(op, rng, op.m or 0)
        added = () if residual is None else (residual.astype(np.float64),)
        for step, operands in with_operands(op.epilogue, added):
            exact = step.apply(exact, operands)
        return cls(op.activation.pack(x), bias, exact, x_scale, residual)


def relative_error(y: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """``|y - exact|_2 / |exact|_2``; NaN where an element was never written over its poison."""
    gap = float(np.linalg.norm(y.astype(np.float64) - exact))
    size = float(np.linalg.norm(exact))
    return gap / size if size else gap


def _period(op: MatMul) -> int:
    """Rows of a period: whole bands and whole groups, an odd number of both together."""
    rows, _ = op.weight.group_extents(op.n, op.k)
    # one group that holds all rows has the same scales whatever the number of its rows
    unit = BAND_ROWS if rows >= op.n else math.lcm(BAND_ROWS, rows)
    units = math.ceil(ROWS / unit)
    return unit * (units + 1 - units % 2)


def _repeated(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The first ``rows`` rows of endless copies."""
    copies = -(-rows // array.shape[0])
    if copies == 1:
        return array[:rows]
    return np.tile(array, (copies, *(1 for _ in array.shape[1:])))[:rows]
