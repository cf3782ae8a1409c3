"""The matmul operator: what is computed, with which types, and nothing about how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype import ComputeType, GroupedType, Quantized, TType, compute_type, weight_type

#: activation types that a float matmul takes, and output types that it writes
ACTIVATIONS = ("float16", "bfloat16")
OUTPUTS = ("float16", "bfloat16", "float32")

#: largest extent of one axis: kernels count rows and columns in 32 bits, the padding of a last tile or block included;
#: offsets into arrays are 64 bits wide wherever an array can be that large
MAX_EXTENT = 2**31 - 2**16


@dataclass(frozen=True)
class MatMul:
    """``y[m, n] = sum_k x[m, k] * w[n, k] (+ bias[n])``, accumulated in float32.

    Attributes:
        m: rows of x and y (tokens), or None for any number including 0.
        n: rows of the weight (output channels).
        k: columns of x and of the weight.
        activation: type of x, float16 or bfloat16.
        weight: the number format of w; a bare element is a type without scales.
        out: type of y, float16, bfloat16 or float32.
        bias: whether ``bias[n]``, of the out type, is added.
    """

    m: int | None
    n: int
    k: int
    activation: ComputeType
    weight: GroupedType
    out: ComputeType
    bias: bool = False

    @property
    def element(self) -> TType:
        """The element type of the weight."""
        return self.weight.element

    def reference(
        self, x: ArrayLike, weight: Quantized, bias: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """The operator's meaning in float64: x ``[..., k]``, weight ``[n, k]`` -> y ``[..., n]``, not rounded."""
        if weight.shape != (self.n, self.k):
            raise ShapeError(
                f"weight is {list(weight.shape)}, the operator wants {[self.n, self.k]}",
                at=self,
                hint="weights are [n, k]: output channels first",
            )
        y = np.asarray(x).astype(np.float64) @ weight.dequantize().T
        if bias is not None:
            y = y + np.asarray(bias).astype(np.float64)
        return np.asarray(y, dtype=np.float64)

    def __str__(self) -> str:
        m = "any" if self.m is None else self.m
        bias = " + bias" if self.bias else ""
        return (
            f"matmul(x {self.activation.name}[{m}, {self.k}], w {self.weight}[{self.n}, {self.k}]{bias}"
            f" -> {self.out.name}[{m}, {self.n}])"
        )


def matmul(
    m: int | None,
    n: int,
    k: int,
    *,
    activation: str | ComputeType,
    weight: str | GroupedType | TType,
    out: str | ComputeType = "float16",
    bias: bool = False,
) -> MatMul:
    """Declare a matmul of activations ``[m, k]`` with a low-bit weight ``[n, k]``.

    Types may be given by name. ``m=None`` declares an operator for any number of tokens.

    Raises:
        ShapeError: an extent is not a positive integer (m may be 0) or is larger than :data:`MAX_EXTENT`.
        TypeDeclarationError: a type is unknown or not offered in its place, or ``bias`` is no truth value.
    """
    at = f"matmul(m={m}, n={n}, k={k})"
    if not isinstance(bias, bool):
        raise TypeDeclarationError(
            f"bias is a {type(bias).__name__}",
            at=at,
            hint="True or False: whether one is added; its values are given with each call",
        )
    return MatMul(
        m=None if m is None else _extent("m", m, 0, at),
        n=_extent("n", n, 1, at),
        k=_extent("k", k, 1, at),
        activation=_compute(activation, ACTIVATIONS, "activation"),
        weight=weight_type(weight),
        out=_compute(out, OUTPUTS, "out"),
        bias=bias,
    )


def _extent(name: str, given: object, least: int, at: str) -> int:
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        extent = int(given)
        if least <= extent <= MAX_EXTENT:
            return extent
    raise ShapeError(
        f"{name} = {given!r} is not an integer in {least} .. {MAX_EXTENT}",
        at=at,
        hint="m=None means any number of tokens" if name == "m" else "weights are [n, k]",
    )


def _compute(given: str | ComputeType, allowed: tuple[str, ...], where: str) -> ComputeType:
    found = compute_type(given)
    if found.name not in allowed:
        raise TypeDeclarationError(
            f"{where} = {found.name} is not offered",
            at=f"matmul({where}=...)",
            hint=f"choose one of {', '.join(allowed)}",
        )
    return found
