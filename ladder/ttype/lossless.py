"""Whether decoding keeps every value: computed by trying them all, never looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from ladder.checks import accept, one_of
from ladder.errors import TypeDeclarationError
from ladder.ttype.arrays import Bools, Values, as_values, where
from ladder.ttype.compute import ComputeType
from ladder.ttype.element import TType
from ladder.ttype.group import GroupedType
from ladder.ttype.resolve import compute_type, weight_type
from ladder.ttype.scale import ScaleType

ScaleOn = Literal["accumulator", "operand"]
SCALE_ON = one_of(("accumulator", "operand"))


@dataclass(frozen=True, slots=True)
class Exact:
    """Every decoded operand is a value of the compute type."""

    is_exact: ClassVar[bool] = True

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Example:
    """One operand: ``value`` is what it means, ``decoded`` what the compute type makes of it."""

    code: int
    value: float
    decoded: float
    scale: float = 1.0

    def __str__(self) -> str:
        times = "" if self.scale == 1.0 else f" with scale {self.scale:g}"
        return f"code {self.code}{times} means {self.value:.9g}, becomes {self.decoded:.9g}"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Some operands are rounded.

    Attributes:
        count: how many of the ``total`` operands that were tried.
        worst: the largest relative error, 1.0 where a value vanishes.
        example: the operand that has it.
    """

    count: int
    total: int
    worst: float
    example: Example

    is_exact: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"rounds {self.count} of {self.total}, by at most {self.worst:.3g}: {self.example}"


@dataclass(frozen=True, slots=True)
class MayOverflow:
    """Some operand is beyond the compute type's range."""

    example: Example

    is_exact: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"may overflow: {self.example}"


Losslessness = Exact | Rounds | MayOverflow


def losslessness(
    weight: GroupedType | TType | ComputeType | str,
    compute: ComputeType | str,
    *,
    scale_on: ScaleOn = "accumulator",
    scales: ArrayLike | None = None,
) -> Losslessness:
    """Does the compute type hold the decoded operands of a weight?

    The answer concerns operands alone; accumulators and outputs follow IEEE 754. NaN codes, which no
    weight may hold, take no part.

    Args:
        weight: an element, or a grouped type, also by name.
        compute: what the operand is decoded to.
        scale_on: with ``accumulator``, scale and zero are applied to the accumulators, and the operand is
            ``v[q]``. With ``operand`` it is the weight, such as ``s * (v[q] - v[z])``; the scale of a second
            level belongs to the accumulators in any case.
        scales: the scales that occur; by default each one that the scale type has above zero.

    With float32 scales every 2**e and every largest value below the next is tried: their products
    with a value overflow, and round, exactly if those of any scale do. A zero in float or rescaled form may
    be anything, so on the operand it may overflow.

    >>> str(losslessness("int4", "float16"))
    'exact'

    Raises:
        TypeDeclarationError: a type is unknown, ``scale_on`` is neither, or scales are no finite numbers.
    """
    wt, target = weight_type(weight), compute_type(compute)
    accept(scale_on, SCALE_ON, "scale_on", at="losslessness", error=TypeDeclarationError)
    if scales is not None:
        scales = _given_scales(scales, wt)
    values, codes = _values(wt.element)
    if scale_on == "accumulator" or wt.scale_type is None:
        return _judge(values, codes, np.ones(1), target)
    if wt.zero in ("float", "rescaled"):
        return _unbounded(wt.element, wt.scale_type, target)
    if wt.zero == "integer":
        values, codes = _differences(values, codes)
    tried = _scale_values(wt.scale_type) if scales is None else np.asarray(scales)
    return _judge(values, codes, np.unique(tried), target)


def _given_scales(scales: ArrayLike, wt: GroupedType) -> Values:
    """Scales as a flat float64 array, at least one and all finite."""
    given = as_values(scales, at=f"scales of {wt}").reshape(-1)
    if not given.size or not np.isfinite(given).all():
        what = "none" if not given.size else f"not finite in {where(~np.isfinite(given))}"
        raise TypeDeclarationError(
            f"scales are {what}",
            at=f"losslessness of {wt}",
            hint="give the scales that occur, or None for all of the type",
        )
    return given


#: products that are looked at together
_CHUNK = 1 << 20


def _judge(values: Values, codes: Values, scales: Values, target: ComputeType) -> Losslessness:
    """Every product of a scale and a value; the largest scales come first, as overflow ends it."""
    count = 0
    worst, example = 0.0, None
    for some in _chunks(scales[::-1], max(1, _CHUNK // len(values))):
        products = some[:, None] * values
        decoded = target.round(products)
        lost = np.isinf(decoded) & (np.isfinite(products) | (not target.is_float))
        if lost.any():
            return MayOverflow(_example(lost, products, decoded, some, codes))
        error = _relative_error(products, decoded)
        count += int(np.count_nonzero(error))
        if error.max() > worst:
            worst = float(error.max())
            example = _example(error == worst, products, decoded, some, codes)
    if example is None:
        return Exact()
    return Rounds(count, values.size * scales.size, worst, example)


def _example(
    picked: Bools, products: Values, decoded: Values, scales: Values, codes: Values
) -> Example:
    """The first of the picked operands, rows by scale and columns by code."""
    i, j = np.unravel_index(int(np.argmax(picked)), picked.shape)
    return Example(int(codes[j]), float(products[i, j]), float(decoded[i, j]), float(scales[i]))


def _relative_error(exact: Values, decoded: Values) -> Values:
    off = np.zeros_like(exact)
    finite = np.isfinite(exact) & (exact != 0)
    np.subtract(decoded, exact, out=off, where=finite)
    np.divide(np.abs(off), np.abs(exact), out=off, where=finite)
    return off


def _chunks(scales: Values, step: int) -> Iterator[Values]:
    for start in range(0, len(scales), step):
        yield scales[start : start + step]


def _values(element: TType) -> tuple[Values, Values]:
    codes = np.array(element.number_codes, np.float64)
    return element.values[list(element.number_codes)], codes


def _differences(values: Values, codes: Values) -> tuple[Values, Values]:
    """All ``v[q] - v[z]`` up to sign, each with a code q that gives it."""
    finite = np.isfinite(values)
    values, codes = values[finite], codes[finite]
    table = np.abs(values[:, None] - values)
    unique, first = np.unique(table, return_index=True)
    return unique, codes[first // len(values)]


def _scale_values(scale: ScaleType) -> Values:
    """Every scale above zero; of float32 those that decide (see :func:`losslessness`)."""
    if scale.bits <= 16:
        patterns = np.arange(2**scale.bits, dtype=f"uint{scale.bits}")
    else:
        starts = np.arange(2**8, dtype=np.uint32) << np.uint32(23)
        subnormals = np.uint32(1) << np.arange(23, dtype=np.uint32)
        patterns = np.concatenate([starts, starts[1:] - np.uint32(1), subnormals])
    with np.errstate(invalid="ignore"):
        scales = patterns.view(scale.dtype).astype(np.float64)
    return scales[np.isfinite(scales) & (scales > 0)]


def _unbounded(element: TType, scale: ScaleType, target: ComputeType) -> MayOverflow:
    """The extreme weight of a zero that may be any number of the scale's type."""
    values, codes = _values(element)
    weight = -scale.max * scale.max
    return MayOverflow(
        Example(int(codes[np.argmin(values)]), weight, float(target.round(weight)), scale.max)
    )
