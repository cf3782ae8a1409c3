"""Where a zero point is taken off: from the accumulators by activation sums, or from the weights in registers.

``sums``      y += s * (alpha * acc + (beta - z) * sum)     one more mma a step, whatever the row tiles
``register``  lane' = lane * 2^shift + (beta - z) * 2^shift / alpha, one fma of two lanes per register

The second form needs every difference ``(v - z) * 2^shift / alpha`` to be a number of the compute type, which is checked
here by enumeration; the accumulators then apply ``alpha / 2^shift`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ladder.decode.program import Affine

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing
    from ladder.scheduler.plan import Plan

#: shifts that are tried, best first: lanes that are far from the subnormals of float16
_SHIFTS = (14, 12, 10, 8, 6, 4, 2, 0)
#: exponent of the largest power of two of bfloat16, whose range has room for lanes that are the differences themselves
_MOST_SHIFT = 127

_DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def register_shifts(packing: Packing) -> tuple[tuple[int, int], ...] | None:
    """:func:`find_shifts`, worked out once for a packing."""
    return packing.readings.shifts


def find_shifts(packing: Packing) -> tuple[tuple[int, int], ...] | None:
    """``[classes][2]`` shifts that make subtraction in registers exact, or None where no shift does."""
    if packing.weight.zero not in (None, "integer"):
        return None
    values = packing.element.values
    values = values[np.isfinite(values)]
    zeros = values if packing.weight.zero == "integer" else np.zeros(1)
    differences = np.unique(values[:, None] - zeros[None, :])
    dtype = _DTYPES.get(packing.program.compute)
    if dtype is None:
        return None  # an fma of two lanes takes numbers of 16 bits
    least = _least_factor(packing)
    shifts = []
    for pair in packing.program.affine:
        found = tuple(_shift(a, differences, zeros, dtype, _shifts(a, least)) for a in pair)
        if None in found:
            return None
        shifts.append((found[0] or 0, found[1] or 0))
    return tuple(shifts)


def deferred(plan: Plan) -> tuple[tuple[Affine, ...], ...]:
    """What the accumulators of a plan have to apply, or its S and Z, as :attr:`~ladder.decode.program.DecodeProgram.affine`."""
    affine = plan.program.affine
    shifts = register_shifts(plan.reading) if plan.zero == "register" else None
    if shifts is None:
        return affine
    return tuple(
        (shifted(g, a), shifted(h, b)) for (g, h), (a, b) in zip(affine, shifts, strict=True)
    )


def betas(pair: tuple[Affine, ...]) -> tuple[Fraction, Fraction]:
    """The zeros that a class defers for rows g and rows g+8."""
    g, h = pair
    return g.beta, h.beta


def shifted(affine: Affine, shift: int) -> Affine:
    """What is left to the accumulators after subtraction in registers."""
    return Affine(affine.alpha / power(shift))


def power(shift: int) -> Fraction:
    """``2^shift``."""
    return Fraction(2) ** shift


def _least_factor(packing: Packing) -> int | None:
    """Exponent of the factor that bfloat16 lanes leave to the accumulators, of all classes and rows alike, 0 if it can be."""
    if packing.program.compute != "bfloat16":
        return None
    return max([0, *(_exponent(a) - _MOST_SHIFT for pair in packing.program.affine for a in pair)])


def _shifts(affine: Affine, least: int | None) -> Sequence[int]:
    """Shifts that are tried for a deferred map."""
    return _SHIFTS if least is None else (_exponent(affine) - least, *_SHIFTS)


def _exponent(affine: Affine) -> int:
    """Exponent of a factor, rounded down."""
    alpha = abs(affine.alpha)
    exponent = alpha.numerator.bit_length() - alpha.denominator.bit_length()
    return exponent - (power(exponent) > alpha)


def _shift(
    affine: Affine,
    differences: NDArray[np.float64],
    zeros: NDArray[np.float64],
    dtype: np.dtype[np.generic],
    shifts: Sequence[int],
) -> int | None:
    for shift in shifts:
        unit = power(shift) / affine.alpha
        lanes = differences * float(unit)
        offsets = (float(affine.beta) - zeros) * float(unit)
        if all(_exact(numbers, dtype) for numbers in (lanes, offsets)):
            return shift
    return None


def _exact(numbers: NDArray[np.float64], dtype: np.dtype[np.generic]) -> bool:
    """Whether all numbers are finite values of a dtype, none of them subnormal."""
    finfo: Any = ml_dtypes.finfo  # it carries no types
    limits = finfo(dtype)
    magnitude = np.abs(numbers[numbers != 0])
    in_range = magnitude.size == 0 or (
        magnitude.max() <= float(limits.max) and magnitude.min() >= float(limits.smallest_normal)
    )
    return bool(in_range and np.all(numbers.astype(dtype).astype(np.float64) == numbers))
