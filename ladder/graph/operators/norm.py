"""Operators that reduce along axes: sums, softmax, layer norm, RMS norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from ladder.graph.extent import Sizes, same
from ladder.graph.operators.base import Operator, axis_of
from ladder.graph.tensor import Array, TensorType

REDUCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"sum": np.sum, "mean": np.mean, "maximum": np.max, "minimum": np.min, "product": np.prod}
)


@dataclass(frozen=True)
class Reduce(Operator):
    """A reduction of :data:`REDUCTIONS` over some axes."""

    function: str
    axes: tuple[int, ...]
    keep: bool = True
    kind: ClassVar[str] = "reduce"

    def infer(self, *given: TensorType) -> TensorType:
        """Reduced axes have extent 1, or are gone."""
        axes = {axis_of(axis, given[0].rank, self) for axis in self.axes}
        extents = [1 if i in axes else extent for i, extent in enumerate(given[0].shape)]
        kept = [extent for i, extent in enumerate(extents) if self.keep or i not in axes]
        return given[0].with_(shape=tuple(kept))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's reduction."""
        return np.asarray(REDUCTIONS[self.function](given[0], axis=self.axes, keepdims=self.keep))


@dataclass(frozen=True)
class Softmax(Operator):
    """``exp(x - max) / sum`` along an axis; a row of only -inf gives zeros."""

    axis: int = -1
    kind: ClassVar[str] = "softmax"

    def infer(self, *given: TensorType) -> TensorType:
        """The input's type."""
        axis_of(self.axis, given[0].rank, self)
        return given[0].with_()

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64."""
        return softmax(given[0], self.axis)


def softmax(x: Array, axis: int) -> Array:
    """Softmax in float64; rows that are masked whole give zeros."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    powers = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = np.sum(powers, axis=axis, keepdims=True)
    result: Array = np.divide(powers, total, out=np.zeros_like(powers), where=total != 0)
    return result


@dataclass(frozen=True)
class LayerNorm(Operator):
    """``(x - mean) / sqrt(variance + eps) * weight (+ bias)`` over the last axes.

    Inputs: x, and weight and bias of the normalised axes.

    Attributes:
        axes: how many of the last ones.
        eps: added to the variance.
        out: type of y, "" for that of x.
    """

    axes: int = 1
    eps: float = 1e-5
    out: str = ""
    kind: ClassVar[str] = "layer_norm"
    arity: ClassVar[tuple[int, int]] = (1, 3)

    def infer(self, *given: TensorType) -> TensorType:
        """The input's shape."""
        return _normed(self, given)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64."""
        x, *affine = given
        axes = tuple(range(-self.axes, 0))
        centred = x - np.mean(x, axis=axes, keepdims=True)
        y = centred / np.sqrt(np.mean(centred**2, axis=axes, keepdims=True) + self.eps)
        y = y * affine[0] if affine else y
        return np.asarray(y + affine[1] if len(affine) > 1 else y)


@dataclass(frozen=True)
class RMSNorm(Operator):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes.

    Inputs: x, and weight of the normalised axes. Fields as :class:`LayerNorm`.
    """

    axes: int = 1
    eps: float = 1e-5
    out: str = ""
    kind: ClassVar[str] = "rms_norm"
    arity: ClassVar[tuple[int, int]] = (1, 2)

    def infer(self, *given: TensorType) -> TensorType:
        """The input's shape."""
        return _normed(self, given)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64."""
        x, *weight = given
        axes = tuple(range(-self.axes, 0))
        y = x / np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + self.eps)
        return np.asarray(y * weight[0] if weight else y)


def _normed(op: LayerNorm | RMSNorm, given: tuple[TensorType, ...]) -> TensorType:
    x, *affine = given
    axis_of(-op.axes, x.rank, op)
    for one in affine:
        for mine, extent in zip(reversed(one.shape), reversed(x.shape), strict=False):
            if mine != 1:
                same(mine, extent, "weight and normalised axes", op)
    return x.with_(dtype=op.out or None)
