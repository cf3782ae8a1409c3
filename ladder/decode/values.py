"""The value set of an element type, exactly: what every decode program has to produce.

The order of codes does not matter (packing relabels them offline), so a set is kept in ascending order of value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ladder.decode.geometry import WIDTHS
from ladder.decode.lanes import LaneFormat
from ladder.errors import DecodeError, LosslessError


class Element(Protocol):
    """What is asked of an element type (:class:`ladder.ttype.TType` answers it)."""

    @property
    def name(self) -> str:
        """Name of the type."""
        ...

    @property
    def bits(self) -> int:
        """Width of a code, 1..8."""
        ...

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """float64[2**bits]; NaN for NaN codes and unused codes."""
        ...

    @property
    def unused(self) -> tuple[int, ...]:
        """Codes that mean nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Finite values of a type in ascending order, and the codes that have none.

    Attributes:
        name: of the element type; takes no part in equality, since programs depend on values only.
        bits: code width.
        codes: codes with a finite value, ascending by value; minus zero stands before zero.
        values: their values, in the same order.
        special: ``(code, value)`` of codes that mean NaN or infinity.
    """

    name: str = field(compare=False)
    bits: int
    codes: tuple[int, ...]
    values: tuple[Fraction, ...]
    special: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, element: Element) -> ValueSet:
        """The value set of a declared type.

        Raises:
            DecodeError: no decode exists for its width, or no code has a finite value.
        """
        if element.bits not in WIDTHS:
            raise DecodeError(
                f"{element.bits}-bit codes have no decode",
                at=element.name,
                hint=f"widths are {WIDTHS[0]}..{WIDTHS[-1]} bits",
            )
        table = [float(v) for v in element.values]
        if len(table) != 1 << element.bits:
            raise DecodeError(
                f"{len(table)} values for {element.bits}-bit codes",
                at=element.name,
                hint="one value per code",
            )
        finite = [c for c, v in enumerate(table) if math.isfinite(v) and c not in element.unused]
        if not finite:
            raise DecodeError("no code has a finite value", at=element.name)
        finite.sort(key=lambda c: (table[c], math.copysign(1.0, table[c]), c))
        special = tuple(
            (c, v) for c, v in enumerate(table) if not math.isfinite(v) and c not in element.unused
        )
        return cls(
            element.name,
            element.bits,
            tuple(finite),
            tuple(Fraction(table[c]) for c in finite),
            special,
        )

    @property
    def size(self) -> int:
        """Number of codes, with or without a value."""
        return 1 << self.bits

    @property
    def missing(self) -> int:
        """Number of codes without a finite value."""
        return self.size - len(self.codes)

    @property
    def largest(self) -> Fraction:
        """Largest magnitude."""
        return max(abs(self.values[0]), abs(self.values[-1]))

    @property
    def others(self) -> tuple[int, ...]:
        """Codes without a finite value, ascending."""
        known = set(self.codes)
        return tuple(c for c in range(self.size) if c not in known)

    def by_code(self) -> dict[int, Fraction]:
        """``code -> value`` of the finite ones."""
        return dict(zip(self.codes, self.values, strict=True))

    def rounded(self, fmt: LaneFormat) -> ValueSet:
        """The set with every value rounded to nearest even in the lane format.

        Raises:
            LosslessError: a finite value rounds to infinity.
        """
        rounded = []
        for code, value in zip(self.codes, self.values, strict=True):
            near = float(fmt.round(np.float64(float(value))))
            if not math.isfinite(near):
                raise LosslessError(
                    f"code {code} of {self.name} means {float(value)!r}, beyond the largest {fmt.name} ({fmt.max!r})",
                    at=f"decode of {self.name} to {fmt.name}",
                    hint="compute in bfloat16, or declare the values divided by a power of two and put that into the scale",
                )
            rounded.append(Fraction(near))
        return replace(self, values=tuple(rounded))
