"""Checks of the arrays that go with x and the weight, each by itself; :mod:`ladder.runtime.arguments` puts a call together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError, ShapeError
from ladder.runtime.arrays import ArrayView, Rows, numpy_dtype, rows, view
from ladder.runtime.variant import VECTOR_BYTES, OperatorLike

#: outputs of two bytes that a store of 16 bytes writes; rows have to start at multiples of them
OUT_PIECE = 8


def check_dtype(name: str, found: ArrayView, wanted: str) -> None:
    """Refuse an array of another dtype."""
    if found.dtype != wanted:
        raise LaunchError(
            f"{name} is {found.dtype}, the kernel takes {wanted}",
            at=f"{name}: {found}",
            hint=f"cast {name} to {wanted}, or declare the operator for what it is given",
        )


def check_place(name: str, found: ArrayView, x: ArrayView, hint: str = "") -> None:
    """Refuse an array on another device than x."""
    if found.device != x.device or found.ordinal != x.ordinal:
        raise LaunchError(
            f"{name} is on {found.place}, x on {x.place}",
            at=name,
            hint=hint or f"move {name} to {x.place}",
        )


class Span(NamedTuple):
    """Addresses from ``first`` up to, not including, ``last``."""

    first: int
    last: int

    @classmethod
    def of(cls, found: ArrayView, lines: Rows | None) -> Span:
        """The addresses of an array whose rows were found."""
        assert lines is not None
        if not found.nbytes:
            return cls(found.pointer, found.pointer)
        size = numpy_dtype(found.dtype).itemsize
        steps = (
            (lines.m - 1) * lines.stride_m * size,
            (found.shape[-1] - 1) * lines.stride_k * size,
        )
        # rows or columns may be walked backwards, from the address that the array begins at
        first = found.pointer + sum(min(step, 0) for step in steps)
        return cls(first, found.pointer + sum(max(step, 0) for step in steps) + size)

    @classmethod
    def whole(cls, found: ArrayView) -> Span:
        """The addresses of a contiguous array."""
        return cls(found.pointer, found.pointer + found.nbytes)

    def overlaps(self, other: Span) -> bool:
        """Whether an address is in both; none is in an empty array."""
        return max(self.first, other.first) < min(self.last, other.last)


def check_apart(name: str, written: Span, inputs: Mapping[str, Span]) -> None:
    """Refuse an output over memory that the kernel still reads: some threads write while others have not yet read.

    Raises:
        LaunchError: it overlaps an input, which is named.
    """
    for of, read in inputs.items():
        if written.overlaps(read):
            raise LaunchError(
                f"{name} and {of} share memory", at=name, hint=f"give {name} memory of its own"
            )


def takes_pieces(found: ArrayView, lines: Rows) -> int:
    """1 where rows of outputs of two bytes all start at multiples of 16 bytes (of one byte: of 8), else 0."""
    return int(found.pointer % VECTOR_BYTES == 0 and lines.stride_m % OUT_PIECE == 0)


def check_row_scale(op: OperatorLike, x_scale: Any, x: ArrayView) -> int:
    """The address of the scales of x's rows, float32 ``[...]``.

    Raises:
        ShapeError: there is not one to each row.
        LaunchError: one is missing or not declared, or its dtype, device or layout does not fit.
    """
    if not op.activation_scale:
        raise LaunchError(
            "an x_scale was given, the operator has none",
            at="x_scale",
            hint="matmul(..., activation_scale=True)",
        )
    if x_scale is None:
        raise LaunchError(
            "the operator scales rows of x, no x_scale was given",
            at="x_scale",
            hint=f"give float32 {list(x.shape[:-1])}, one number to each row",
        )
    found = view(x_scale)
    check_dtype("x_scale", found, "float32")
    if tuple(found.shape) != tuple(x.shape[:-1]):
        raise ShapeError(
            f"x_scale is {list(found.shape)}, x has rows {list(x.shape[:-1])}",
            at="x_scale",
            hint="one number to each row of x",
        )
    check_place("x_scale", found, x)
    if not found.contiguous:
        raise LaunchError(
            f"x_scale has strides {list(found.strides)}", at="x_scale", hint="make it contiguous"
        )
    return found.pointer


def check_bias(op: OperatorLike, parameter: Parameter | None, bias: Any, x: ArrayView) -> int:
    """The address of the bias ``[n]``, of the dtype that the kernel's parameter has.

    Raises:
        ShapeError: it is of another shape.
        LaunchError: it is missing or not declared, or its dtype, device or layout does not fit.
    """
    if not op.bias:
        raise LaunchError(
            "a bias was given, the operator has none", at="bias", hint="matmul(..., bias=True)"
        )
    if bias is None:
        raise LaunchError(
            "the operator adds a bias, none was given", at="bias", hint=f"give bias [{op.n}]"
        )
    found = view(bias)
    check_dtype("bias", found, op.out.name if parameter is None else parameter.dtype)
    if tuple(found.shape) != (op.n,):
        raise ShapeError(
            f"bias is {list(found.shape)}, the operator takes [{op.n}]",
            at="bias",
            hint="one number to each output channel",
        )
    check_place("bias", found, x)
    if not found.contiguous:
        raise LaunchError(
            f"bias has stride {found.strides[0]}", at="bias", hint="make it contiguous"
        )
    return found.pointer


def check_residual(
    op: OperatorLike, residual: Any, x: ArrayView, y: ArrayView, y_rows: Rows
) -> dict[str, int]:
    """The kernel's arguments for the residual ``[..., out_n]``, which may be y itself: each output is read before it is written.

    Raises:
        ShapeError: it is of another shape than y.
        LaunchError: it is missing or not declared, its dtype, device or layout does not fit, or it overlaps y in part.
    """
    if not op.residual:
        raise LaunchError(
            "a residual was given, the operator has none",
            at="residual",
            hint='matmul(..., epilogue=("residual",))',
        )
    if residual is None:
        raise LaunchError(
            "the operator adds a residual, none was given",
            at="residual",
            hint=f"give residual {list(y.shape)}",
        )
    found = view(residual)
    check_dtype("residual", found, op.out.name)
    if tuple(found.shape) != tuple(y.shape):
        raise ShapeError(
            f"residual is {list(found.shape)}, the result {list(y.shape)}",
            at="residual",
            hint="a residual has the shape of the result",
        )
    check_place("residual", found, x)
    lines = rows(found)
    if lines is None or lines.stride_k != 1 or lines.stride_m < 0:
        raise LaunchError(
            f"residual has strides {list(found.strides)}",
            at=f"residual: {found}",
            hint="channels side by side, one stride from row to row: make it contiguous",
        )
    same = found.pointer == y.pointer and lines == y_rows and found.dtype == y.dtype
    if lines.m and not same and Span.of(found, lines).overlaps(Span.of(y, y_rows)):
        raise LaunchError(
            "out overlaps the residual in part",
            at=f"residual: {found}",
            hint="give out the residual itself, or memory of its own",
        )
    return {
        "residual": found.pointer,
        "residual_stride_m": lines.stride_m,
        "residual_pieces": takes_pieces(found, lines),
    }
