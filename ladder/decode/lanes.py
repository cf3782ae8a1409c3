"""The lane formats, exactly: the value of each pattern, and for those of 16 bits rounding to nearest even.

Everything is float64, which holds every lane value, and every product of two of them, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import ml_dtypes
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]

#: PTX ISA: a NaN result of fma.f16x2 / fma.bf16x2 has this pattern
CANONICAL_NAN = 0x7FFF


class Lanes:
    """What every lane format tells: its names, its width in ``bits``, and the value of each pattern."""

    name: str
    bits: int

    @property
    def table(self) -> FloatArray:
        """``float64[2**bits]``: the value of each pattern."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Lanes of a 32-bit register."""
        return 32 // self.bits

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LaneFormat(Lanes):
    """An IEEE-like 16-bit format: 1 sign bit, ``exponent`` bits, ``mantissa`` bits, subnormals kept."""

    name: str
    short: str
    exponent: int
    mantissa: int
    bits: int = field(default=16, init=False)

    def __str__(self) -> str:
        return self.name

    @property
    def bias(self) -> int:
        """What the exponent field is ahead of the exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float((2 - 2.0**-self.mantissa) * 2.0**self.bias)

    @cached_property
    def table(self) -> FloatArray:
        """``float64[65536]``: the value of each pattern."""
        pattern = np.arange(1 << 16)
        top = (1 << self.exponent) - 1
        e = (pattern >> self.mantissa) & top
        m = (pattern & ((1 << self.mantissa) - 1)).astype(np.float64)
        normal = np.ldexp(m + (1 << self.mantissa), np.maximum(e, 1) - self.bias - self.mantissa)
        small = np.ldexp(m, 1 - self.bias - self.mantissa)
        value = np.where(e == 0, small, normal)
        value = np.where(e == top, np.where(m == 0, np.inf, np.nan), value)
        value = np.where(pattern >> 15 == 1, -value, value)
        value.flags.writeable = False
        return value

    def values(self, patterns: npt.NDArray[np.unsignedinteger]) -> FloatArray:
        """The values of 16-bit patterns, same shape."""
        out: FloatArray = np.take(self.table, patterns & np.uint32(0xFFFF))
        return out

    def round(self, x: FloatArray) -> FloatArray:
        """Nearest value of the format, ties to even, overflow to infinity. float64 in and out, same shape."""
        finite = np.where(np.isfinite(x), x, 0.0)
        _, e = np.frexp(finite)
        quantum = np.ldexp(1.0, np.maximum(e - 1, 1 - self.bias) - self.mantissa)
        y = np.rint(finite / quantum) * quantum
        y = np.where(np.abs(y) > self.max, np.copysign(np.inf, y), np.copysign(y, finite))
        return np.where(np.isfinite(x), y, x)

    def patterns(self, x: FloatArray) -> Words:
        """Bits of values that the format holds exactly (NaN becomes the canonical NaN). Same shape."""
        finite = np.where(np.isfinite(x), x, 0.0)
        _, e = np.frexp(finite)
        e = np.maximum(e - 1, 1 - self.bias)
        m = np.abs(np.ldexp(finite, self.mantissa - e)).astype(np.int64)
        magnitude = np.where(m >> self.mantissa == 0, m, m + ((e + self.bias - 1) << self.mantissa))
        magnitude = np.where(np.isinf(x), ((1 << self.exponent) - 1) << self.mantissa, magnitude)
        bits = magnitude | (np.signbit(x).astype(np.int64) << 15)
        return np.where(np.isnan(x), CANONICAL_NAN, bits).astype(np.uint32)

    def holds(self, x: Fraction) -> bool:
        """Whether ``x`` is a value of the format."""
        if x == 0:
            return True
        size, unit = abs(x.numerator), x.denominator.bit_length() - 1
        if x.denominator != 1 << unit:
            return False
        highest = size.bit_length() - 1 - unit
        lowest = (size & -size).bit_length() - 1 - unit
        smallest = 1 - self.bias - self.mantissa
        return lowest >= smallest and highest <= self.bias and highest - lowest <= self.mantissa

    def pattern(self, x: Fraction) -> int:
        """Bits of a value that the format holds; zero is positive."""
        if x == 0:
            return 0
        exponent = x.numerator.bit_length() - x.denominator.bit_length()
        exponent = max(exponent, 1 - self.bias)
        steps = int(abs(x) * Fraction(2) ** (self.mantissa - exponent))
        above = exponent + self.bias - 1 if steps >> self.mantissa else 0
        return (x < 0) << 15 | steps + (above << self.mantissa)


@dataclass(frozen=True)
class NarrowFormat(Lanes):
    """A format of 8 or 4 bits, four or eight lanes to a register: its table is all that there is to know.

    Attributes:
        name: of the compute type.
        bits: width of a lane.
        dtype: name of the NumPy or ml_dtypes type with that table.
    """

    name: str
    bits: int
    dtype: str

    def __str__(self) -> str:
        return self.name

    @cached_property
    def table(self) -> FloatArray:
        """``float64[2**bits]``: the value of each pattern."""
        dtype = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        value = np.arange(1 << self.bits, dtype=np.uint8).view(dtype).astype(np.float64)
        value.flags.writeable = False
        return value


FLOAT16 = LaneFormat("float16", "f16", exponent=5, mantissa=10)
BFLOAT16 = LaneFormat("bfloat16", "bf16", exponent=8, mantissa=7)

INT8 = NarrowFormat("int8", 8, "int8")
E4M3 = NarrowFormat("fp8_e4m3fn", 8, "float8_e4m3fn")
E5M2 = NarrowFormat("fp8_e5m2", 8, "float8_e5m2")
INT4 = NarrowFormat("int4", 4, "int4")
UINT4 = NarrowFormat("uint4", 4, "uint4")

#: by the names of compute types, and by the short names that operations carry
LANE_FORMATS = {f.name: f for f in (FLOAT16, BFLOAT16)}
SHORT_FORMATS = {f.short: f for f in (FLOAT16, BFLOAT16)}
NARROW_FORMATS = {f.name: f for f in (INT8, E4M3, E5M2, INT4, UINT4)}
FORMATS: dict[str, Lanes] = {**LANE_FORMATS, **NARROW_FORMATS}


def small_float_table(exponent: int, mantissa: int, *, finite: bool) -> FloatArray:
    """``float64[256]``: the values of an 8-bit float; ``finite`` ones (e4m3fn) spend only the all-ones code on NaN."""
    code = np.arange(256)
    bias = (1 << (exponent - 1)) - 1
    top = (1 << exponent) - 1
    e = (code >> mantissa) & top
    m = (code & ((1 << mantissa) - 1)).astype(np.float64)
    significand = np.where(e == 0, m, m + (1 << mantissa))
    value = np.ldexp(significand, np.maximum(e, 1) - bias - mantissa)
    if finite:
        value = np.where((e == top) & (m == (1 << mantissa) - 1), np.nan, value)
    else:
        value = np.where(e == top, np.where(m == 0, np.inf, np.nan), value)
    return np.where(code >> 7 == 1, -value, value)
