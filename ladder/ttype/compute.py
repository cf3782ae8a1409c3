"""Compute types: what a tensor core multiplies, and what its results are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from ladder.ttype.arrays import Values, as_values, float_limits, round_mantissa


@dataclass(frozen=True, slots=True)
class ComputeType:
    """A type that instructions compute with.

    Attributes:
        name: ``float16``, ``bfloat16``, ``float32``, ``int8``, ``fp8_e4m3fn`` or ``fp8_e5m2``.
        dtype: the NumPy dtype of arrays of it (ml_dtypes' for bfloat16 and the 8-bit floats).
    """

    name: str
    dtype: np.dtype[Any]

    @property
    def bits(self) -> int:
        """Width of one value in bits."""
        return 8 * self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.dtype.kind != "i"

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(float_limits(self.dtype).max if self.is_float else np.iinfo(self.dtype).max)

    @property
    def min(self) -> float:
        """Smallest finite value."""
        return float(float_limits(self.dtype).min if self.is_float else np.iinfo(self.dtype).min)

    def round(self, values: ArrayLike) -> Values:
        """The nearest value of this type as float64, ties to even; what overflows is infinite.

        An int8 has no infinity: there too it says that the value does not fit.
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

COMPUTE_TYPES: tuple[ComputeType, ...] = (
    *(float16, bfloat16, float32),
    *(int8, fp8_e4m3fn, fp8_e5m2),
)
