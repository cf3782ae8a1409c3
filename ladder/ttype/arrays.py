"""Small NumPy helpers that the types share: read-only arrays, exact rounding, pointing at what is wrong."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.checks import shown
from ladder.errors import TypeDeclarationError

Array = NDArray[Any]
Bools = NDArray[np.bool_]
#: bit patterns: uint8 up to 8 bits, uint16 for 16
Codes = NDArray[np.unsignedinteger[Any]]
Values = NDArray[np.float64]


def read_only(array: ArrayLike, dtype: Any = None) -> Array:
    """An array of ``dtype`` that nobody can write to: a copy, unless it already owns frozen memory."""
    given = np.asarray(array)
    frozen = not given.flags.writeable and given.base is None and given.flags.c_contiguous
    if frozen and dtype in (None, given.dtype):
        return given
    copy = np.array(given, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def as_array(array: ArrayLike, *, at: object) -> Array:
    """``array`` as NumPy's.

    Raises:
        TypeDeclarationError: rows of a nested list differ in length, or a library does not give its numbers away.
    """
    try:
        return np.asarray(array)
    except ValueError as error:
        raise TypeDeclarationError(
            f"the numbers make no array: {error}", at=at, hint="give every row the same length"
        ) from error
    except (TypeError, RuntimeError) as error:  # a tensor on a GPU, or with a gradient
        raise TypeDeclarationError(
            f"{shown(array)} makes no array of NumPy: {error}",
            at=at,
            hint="copy it to the CPU first: tensor.detach().cpu().numpy()",
        ) from error


def as_values(array: ArrayLike, *, at: str) -> Values:
    """``array`` as float64; exact for every float format of up to 64 bits and integers to 2**53.

    Raises:
        TypeDeclarationError: the array does not hold real numbers.
    """
    given = as_array(array, at=at)
    try:
        if given.dtype.kind not in "cOSU":  # complex numbers and texts would lose or gain a meaning
            return given.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise TypeDeclarationError(
        f"expected real numbers, found an array of dtype {given.dtype}",
        at=at,
        hint="pass an array of a float or integer dtype; ml_dtypes' dtypes are welcome",
    )


def where(bad: Bools) -> str:
    """Count and first place of what is wrong: ``3 of 32, first at [0, 5]``."""
    first = ", ".join(str(int(i)) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return f"{int(np.count_nonzero(bad))} of {bad.size}, first at [{first}]"


class FloatLimits(NamedTuple):
    """What NumPy's and ml_dtypes' finfo know of a float dtype, as plain numbers."""

    min: float
    max: float
    smallest: float
    mantissa: int
    min_exponent: int


@cache
def float_limits(dtype: np.dtype[Any]) -> FloatLimits:
    """Limits of a float dtype: range, smallest number above zero, mantissa bits, least exponent."""
    finfo: Any = ml_dtypes.finfo  # which carries no types
    found = finfo(dtype)
    return FloatLimits(
        float(found.min),
        float(found.max),
        float(found.smallest_subnormal),
        int(found.nmant),
        int(found.minexp),
    )


class IntegerLimits(NamedTuple):
    """What ml_dtypes' iinfo knows of an integer dtype."""

    min: int
    max: int
    bits: int


#: integers of fewer than 8 bits, which NumPy does not know for integers
_NIBBLES = frozenset({np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)})


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds integers, those of 4 bits of ml_dtypes among them."""
    return dtype.kind in "iu" or dtype in _NIBBLES


@cache
def integer_limits(dtype: np.dtype[Any]) -> IntegerLimits:
    """Limits of an integer dtype: range and width."""
    iinfo: Any = ml_dtypes.iinfo  # which carries no types
    found = iinfo(dtype)
    return IntegerLimits(int(found.min), int(found.max), int(found.bits))


def round_mantissa(values: Values, mantissa: int, min_exponent: int) -> Values:
    """Round to ``mantissa`` stored bits, ties to even, with subnormals below ``2**min_exponent``.

    One rounding from float64, where a detour over float32 could round twice. Nothing saturates: a
    value beyond the largest of the target format shows as that value.
    """
    _, exponent = np.frexp(values)
    ulp = np.ldexp(1.0, np.maximum(exponent - 1, min_exponent) - mantissa)
    rounded: Values = np.rint(values / ulp) * ulp
    return rounded
