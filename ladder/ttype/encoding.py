"""Encodings: short ways of writing a value table down.

An encoding knows its width in ``bits`` and writes ``table()``: one value per code, ``None`` where a
code is never used. Everything else about a type is derived from that table, never from the encoding.

>>> Float(exponent=2, mantissa=1, bias=1).table()[:8]
(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
>>> Ternary().table()
(-1.0, 0.0, 1.0, None)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ladder.checks import integer, shown
from ladder.errors import TypeDeclarationError

MAX_BITS = 8
WIDTH = integer(1, MAX_BITS)

#: one value per code; None marks a code that is never used
Table = tuple[float | None, ...]


@runtime_checkable
class Encoding(Protocol):
    """What a type needs of an encoding; a class of one's own with these two will do."""

    @property
    def bits(self) -> int:
        """Width of a code, 1..8."""

    def table(self) -> Table:
        """The values of the codes ``0 .. 2**bits - 1``."""


def check_bits(bits: object, at: object) -> int:
    """A width as an int, after refusing what is not a whole number in 1..8.

    Raises:
        TypeDeclarationError: with the width that was found.
    """
    if not WIDTH.fits(bits):
        raise TypeDeclarationError(
            f"an element takes 1 to {MAX_BITS} bits, found {shown(bits)}",
            at=at,
            hint="16-bit and wider formats are compute types, not elements",
        )
    return WIDTH.form(bits)


class _Checked:
    """Refuses a width out of 1..8 as soon as an encoding is made."""

    __slots__ = ()

    def __post_init__(self: Encoding) -> None:
        check_bits(self.bits, type(self).__name__)


@dataclass(frozen=True, slots=True)
class Integer(_Checked):
    """Two's complement, or plain binary where ``signed`` is false.

    One bit of two's complement is all sign: its codes 0 and 1 mean 0 and -1.
    """

    bits: int
    signed: bool = True

    def table(self) -> Table:
        """``code``, less ``2**bits`` from the middle on if signed."""
        wrap = 2**self.bits if self.signed else 0
        half = 2 ** (self.bits - 1)
        return tuple(float(c - wrap if c >= half else c) for c in range(2**self.bits))


@dataclass(frozen=True, slots=True)
class Offset(_Checked):
    """Offset binary: ``code - 2**(bits-1)``, so that the codes rise with the values."""

    bits: int

    def table(self) -> Table:
        """``code - 2**(bits-1)``."""
        return tuple(float(c - 2 ** (self.bits - 1)) for c in range(2**self.bits))


@dataclass(frozen=True, slots=True)
class SignMagnitude(_Checked):
    """The top bit is the sign, the others the magnitude; 0 and -0.0 are two codes.

    A single bit has no magnitude left: its codes mean 0 and -0.0.
    """

    bits: int

    def table(self) -> Table:
        """The magnitudes, then the same with a minus."""
        half = 2 ** (self.bits - 1)
        return tuple(math.copysign(c % half, half - 1 - c) for c in range(2**self.bits))


@dataclass(frozen=True, slots=True)
class Bipolar(_Checked):
    """Every bit is a sign: ``2*code - (2**bits - 1)``, the odd numbers, without a zero."""

    bits: int

    def table(self) -> Table:
        """``2*code - (2**bits - 1)``."""
        return tuple(float(2 * c - (2**self.bits - 1)) for c in range(2**self.bits))


@dataclass(frozen=True, slots=True)
class Ternary:
    """Codes 0, 1, 2 mean -1, 0, 1; code 3 is never used."""

    @property
    def bits(self) -> int:
        """Two, of which one code stays unused."""
        return 2

    def table(self) -> Table:
        """-1, 0, 1 and nothing."""
        return (-1.0, 0.0, 1.0, None)


Specials = Literal["none", "fn", "ieee", "fnuz"]


@dataclass(frozen=True, slots=True)
class Float(_Checked):
    """A sign, ``exponent`` bits and ``mantissa`` bits, with subnormals (ml_dtypes' naming standard).

    Attributes:
        specials: which codes are no finite number, after the names of ml_dtypes:
            ``none``: no code (the fn types of 4 and 6 bits);
            ``fn``: finite but for NaN, where all exponent and mantissa bits are set;
            ``ieee``: the largest exponent holds infinity (mantissa 0) and NaN;
            ``fnuz``: finite, one NaN in the place of -0.0.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: Specials = "none"

    def __post_init__(self) -> None:
        check_bits(self.bits, self)
        if self.exponent < 1 or self.mantissa < 0:
            raise TypeDeclarationError(
                f"a float takes at least 1 exponent bit and 0 mantissa bits, "
                f"found {self.exponent} and {self.mantissa}",
                at="Float",
                hint="SignMagnitude(bits) is the format without an exponent",
            )
        if self.specials not in ("none", "fn", "ieee", "fnuz"):
            raise TypeDeclarationError(
                f"unknown specials {self.specials!r}",
                at="Float",
                hint="choose one of none, fn, ieee, fnuz",
            )

    @property
    def bits(self) -> int:
        """Sign, exponent and mantissa together."""
        return 1 + self.exponent + self.mantissa

    def table(self) -> Table:
        """The magnitudes, then the same with a minus, special codes in their places."""
        half = 2 ** (self.bits - 1)
        magnitudes = [self._magnitude(c) for c in range(half)]
        table = magnitudes + [-m for m in magnitudes]
        if self.specials == "fnuz":
            table[half] = math.nan
        return tuple(table)

    def _magnitude(self, code: int) -> float:
        """Value of a code whose sign bit is clear."""
        exponent, fraction = divmod(code, 2**self.mantissa)
        largest = exponent == 2**self.exponent - 1
        if self.specials == "ieee" and largest:
            return math.nan if fraction else math.inf
        if self.specials == "fn" and largest and fraction == 2**self.mantissa - 1:
            return math.nan
        if exponent:
            fraction += 2**self.mantissa  # the hidden bit of a normal number
        return math.ldexp(fraction, max(exponent, 1) - self.bias - self.mantissa)


@dataclass(frozen=True, slots=True)
class PowerOfTwo(_Checked):
    """``2**(code - bias)``, the last code NaN: OCP's e8m0 (Microscaling Formats v1.0, 5.4.1).

    Halfway between two powers the even code wins, as in every type (ml_dtypes takes the larger power).
    """

    bits: int = 8
    bias: int = 127

    def table(self) -> Table:
        """Rising powers of two, then NaN."""
        last = 2**self.bits - 1
        return (*(math.ldexp(1.0, c - self.bias) for c in range(last)), math.nan)


@dataclass(frozen=True, slots=True)
class Codebook:
    """Any table at all: one value per code, None where a code is never used.

    NaN and infinities may stand in it, and a value may stand more than once (the lowest of its codes
    is the one that encoding produces).
    """

    values: Table

    @classmethod
    def of(cls, values: Iterable[object], *, at: str = "Codebook") -> Codebook:
        """A codebook of numbers of any kind, each of which has to be exact in float64.

        Raises:
            TypeDeclarationError: an entry is no real number, or not exact.
        """
        is_number = getattr(values, "shape", None) == ()  # an array of NumPy, of no dimension
        if is_number or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise TypeDeclarationError(
                f"values are {shown(values)}, not one number per code",
                at=at,
                hint="for example values=[-1, 0, 1, None]; None marks a code that is never used",
            )
        return cls(tuple(_exact(v, f"code {code} of {at}") for code, v in enumerate(values)))

    @classmethod
    def from_function(
        cls, rule: Callable[[int], float | None], bits: int, *, at: str = "Codebook"
    ) -> Codebook:
        """The table of a user's own function from code to value."""
        check_bits(bits, at)
        return cls.of((rule(code) for code in range(2**bits)), at=at)

    @property
    def bits(self) -> int:
        """The least width that has a code for each value."""
        return max(1, (len(self.values) - 1).bit_length())

    def table(self) -> Table:
        """The values as given."""
        return self.values


def _exact(value: object, at: str) -> float | None:
    if value is None:
        return None
    found = TypeDeclarationError(
        f"expected a real number that float64 holds exactly, found {shown(value)}",
        at=at,
        hint="round the value to float64 first; None marks a code that is never used",
    )
    if isinstance(value, (str, bytes, bool)):
        raise found
    try:
        number = float(value)  # type: ignore[arg-type]  # anything numeric: NumPy, Fraction, Decimal
    except (TypeError, ValueError, OverflowError) as error:
        raise found from error
    if not math.isnan(number) and number != value:
        raise found
    return number
