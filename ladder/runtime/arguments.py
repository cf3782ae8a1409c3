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
from ladder.runtime.arrays import ArrayView, Rows, library_of, rows, view
from ladder.runtime.operand_checks import (
    Span,
    check_apart,
    check_bias,
    check_dtype,
    check_place,
    check_residual,
    check_row_scale,
    takes_pieces,
)
from ladder.runtime.packed import Packed
from ladder.runtime.variant import Variant


class Operands(NamedTuple):
    """What a call is given: x ``[..., items(k)]``, the packed weight, and what the operator has of the others."""

    x: Any
    packed: Any
    bias: Any = None
    out: Any = None
    x_scale: Any = None
    residual: Any = None


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
        operands: x ``[..., items(k)]``, the packed weight, bias ``[n]`` or None, out ``[..., out_n]`` or None (one is made), x_scale
            ``[...]`` or None, residual ``[..., out_n]`` or None.

    Raises:
        ShapeError: extents do not fit.
        PackingError: the weight was packed otherwise.
        LaunchError: a dtype, device or layout does not fit.
    """
    x, packed, bias, out, x_scale, residual = operands
    op = variants[0].plan.op
    x_view = view(x)
    m = check_x(op, x_view)
    _check_packed(key, packed, x_view)
    if m:
        number, x, x_view, found = choose(variants, x, x_view, m)
    else:  # nothing is read: any layout will do
        number, found = 0, Rows(0, x_view.shape[-1], 1)
    variant = variants[number]
    shape = (*x_view.shape[:-1], op.out_n)
    if out is None:
        out = library_of(x).empty(x, shape, op.stored.dtype.name)
    y_view = view(out)
    y_rows = _check_out(variant, shape, y_view, x_view)
    values = dict(packed.pointers)
    values["x"], values["y"], values["m"] = x_view.pointer, y_view.pointer, m
    values["x_stride_m"], values["x_stride_k"] = found.stride_m, found.stride_k
    values["y_stride_m"] = y_rows.stride_m
    values["y_pieces"] = takes_pieces(y_view, y_rows)
    if x_scale is not None or op.activation_scale:
        values["x_scale"] = check_row_scale(op, x_scale, x_view)
    if bias is not None or op.bias:
        values["bias"] = check_bias(op, variant.lowered.parameter("bias"), bias, x_view)
    if residual is not None or op.residual:
        values |= check_residual(op, residual, x_view, y_view, y_rows)
    beside = {"bias": bias, "x_scale": x_scale}
    whole = dict(packed.views) | {n: view(one) for n, one in beside.items() if one is not None}
    read = {"x": Span.of(x_view, found), **{name: Span.whole(one) for name, one in whole.items()}}
    check_apart("out", Span.of(y_view, y_rows), read)
    return Call(number, variant, x_view, m, values, out)


def check_x(op: Any, x: ArrayView) -> int:
    """The rows of x, after refusing another k or dtype than the operator's."""
    kind = op.activation
    if not x.shape or x.shape[-1] != kind.items(op.k):
        packed = f", {op.k} numbers of {kind.name} in bytes" if kind.per_item > 1 else ""
        raise ShapeError(
            f"x is {list(x.shape)}, the operator takes [..., {kind.items(op.k)}]{packed}",
            at="x",
            hint="k comes last",
        )
    check_dtype("x", x, kind.storage.name)
    return prod(x.shape[:-1])


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
    check_dtype("out", y, op.stored.dtype.name)
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
    if found is None or found.stride_k != 1 or not _rows_apart(found, op.out_n, strided=strided):
        raise LaunchError(
            f"out has strides {list(y.strides)}",
            at=f"out: {y}",
            hint="rows must be dense and apart"
            + ("" if strided else ", one directly after the other"),
        )
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
