"""Quantise: from weights to codes, scales and zeros, by the range of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.parallel import each
from ladder.ttype.arrays import Array, Bools, Codes, Values, as_array, as_values, where
from ladder.ttype.compute import ComputeType
from ladder.ttype.element import TType
from ladder.ttype.group import GroupedType
from ladder.ttype.quantized import Quantized, row_chunks, spread
from ladder.ttype.resolve import weight_type
from ladder.ttype.scale import SCALE_TYPES, ScaleType

#: weights from which on rows are quantised in several threads, and about so many together
LARGE = 1 << 20
PART_WEIGHTS = 1 << 20


def quantize(weights: ArrayLike, wt: GroupedType | TType | ComputeType | str) -> Quantized:
    """Quantise ``weights`` [N, K] to ``wt``, to nearest within each group.

    * Without a zero the scale is the smallest at which the largest and the smallest weight of the group
      lie within the element's finite range: ``amax / 6`` for fp4, ``max(max / 7, -min / 8)`` for int4.
    * With a zero the range of the group, widened to include 0, is laid over the element's range. The zero
      is a value of the element in all conventions, so that a weight of 0 stays exactly 0 unless a float or
      rescaled zero had to be rounded to the scale's type.
    * The scale is rounded to nearest in its type, or up where the weights at an end would else be more than
      half a step off; e8m0 always rounds up, so that nothing saturates. Hence ``|w - dequantised|`` is at
      most half the element's largest gap times the scale; the rounding of the zero comes on top.
    * Without a zero, weights of a sign that the element lacks saturate (negative ones in uint4, at 0).
    * A group of zeros decodes to exact zeros (bipolar types under e8m0, where neither has a zero, come as
      close as 2**-127); groups too small for the scale type take its smallest scale.
    * Short last groups are groups of their own: no padding enters a minimum or maximum.
    * With a second level (nvfp4) the tensor's scale brings the largest group scale to 448.

    Raises:
        ShapeError: weights are not [N, K].
        TypeDeclarationError: a weight is not finite, or too large for the scale type.
    """
    wt = weight_type(wt)
    given = _weights(weights, wt)
    whole = slice(0, given.shape[0])
    if wt.second is not None or given.size < LARGE:
        return _joined(wt, [_rows(given, whole, wt)])
    try:
        return _joined(wt, each(lambda rows: _rows(given, rows, wt), _parts(given, wt)))
    except TypeDeclarationError:
        return _joined(wt, [_rows(given, whole, wt)])  # raises with places in the whole weight


@dataclass(frozen=True, slots=True)
class _Spans:
    """Smallest and largest weight of each group, 0 included: float64 [N/rows, K/columns]."""

    low: Values
    high: Values


@dataclass(frozen=True, slots=True)
class _Affine:
    """What a code has to mean in each group: ``weight = scale * (value - offset)``."""

    scale: Values
    offset: Values


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows of a weight, quantised."""

    codes: Codes
    scales: Array | None = None
    zeros: Array | None = None
    global_scale: float | None = None


def _parts(weights: Array, wt: GroupedType) -> list[slice]:
    """Rows that are quantised together: whole groups, about :data:`PART_WEIGHTS`."""
    n, k = weights.shape
    rows, _ = wt.group_extents(n, k)
    step = max(1, PART_WEIGHTS // (k * rows)) * rows
    return [slice(first, min(n, first + step)) for first in range(0, n, step)]


def _rows(weights: Array, rows: slice, wt: GroupedType) -> _Part:
    """Quantise some rows, whose groups are all theirs."""
    given = _finite(weights[rows], wt)
    if wt.scale_type is None:
        return _Part(_encode(given, wt, None))
    spans = _spans(given, wt)
    fit = _fit(spans, wt.element, asymmetric=wt.zero is not None)
    global_scale = _global_scale(fit, wt, wt.scale_type)
    scales, zero_codes = _metadata(spans, fit, global_scale, wt, wt.scale_type)
    full = scales * global_scale
    zeros = _stored_zeros(zero_codes, full, wt)
    codes = _encode(given, wt, _Affine(full, _offsets(zeros, full, wt)))
    return _Part(
        codes,
        scales.astype(wt.scale_type.dtype),
        zeros,
        global_scale if wt.second else None,
    )


def _joined(wt: GroupedType, parts: list[_Part]) -> Quantized:
    """Parts of a weight, one below the other."""

    def whole(arrays: list[Array | None]) -> Array | None:
        given = [one for one in arrays if one is not None]
        return (given[0] if len(given) == 1 else np.concatenate(given)) if given else None

    codes = whole([part.codes for part in parts])
    assert codes is not None
    codes.setflags(write=False)
    return Quantized(
        wt,
        codes,
        scales=whole([part.scales for part in parts]),
        zeros=whole([part.zeros for part in parts]),
        global_scale=parts[0].global_scale,
    )


def _weights(weights: ArrayLike, wt: GroupedType) -> Array:
    """An array [N, K] of real numbers."""
    given = as_array(weights, at=wt)
    if given.ndim != 2 or 0 in given.shape:
        raise ShapeError(
            f"weights are [N, K] with N, K >= 1, found {list(given.shape)}",
            at=wt,
            hint="output channels first; a stack of weights is quantised one by one",
        )
    if given.dtype.kind in "cOSU":
        as_values(given, at="quantize")  # refuses it
    return given


def _finite(weights: Array, wt: GroupedType) -> Array:
    """Floats without NaN and infinities; float32 and float64 are not copied, numbers of 16 bits become float32."""
    given = weights
    if given.dtype not in (np.float32, np.float64):
        is_short = given.dtype.itemsize == 2 and given.dtype.kind in "fV"
        given = given.astype(np.float32) if is_short else as_values(given, at="quantize")
    finite = np.isfinite(given)
    if not finite.all():
        raise TypeDeclarationError(
            f"weights are not finite in {where(~finite)}",
            at=wt,
            hint="no scale fits NaN or infinity: replace them first",
        )
    return given


def _spans(weights: Array, wt: GroupedType) -> _Spans:
    """Reduce to groups by their first rows and columns; a short last group just ends early."""
    rows, columns = (
        np.arange(0, extent, step)
        for extent, step in zip(weights.shape, wt.group_extents(*weights.shape), strict=True)
    )
    low = np.minimum.reduceat(np.minimum.reduceat(weights, columns, axis=1), rows, axis=0)
    high = np.maximum.reduceat(np.maximum.reduceat(weights, columns, axis=1), rows, axis=0)
    return _Spans(np.minimum(low, 0).astype(np.float64), np.maximum(high, 0).astype(np.float64))


def _fit(spans: _Spans, element: TType, *, asymmetric: bool) -> Values:
    """The smallest scale at which each group lies within the element's range; 0 for a group of zeros."""
    if asymmetric and element.max > element.min:
        width = element.max - element.min
        return spans.high / width - spans.low / width
    up = spans.high / element.max if element.max > 0 else np.zeros_like(spans.high)
    down = spans.low / element.min if element.min < 0 else np.zeros_like(spans.low)
    return np.maximum(up, down)


def _global_scale(fit: Values, wt: GroupedType, scale: ScaleType) -> float:
    """The second-level scale, 1 where there is none."""
    largest = float(fit.max())
    if wt.second is None or largest == 0:
        return 1.0
    return max(float(np.float32(largest / scale.max)), SCALE_TYPES["float32"].smallest)


def _metadata(
    spans: _Spans, fit: Values, global_scale: float, wt: GroupedType, scale: ScaleType
) -> tuple[Values, Codes | None]:
    """Scales as float64 and zeros as codes of the element."""
    element = wt.element
    wanted = fit / global_scale
    scales = scale.round(wanted)
    if element.has_zero or wt.zero is not None:
        scales = np.where(fit > 0, np.maximum(scales, scale.smallest), 1.0)
    elif scale.powers_only:
        scales = np.maximum(scales, scale.smallest)
    _check_overflow(scales, wanted, scale, wt)
    zeros = _zero_codes(spans, scales * global_scale, wt)
    short = ~_covered(spans, scales * global_scale, zeros, element) & (scales < wanted)
    if short.any():
        scales = np.where(short, scale.after(scales), scales)
        _check_overflow(scales, wanted, scale, wt)
        zeros = _zero_codes(spans, scales * global_scale, wt)
    return scales, zeros


def _zero_codes(spans: _Spans, full: Values, wt: GroupedType) -> Codes | None:
    """The code that stands for 0 in each group; ``pad_code`` in a group of zeros."""
    if wt.zero is None:
        return None
    element = wt.element
    codes = element.encode(np.clip(element.min - spans.low / full, element.min, element.max))
    empty = (spans.low == 0) & (spans.high == 0)
    return np.where(empty, np.uint8(element.pad_code), codes)


def _covered(spans: _Spans, full: Values, zeros: Codes | None, element: TType) -> Bools:
    """Whether both ends of a group are at most half a step beyond the element's range."""
    ends = np.unique(element.values[np.isfinite(element.values)])
    first, last = (ends[1] - ends[0], ends[-1] - ends[-2]) if len(ends) > 1 else (0.0, 0.0)
    offset = 0.0 if zeros is None else element.values[zeros]
    above = spans.high > full * (element.max + last / 2 - offset)
    below = spans.low < full * (element.min - first / 2 - offset)
    if zeros is None:  # a side that the element lacks cannot be covered
        above &= element.max > 0
        below &= element.min < 0
    covered: Bools = ~(above | below)
    return covered


def _stored_zeros(codes: Codes | None, full: Values, wt: GroupedType) -> Array | None:
    """Zeros as :class:`Quantized` keeps them: codes, or numbers as the scale type rounds them."""
    if codes is None or wt.zero == "integer" or wt.scale_type is None:
        return codes
    values = wt.element.values[codes]
    return wt.scale_type.round(full * values if wt.zero == "rescaled" else values)


def _offsets(zeros: Array | None, full: Values, wt: GroupedType) -> Values:
    """The offset that turns each convention into ``weight = full * (value - offset)``."""
    if zeros is None:
        return np.zeros_like(full)
    if wt.zero == "integer":
        return wt.element.values[zeros]
    offset: Values = zeros / full if wt.zero == "rescaled" else zeros
    return offset


def _check_overflow(scales: Values, wanted: Values, scale: ScaleType, wt: GroupedType) -> None:
    beyond = ~(scales <= scale.max)
    if beyond.any():
        raise TypeDeclarationError(
            f"a group needs a scale of {wanted.max():.4g}, and {scale} ends at {scale.max:.6g}: "
            f"{where(beyond)}",
            at=wt,
            hint="use bfloat16 or float32 scales, or bring the weights into range",
        )


def _encode(weights: Array, wt: GroupedType, affine: _Affine | None) -> Codes:
    """Codes of all weights, some rows at a time."""
    shape = (weights.shape[0], weights.shape[1])
    codes = np.empty(shape, wt.element.code_dtype)
    for rows in row_chunks(shape):
        targets = weights[rows].astype(np.float64)
        if affine is not None:
            _apply(affine, targets, wt.group_extents(*shape), shape, rows)
        codes[rows] = wt.element.encode(targets)
    return codes


def _apply(
    affine: _Affine, targets: Values, extents: tuple[int, int], shape: tuple[int, int], rows: slice
) -> None:
    """``targets / scale + offset`` in place; a scale of 0 divides nothing."""
    height, width = extents
    if height == 1 and shape[1] % width == 0:  # groups are an axis: nothing has to be spread out
        groups = targets.reshape(targets.shape[0], -1, width)
        scale, offset = affine.scale[rows][..., None], affine.offset[rows][..., None]
    else:
        groups, scale = targets, spread(affine.scale, extents, shape, rows)
        offset = spread(affine.offset, extents, shape, rows)
    is_zero = scale == 0
    if is_zero.any():
        scale = np.where(is_zero, 1.0, scale)
    groups /= scale
    if offset.any():
        groups += offset
