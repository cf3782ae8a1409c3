"""The unit of a weight that is scaled in registers: a power of two, 2^e, that keeps scaled codes in the compute type's range.

A kernel that applies group scales to decoded weights, before the tensor cores, multiplies a decoded lane by
``S = s * alpha * 2^-e`` and adds ``Z = (beta - z) * s * 2^-e``, both rounded to the compute type; the float32 sums are
multiplied by 2^e once, at the end. ``alpha`` and ``beta`` are what decoding deferred (2^24 for codes that are read as
subnormals of float16). Packing chooses e from the largest scale, so that neither S, Z nor any product overflows, and that
small groups lie as far above the subnormals as the large ones allow.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing

#: exponents of 2 that the largest of S, Z and the products may have: a factor of two below the type's largest number
_TOP = {"float16": 15, "bfloat16": 126}
#: compute types whose range is so wide that large numbers only move towards the overflow of float32 sums
_WIDE = frozenset({"bfloat16"})

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def unit_of(packing: Packing, scales: NDArray[Any], zeros: NDArray[Any] | None) -> NDArray[Any]:
    """The array ``unit`` float32 ``[2]`` of packed scales and zeros."""
    assert packing.scale_dtype is not None
    zero = None
    if zeros is not None:
        assert packing.zero_dtype is not None
        zero = _largest(zeros, packing.zero_dtype)
    pair = unit_for(packing, _largest(scales, packing.scale_dtype), zero)
    return np.asarray(pair, np.float32)


def unit_for(packing: Packing, scale: float, zero: float | None) -> tuple[float, float]:
    """``(2^-e, 2^e)`` for the largest magnitudes of scales and, where there are some, zeros."""
    values = packing.element.values
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    affine = [a for pair in packing.readings.scaled.program.affine for a in pair]
    alpha = max(abs(float(a.alpha)) for a in affine)
    beta = max(abs(float(a.beta)) for a in affine)
    taken = 0.0 if zero is None else zero
    if packing.weight.zero == "rescaled":
        most = max(alpha * scale, beta * scale + taken, largest * scale + taken)
    else:
        most = scale * max(alpha, beta + taken, largest + taken)
    if most == 0.0:
        return 1.0, 1.0
    compute = packing.program.compute
    exponent = math.frexp(most)[1] - _TOP[compute]
    if compute in _WIDE:
        exponent = max(0, exponent)
    exponent = min(max(exponent, -126), 126)
    return math.ldexp(1.0, -exponent), math.ldexp(1.0, exponent)


def _largest(array: NDArray[Any], dtype: np.dtype[Any]) -> float:
    bits = np.ascontiguousarray(array).view(_UNSIGNED[dtype.itemsize])
    magnitude = bits & _UNSIGNED[dtype.itemsize](magnitude_mask(dtype))
    finite = magnitude[magnitude <= largest_finite_bits(dtype)]
    return magnitude_of(int(finite.max(initial=0)), dtype)


@cache
def magnitude_mask(dtype: np.dtype[Any]) -> int:
    """Mask of a float's bits without its sign; floats of one sign are in the order of their bits."""
    ones = (1 << (8 * dtype.itemsize)) - 1
    return ones if _is_unsigned(dtype) else ones >> 1


@cache
def largest_finite_bits(dtype: np.dtype[Any]) -> int:
    """Bits of a float's largest number."""
    finfo: Any = ml_dtypes.finfo  # it carries no types
    return int(np.asarray(finfo(dtype).max, dtype).view(_UNSIGNED[dtype.itemsize]))


def magnitude_of(bits: int, dtype: np.dtype[Any]) -> float:
    """The number with these bits."""
    return float(np.asarray(bits, _UNSIGNED[dtype.itemsize]).view(dtype))


def _is_unsigned(dtype: np.dtype[Any]) -> bool:
    name: str = dtype.name
    return name == "float8_e8m0fnu"
