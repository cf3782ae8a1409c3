"""Scale types: in what the scale of a group is kept."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from ladder.checks import TEXT, shown
from ladder.errors import TypeDeclarationError
from ladder.ttype.arrays import Values, float_limits, round_mantissa


@dataclass(frozen=True, slots=True)
class ScaleType:
    """A format for scales, described by its dtype.

    Attributes:
        name: ``float16``, ``bfloat16``, ``float32``, ``fp8_e4m3fn`` or ``e8m0``.
        dtype: the NumPy dtype of a scale array (ml_dtypes' where NumPy has none).
    """

    name: str
    dtype: np.dtype[Any]

    @property
    def bits(self) -> int:
        """Width of one scale in bits."""
        return 8 * self.dtype.itemsize

    @property
    def mantissa(self) -> int:
        """Stored mantissa bits."""
        return float_limits(self.dtype).mantissa

    @property
    def max(self) -> float:
        """Largest finite scale."""
        return float_limits(self.dtype).max

    @property
    def smallest(self) -> float:
        """Smallest scale above zero."""
        return float_limits(self.dtype).smallest

    @property
    def powers_only(self) -> bool:
        """Whether it holds powers of two alone: no zero, no sign, no mantissa (e8m0)."""
        return self.mantissa == 0

    def round(self, scales: Values) -> Values:
        """Scales as this type holds them, as float64: to nearest, ties to even; e8m0 **rounds up**.

        Rounding up keeps every weight of the group in range: ``2**ceil(log2(amax / max))``. (The rule
        of OCP Microscaling v1.0, 6.3, ``floor(log2(amax)) - emax``, lets the largest weights of a group
        saturate.) A result beyond ``max`` is returned as it is, for the caller to refuse.
        """
        limits = float_limits(self.dtype)
        if not self.powers_only:
            return round_mantissa(scales, limits.mantissa, limits.min_exponent)
        fraction, exponent = np.frexp(
            scales
        )  # scales = fraction * 2**exponent, fraction in [0.5, 1)
        ceiling = exponent - (fraction == 0.5)
        ceiling = np.where(scales > 0, ceiling, limits.min_exponent)
        power: Values = np.ldexp(1.0, np.maximum(ceiling, limits.min_exponent))
        return power

    def after(self, scales: Values) -> Values:
        """The next larger scale of each, as float64; scales are this type's and not negative."""
        word = np.dtype(f"uint{self.bits}")
        patterns = scales.astype(self.dtype).view(word) + word.type(1)
        following: Values = patterns.view(self.dtype).astype(np.float64)
        return following

    def __str__(self) -> str:
        return self.name


#: scale types by name; float32 is also the second level of nvfp4
SCALE_TYPES = MappingProxyType(
    {
        scale.name: scale
        for scale in (
            ScaleType("float16", np.dtype(np.float16)),
            ScaleType("bfloat16", np.dtype(ml_dtypes.bfloat16)),
            ScaleType("float32", np.dtype(np.float32)),
            ScaleType("fp8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn)),
            ScaleType("e8m0", np.dtype(ml_dtypes.float8_e8m0fnu)),
        )
    }
)


def scale_type(name: str) -> ScaleType:
    """The scale type of that name.

    Raises:
        TypeDeclarationError: there is none.
    """
    if not TEXT.fits(name) or name not in SCALE_TYPES:
        raise TypeDeclarationError(
            f"unknown scale type {shown(name)}",
            at="scale",
            hint=f"scales come as {', '.join(SCALE_TYPES)}",
        )
    return SCALE_TYPES[name]
