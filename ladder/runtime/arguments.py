"""Checks of a call's arrays, and the numbers that the kernel's arguments get from them.

Everything is refused here, in Python, with the tensor's name and both values, before a kernel could read a wrong byte.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ladder.errors import LaunchError, PackingError, ShapeError
from ladder.runtime.arrays import ArrayView, Rows, library_of, numpy_dtype, rows, view
from ladder.runtime.packed import Packed
from ladder.runtime.variant import VECTOR_BYTES, OperatorLike, Variant

#: outputs of two bytes that a store of 16 bytes writes; rows of y have to start at multiples of them
OUT_PIECE = 8


class Operands(NamedTuple):
    """What a call is given: x ``[..., k]``, the packed weight, and what the operator has of the others."""

    x: Any
    packed: Any
    bias: Any = None
    out: Any = None
    x_scale: Any = None


class Call(NamedTuple):
    """A checked call: the kernel, the value of every argument by role, and what to return."""

    number: int
    variant: Variant
    x: ArrayView
    m: int
    values: dict[str, int]
    out: Any


def check_call(
    variants: Sequence[Variant],
    key: str,
    operands: Operands,
) -> Call:
    """Check a call of an operator.

    Args:
        variants: the operator's kernels.
        key: digest of their packing.
        operands: x ``[..., k]``, the packed weight, bias ``[n]`` or None, out ``[..., n]`` or None (one is made), x_scale
            ``[...]`` or None.

    Raises:
        ShapeError: extents do not fit.
        PackingError: the weight was packed otherwise.
        LaunchError: a dtype, device or layout does not fit.
    """
    x, packed, bias, out, x_scale = operands
    op = variants[0].plan.op
    x_view = view(x)
    m = check_x(op, x_view)
    _check_packed(key, packed, x_view)
    if m:
        number, x, x_view, found = choose(variants, x, x_view, m)
    else:  # nothing is read: any layout will do
        number, found = 0, Rows(0, op.k, 1)
    variant = variants[number]
    shape = (*x_view.shape[:-1], op.n)
    if out is None:
        out = library_of(x).empty(x, shape, op.out.name)
    y_view = view(out)
    y_rows = _check_out(variant, shape, y_view, x_view)
    values = dict(packed.pointers)
    values["x"], values["y"], values["m"] = x_view.pointer, y_view.pointer, m
    values["x_stride_m"], values["x_stride_k"] = found.stride_m, found.stride_k
    values["y_stride_m"] = y_rows.stride_m
    values["y_pieces"] = int(
        y_view.pointer % VECTOR_BYTES == 0 and y_rows.stride_m % OUT_PIECE == 0
    )
    if x_scale is not None or op.activation_scale:
        values["x_scale"] = _check_row_scale(op, x_scale, x_view)
    if bias is not None or op.bias:
        values["bias"] = _check_bias(variant, bias, x_view)
    return Call(number, variant, x_view, m, values, out)


def check_x(op: Any, x: ArrayView) -> int:
    """The rows of x, after refusing another k or dtype than the operator's."""
    if not x.shape or x.shape[-1] != op.k:
        raise ShapeError(
            f"x is {list(x.shape)}, the operator takes [..., {op.k}]", at="x", hint="k comes last"
        )
    check_dtype("x", x, op.activation.dtype.name)
    return prod(x.shape[:-1])


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


def _check_packed(key: str, packed: Any, x: ArrayView) -> None:
    if not isinstance(packed, Packed):
        raise LaunchError(
            f"the weight is a {type(packed).__qualname__}",
            at="packed",
            hint="kernel.pack(q) makes it",
        )
    if packed.key != key:
        raise PackingError(
            f"the weight was packed as {packed.key[:12]}, the kernel reads {key[:12]}",
            at=str(packed),
            hint="pack the weight with this kernel: kernel.pack(q)",
        )
    for name, found in packed.views.items():
        check_place(name, found, x, f"packed.to('{x.place}'), or packed.to(x.device) for torch")


def choose(
    variants: Sequence[Variant], x: Any, x_view: ArrayView, m: int
) -> tuple[int, Any, ArrayView, Rows]:
    """Return the kernel that reads x as it lies; else x is copied, which is announced."""
    fitting = [index for index, variant in enumerate(variants) if variant.takes_rows(m)]
    if not fitting:
        ranges = ", ".join(_range(variant) for variant in variants)
        raise ShapeError(
            f"x has {m} rows, the kernels take {ranges}",
            at=f"x: {x_view}",
            hint=_instead(variants, m),
        )
    found = rows(x_view)
    reasons = []
    for index in fitting:
        reason = variants[index].refuses(x_view, found)
        if not reason and found is not None:
            return index, x, x_view, found
        reasons.append(reason)
    copy = library_of(x).contiguous(x)
    copy_view = view(copy)
    copied = rows(copy_view)
    for index in fitting:
        reason = variants[index].refuses(copy_view, copied)
        if not reason and copied is not None:
            warnings.warn(
                f"x is copied at every call: it has {reasons[0]}", RuntimeWarning, stacklevel=5
            )
            return index, copy, copy_view, copied
    raise LaunchError(
        f"x has {reasons[0]}, a copy still {reason}",
        at=f"x: {x_view}",
        hint="compile the operator for any strides",
    )


def _instead(variants: Sequence[Variant], m: int) -> str:
    """What to do with a number of rows that no kernel takes."""
    grids = [variant.most_rows for variant in variants if variant.plan.m_range[1] is None]
    if grids and all(most is not None and most < m for most in grids):
        return f"one launch covers no more: call with at most {max(filter(None, grids))} rows at a time"
    return "compile the operator with m=None for any number of rows"


def _range(variant: Variant) -> str:
    low, high = variant.plan.m_range[0], variant.most_rows
    return f"{low} or more" if high is None else f"{low} to {high}"


def _check_out(variant: Variant, shape: tuple[int, ...], y: ArrayView, x: ArrayView) -> Rows:
    op = variant.plan.op
    check_dtype("out", y, op.out.name)
    if tuple(y.shape) != shape:
        raise ShapeError(
            f"out is {list(y.shape)}, the result {list(shape)}",
            at="out",
            hint="leave out=None, and an array is made",
        )
    check_writable(y.owner)
    check_place("out", y, x)
    found = rows(y)
    strided = variant.lowered.parameter("y_stride_m") is not None
    if found is None or found.stride_k != 1 or not _rows_apart(found, op.n, strided=strided):
        raise LaunchError(
            f"out has strides {list(y.strides)}",
            at=f"out: {y}",
            hint="rows must be dense and apart"
            + ("" if strided else ", one directly after the other"),
        )
    if found.m and Span.of(y, found).overlaps(Span.of(x, rows(x))):
        raise LaunchError("out overlaps x", at=f"out: {y}", hint="give out memory of its own")
    return found


def check_writable(out: Any) -> None:
    """Refuse a NumPy array that is frozen.

    Raises:
        LaunchError: it is.
    """
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise LaunchError("out is read-only", at="out", hint="give an array that may be written to")


def _rows_apart(found: Rows, n: int, *, strided: bool) -> bool:
    return found.m <= 1 or (found.stride_m >= n if strided else found.stride_m == n)


class Span(NamedTuple):
    """Addresses from ``first`` up to, not including, ``last``."""

    first: int
    last: int

    @classmethod
    def of(cls, found: ArrayView, lines: Rows | None) -> Span:
        """The addresses of an array whose rows were found."""
        assert lines is not None
        size = numpy_dtype(found.dtype).itemsize
        extent = found.shape[-1] if found.shape else 1
        last = (lines.m - 1) * lines.stride_m + (extent - 1) * lines.stride_k + 1
        return cls(found.pointer, found.pointer + last * size)

    def overlaps(self, other: Span) -> bool:
        """Whether an address is in both."""
        return self.first < other.last and other.first < self.last


def _check_row_scale(op: OperatorLike, x_scale: Any, x: ArrayView) -> int:
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


def _check_bias(variant: Variant, bias: Any, x: ArrayView) -> int:
    op = variant.plan.op
    if not op.bias:
        raise LaunchError(
            "a bias was given, the operator has none", at="bias", hint="matmul(..., bias=True)"
        )
    if bias is None:
        raise LaunchError(
            "the operator adds a bias, none was given", at="bias", hint=f"give bias [{op.n}]"
        )
    found = view(bias)
    parameter = variant.lowered.parameter("bias")
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
