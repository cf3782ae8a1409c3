"""Which arrays the NumPy meaning of a plan takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.checks import Expected, accept
from ladder.errors import ShapeError
from ladder.graph.matmul import MatMul

NUMPY: Expected[NDArray[Any]] = Expected(
    "a NumPy array",
    lambda value: isinstance(value, np.ndarray),
    lambda value: value,
    "numpy.asarray(values, dtype), or tensor.cpu().numpy()",
)


def check_operands(
    op: MatMul,
    x: NDArray[Any],
    bias: NDArray[Any] | None,
    x_scale: NDArray[Any] | None,
    residual: NDArray[Any] | None,
) -> None:
    """Refuse operands that an operator does not take as they are.

    Raises:
        ShapeError: one is missing, not declared, no array of NumPy, or has another shape or dtype.
    """
    _check_x(op, x)
    _check_bias(op, bias)
    _check_row_scale(op, x, x_scale)
    _check_residual(op, x, residual)


def array_of(name: str, given: object, at: object) -> NDArray[Any]:
    """An operand of a plan's NumPy meaning.

    Raises:
        ShapeError: it is no array of NumPy.
    """
    return accept(given, NUMPY, name, at=at, error=ShapeError)


def _check_row_scale(op: MatMul, x: NDArray[Any], x_scale: NDArray[Any] | None) -> None:
    if (x_scale is not None) != op.activation_scale:
        raise ShapeError(
            "an x_scale is given" if x_scale is not None else "the x_scale is missing",
            at=op,
            hint="matmul(..., activation_scale=True) declares one",
        )
    if x_scale is None:
        return
    array_of("x_scale", x_scale, op)
    if x_scale.shape != x.shape[:-1] or x_scale.dtype != np.float32:
        raise ShapeError(
            f"x_scale is {x_scale.dtype.name}{list(x_scale.shape)}, expected float32{list(x.shape[:-1])}",
            at=op,
            hint="one number to each row of x, in float32",
        )


def _check_x(op: MatMul, x: NDArray[Any]) -> None:
    array_of("x", x, op)
    kind = op.activation
    items = kind.items(op.k)
    if x.ndim < 1 or x.shape[-1] != items or x.dtype != kind.storage:
        packed = kind.per_item > 1
        read = f"{kind.name}, {kind.per_item} to an item of uint8" if packed else kind.name
        raise ShapeError(
            f"x is {x.dtype.name}{list(x.shape)}, the operator reads {read}[..., {items}]",
            at=op,
            hint="op.activation.pack(x) makes them of numbers"
            if packed
            else f"x.astype({kind.name}) rounds on purpose",
        )


def _check_bias(op: MatMul, bias: NDArray[Any] | None) -> None:
    if (bias is not None) != op.bias:
        raise ShapeError(
            "a bias is given" if bias is not None else "the bias is missing",
            at=op,
            hint="matmul(..., bias=True) declares one",
        )
    if bias is None:
        return
    array_of("bias", bias, op)
    if bias.shape != (op.n,) or bias.dtype != op.out.dtype:
        raise ShapeError(
            f"bias is {bias.dtype.name}{list(bias.shape)}, expected {op.out.name}[{op.n}]",
            at=op,
            hint=f"one number to each output channel, in {op.out.name}",
        )


def _check_residual(op: MatMul, x: NDArray[Any], residual: NDArray[Any] | None) -> None:
    if (residual is not None) != op.residual:
        raise ShapeError(
            "a residual is given" if residual is not None else "the residual is missing",
            at=op,
            hint='matmul(..., epilogue=("residual",)) declares one',
        )
    if residual is None:
        return
    array_of("residual", residual, op)
    shape = (*x.shape[:-1], op.out_n)
    if residual.shape != shape or residual.dtype != op.out.dtype:
        raise ShapeError(
            f"residual is {residual.dtype.name}{list(residual.shape)}, expected {op.out.name}{list(shape)}",
            at=op,
            hint=f"a residual has the shape and type of the result, {op.out.name}",
        )
