"""Compute types: what a tensor core multiplies, and what its results are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from ladder.ttype.arrays import (
    Array,
    Values,
    as_values,
    float_limits,
    integer_limits,
    is_integer,
    round_mantissa,
)

#: bits of the smallest item of an array
BYTE = 8


@dataclass(frozen=True, slots=True)
class ComputeType:
    """A type that instructions compute with.

    Attributes:
        name: a name of :data:`COMPUTE_TYPES`.
        dtype: the NumPy dtype of numbers of it (ml_dtypes' for bfloat16, the 8-bit floats and the 4-bit integers).
    """

    name: str
    dtype: np.dtype[Any]

    @property
    def bits(self) -> int:
        """Width of one value in bits."""
        whole = BYTE * self.dtype.itemsize
        return whole if self.is_float else integer_limits(self.dtype).bits

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return not is_integer(self.dtype)

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(
            float_limits(self.dtype).max if self.is_float else integer_limits(self.dtype).max
        )

    @property
    def min(self) -> float:
        """Smallest finite value."""
        return float(
            float_limits(self.dtype).min if self.is_float else integer_limits(self.dtype).min
        )

    @property
    def per_item(self) -> int:
        """Values of one item of an array as kernels read it: 1, or as many as fill a byte."""
        return max(1, BYTE // self.bits)

    @property
    def storage(self) -> np.dtype[Any]:
        """The NumPy dtype of such arrays: that of the numbers, or bytes that hold several."""
        return self.dtype if self.per_item == 1 else np.dtype(np.uint8)

    def items(self, k: int) -> int:
        """Items of a row of ``k`` values: the last byte of an odd number of 4-bit ones is half empty."""
        return -(-k // self.per_item)

    def pack(self, values: Array) -> Array:
        """Numbers ``[..., k]`` as kernels read them, ``[..., items(k)]`` of :attr:`storage`: the first value lowest.

        What a last byte does not need is 0.
        """
        given = np.asarray(values).astype(self.dtype, copy=False)
        if self.per_item == 1:
            return given
        k = given.shape[-1]
        codes = np.zeros((*given.shape[:-1], self.items(k) * self.per_item), np.uint8)
        codes[..., :k] = np.ascontiguousarray(given).view(np.uint8) & self._ones
        parts = [codes[..., i :: self.per_item] << self.bits * i for i in range(self.per_item)]
        return np.asarray(np.bitwise_or.reduce(parts))

    def unpack(self, items: Array, k: int) -> Array:
        """The inverse of :meth:`pack`: ``[..., items(k)]`` -> ``[..., k]`` of :attr:`dtype`."""
        if self.per_item == 1:
            return items
        codes = np.empty((*items.shape[:-1], items.shape[-1] * self.per_item), np.uint8)
        for i in range(self.per_item):
            codes[..., i :: self.per_item] = items >> self.bits * i & self._ones
        return np.ascontiguousarray(codes[..., :k]).view(self.dtype)

    @property
    def _ones(self) -> int:
        """Ones for the bits of a value in a byte, at bit 0."""
        return (1 << self.bits) - 1

    def round(self, values: ArrayLike) -> Values:
        """The nearest value of this type as float64, ties to even; what overflows is infinite.

        An integer has no infinity: there too it says that the value does not fit.
        """
        given = as_values(values, at=self.name)
        if self.is_float:
            limits = float_limits(self.dtype)
            rounded = round_mantissa(given, limits.mantissa, limits.min_exponent)
        else:
            rounded = np.rint(given)
        rounded = np.where(rounded > self.max, np.inf, rounded)
        return np.where(rounded < self.min, -np.inf, rounded)

    def __str__(self) -> str:
        return self.name


float16 = ComputeType("float16", np.dtype(np.float16))
bfloat16 = ComputeType("bfloat16", np.dtype(ml_dtypes.bfloat16))
float32 = ComputeType("float32", np.dtype(np.float32))
int8 = ComputeType("int8", np.dtype(np.int8))
fp8_e4m3fn = ComputeType("fp8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn))
fp8_e5m2 = ComputeType("fp8_e5m2", np.dtype(ml_dtypes.float8_e5m2))
int4 = ComputeType("int4", np.dtype(ml_dtypes.int4))
uint4 = ComputeType("uint4", np.dtype(ml_dtypes.uint4))

COMPUTE_TYPES: tuple[ComputeType, ...] = (
    *(float16, bfloat16, float32),
    *(int8, fp8_e4m3fn, fp8_e5m2),
    *(int4, uint4),
)
