"""An element: the table from code to value, which is all that a number format means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ladder.checks import TRUTH, accept, shown
from ladder.errors import TypeDeclarationError
from ladder.ttype.arrays import Array, Bools, Codes, Values, as_array, as_values, read_only, where
from ladder.ttype.encoding import Codebook, Encoding, Table, check_bits
from ladder.ttype.group import Granularity, GroupedType, Zero, group_shape
from ladder.ttype.nearest import Nearest

#: codes that an error lists
MOST_SHOWN = 64


class TType:
    """A number format of 1 to 8 bits, immutable. (Those of 16 bits are :class:`ladder.ttype.dense.Dense`.)

    Two types are equal when name, bits, unused codes and every bit of the tables agree (NaN equals
    NaN, -0.0 differs from 0.0).

    >>> t = TType("my_cb3", bits=3, values=[-1, -0.5, -0.2, 0, 0.15, 0.35, 0.6, 1])
    >>> t.encode([0.3, -9]).tolist(), t.decode([5, 0]).tolist()
    ([5, 0], [0.35, -1.0])

    Args:
        name: an identifier; kernels and files are named after it.
        bits: width of a code, 1..8.
        values: one number per code, exact in float64. NaN and infinities may stand in it as long as
            one value is finite, values may repeat, and None marks a code that is never used.
        encoding: in place of values, an encoding or a function from code to value.

    Raises:
        TypeDeclarationError: the declaration contradicts itself.
    """

    def __init__(
        self,
        name: str,
        bits: int,
        values: Iterable[Any] | None = None,
        encoding: Encoding | Callable[[int], float | None] | None = None,
    ) -> None:
        _check_name(name)
        bits = check_bits(bits, name)
        written = _written(name, bits, values, encoding)
        table = Codebook.of(written.table(), at=name).values
        _check_table(name, bits, table)
        self._name = name
        self._bits = bits
        self._encoding = written
        self._values = read_only([np.nan if v is None else v for v in table], np.float64)
        self._unused = tuple(code for code, v in enumerate(table) if v is None)

    @property
    def name(self) -> str:
        """Name of the format."""
        return self._name

    @property
    def bits(self) -> int:
        """Width of a code, 1..8."""
        return self._bits

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """dtype of arrays of codes: uint8."""
        return np.dtype(np.uint8)

    @property
    def encoding(self) -> Encoding:
        """How the table was written down; it takes no part in equality."""
        return self._encoding

    @property
    def values(self) -> Values:
        """float64[2**bits], read-only, indexed by code; NaN for NaN codes and unused codes."""
        return self._values

    @property
    def unused(self) -> tuple[int, ...]:
        """Codes that mean nothing: never produced, refused on the way in."""
        return self._unused

    @cached_property
    def nan_codes(self) -> tuple[int, ...]:
        """Codes that mean NaN, ascending."""
        nans = np.flatnonzero(np.isnan(self.values)).tolist()
        return tuple(code for code in nans if code not in self._unused)

    @cached_property
    def number_codes(self) -> tuple[int, ...]:
        """Codes that a weight may hold, ascending: neither unused nor NaN."""
        return tuple(np.flatnonzero(~np.isnan(self.values)).tolist())

    @cached_property
    def min(self) -> float:
        """Smallest finite value."""
        return float(self._finite.min()) + 0.0  # no range ends at -0.0

    @cached_property
    def max(self) -> float:
        """Largest finite value."""
        return float(self._finite.max()) + 0.0

    @cached_property
    def pad_code(self) -> int:
        """The code that padding takes: of the smallest magnitude, positive if there is a choice."""
        codes = np.flatnonzero(~np.isnan(self.values))
        numbers = self.values[codes]
        return int(codes[np.lexsort((codes, np.signbit(numbers), np.abs(numbers)))[0]])

    @property
    def has_zero(self) -> bool:
        """Whether a code means zero."""
        return bool(self.values[self.pad_code] == 0)

    @property
    def is_integer(self) -> bool:
        """Whether every number of the table is whole."""
        numbers = self.values[list(self.number_codes)]
        return bool(np.all(np.isfinite(numbers)) and np.all(numbers == np.rint(numbers)))

    def decode(self, codes: ArrayLike) -> Values:
        """Values of codes, float64 of the same shape; NaN codes decode to NaN.

        Raises:
            TypeDeclarationError: codes are no integers, out of range or unused.
        """
        return self.values[self.check_codes(codes)]

    def encode(self, array: ArrayLike, *, saturate: bool = True) -> Codes:
        """Codes of the nearest values, of :attr:`code_dtype` and the same shape.

        * Ties go to the even code (for floats: IEEE round half to even); where both codes are even or
          both odd, to the lower code. Of equal values the lowest code is produced, and an unused code never.
        * Beyond the range the result saturates at the last finite value. With ``saturate=False`` it
          becomes infinity, else NaN, where the type has it, and is refused where it has neither.
        * Infinities stay infinite where the type has them; otherwise they count as beyond the range.
        * -0.0, and a negative number that rounds to zero, become -0.0 where the type has it.
        * NaN becomes the first NaN code, and is refused where the type has none.

        Raises:
            TypeDeclarationError: NaN, or without saturation an overflow, that the type cannot hold.
        """
        inputs = as_values(array, at=f"{self}.encode")
        saturate = accept(
            saturate, TRUTH, "saturate", at=f"{self}.encode", error=TypeDeclarationError
        )
        if not saturate:
            inputs = self._overflowed(inputs)
        is_nan = np.isnan(inputs)
        if not is_nan.any():
            return self._encode(inputs)
        if not self.nan_codes:
            raise TypeDeclarationError(
                f"{self} has no NaN, found NaN in {where(is_nan)}",
                at=f"{self}.encode",
                hint="replace the NaNs, for example with numpy.nan_to_num",
            )
        codes = self._encode(np.where(is_nan, 0.0, inputs))
        return np.where(is_nan, self.code_dtype.type(self.nan_codes[0]), codes)

    def check_codes(self, codes: ArrayLike, *, numbers_only: bool = False) -> Codes:
        """``codes`` as :attr:`code_dtype`, after refusing whatever is no code of this type.

        Args:
            codes: integers of any dtype.
            numbers_only: refuse NaN codes too.

        Raises:
            TypeDeclarationError: with count and first index of what is wrong.
        """
        given = as_array(codes, at=f"{self}.check_codes")
        _check_integers(given, self)
        if given.size and not 0 <= int(given.min()) <= int(given.max()) < 2**self.bits:
            outside = (given < 0) | (given >= 2**self.bits)
            raise TypeDeclarationError(
                f"codes of {self} lie in 0..{2**self.bits - 1}, found others in {where(outside)}",
                at=f"codes of {self}",
                hint="codes are bit patterns; TType.encode turns values into them",
            )
        checked: Codes = given.astype(self.code_dtype, copy=False)
        if self.unused:
            bad = np.isin(checked, np.array(self.unused, self.code_dtype))
            self._refuse(bad, self.unused, "unused codes")
        if numbers_only and self.nan_codes:
            self._refuse(np.isnan(self.values)[checked], self.nan_codes, "NaN codes")
        return checked

    def grouped(
        self,
        group: Granularity,
        scale: str | None = "float16",
        zero: Zero | None = None,
        second: str | None = None,
    ) -> GroupedType:
        """This element with metadata shared by groups of a weight [N, K].

        ================  ===========================  ===============================
        group             one scale for                weight [N, K] -> scales
        ================  ===========================  ===============================
        ``"tensor"``      the whole weight             [4096, 8192] -> [1, 1]
        ``"channel"``     a row                        [4096, 8192] -> [4096, 1]
        ``128``           128 values along K           [4096, 8192] -> [4096, 64]
        ``(128, 128)``    a block of 128 x 128         [4096, 8192] -> [32, 64]
        ``(None, 128)``   128 columns over all rows    [4096, 8192] -> [1, 64]
        ================  ===========================  ===============================

        A last group may be short: [4096, 4304] with group 32 -> [4096, 135].

        Args:
            group: see the table.
            scale: ``float16``, ``bfloat16``, ``float32``, ``fp8_e4m3fn`` or ``e8m0``.
            zero: None, ``integer``, ``float`` or ``rescaled``; see :class:`GroupedType`.
            second: ``float32`` for one more scale of the whole tensor (nvfp4).

        Raises:
            TypeDeclarationError: the parts do not fit each other.
        """
        return GroupedType(self, group_shape(group), scale, zero, second)

    def check_scalable(self) -> None:
        """Refuse scales, where the element takes none; every element of at most 8 bits does."""

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest.of(self.values)

    def _encode(self, inputs: Values) -> Codes:
        """Codes of numbers, none of which is NaN; beyond the ends it saturates."""
        return self._nearest.encode(inputs)

    def _beyond(self, inputs: Values) -> Bools:
        """Which numbers a cast without saturation would send beyond the largest finite value."""
        return self._nearest.overflows(inputs)

    @property
    def _finite(self) -> Values:
        return self.values[np.isfinite(self.values)]

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self._name, self._bits, self._unused, self._values.tobytes())

    def _refuse(self, bad: Bools, refused: tuple[int, ...], kind: str) -> None:
        if bad.any():
            shown_codes = ", ".join(map(str, refused[:MOST_SHOWN]))
            more = ", ..." if len(refused) > MOST_SHOWN else ""
            raise TypeDeclarationError(
                f"found {kind} of {self} in {where(bad)}",
                at=f"codes of {self}",
                hint=f"{kind} of {self}: {shown_codes}{more}",
            )

    def _overflowed(self, inputs: Values) -> Values:
        """Inputs with whatever overflows replaced by what an unsaturated cast makes of it."""
        beyond = self._beyond(inputs)
        if not beyond.any():
            return inputs
        if np.isinf(self.values).any():
            return np.where(beyond, np.copysign(np.inf, inputs), inputs)
        if self.nan_codes:
            return np.where(beyond, np.nan, inputs)
        raise TypeDeclarationError(
            f"{self} ends at {self.min:g} and {self.max:g} and has no infinity or NaN, "
            f"found values beyond in {where(beyond)}",
            at=f"{self}.encode(saturate=False)",
            hint="leave saturate=True, or scale the values",
        )

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, TType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[object, ...]:
        return (TType, (self._name, self._bits, None, self._encoding))

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"TType({self._name!r}, bits={self._bits}, range=[{self.min:g}, {self.max:g}])"


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeDeclarationError(
            f"a type is named by an identifier, found {shown(name)}",
            at="TType(name=...)",
            hint="use letters, digits and underscores, as in my_cb3: kernels are named after it",
        )


def _written(
    name: str,
    bits: int,
    values: Iterable[Any] | None,
    encoding: Encoding | Callable[[int], float | None] | None,
) -> Encoding:
    """The declaration as an encoding; a user's function is written down as a codebook at once."""
    if (values is None) == (encoding is None):
        raise TypeDeclarationError(
            "a type is declared by its values or by an encoding, and by one of them alone",
            at=name,
            hint='for example TType("pair", bits=1, values=[-1, 1])',
        )
    if values is not None:
        return Codebook.of(values, at=name)
    if isinstance(encoding, Encoding) and not isinstance(encoding, type):
        return encoding
    if callable(encoding) and not isinstance(encoding, type):
        return Codebook.from_function(encoding, bits, at=name)
    raise TypeDeclarationError(
        f"expected an encoding or a function from code to value, found {shown(encoding)}",
        at=name,
        hint="see ladder.ttype.encoding",
    )


def _check_table(name: str, bits: int, table: Table) -> None:
    if len(table) != 2**bits:
        raise TypeDeclarationError(
            f"{bits} bits take {2**bits} values, found {len(table)}",
            at=name,
            hint="write None for a code that is never used",
        )
    if not any(v is not None and np.isfinite(v) for v in table):
        raise TypeDeclarationError(
            "no code has a finite value", at=name, hint="NaN and infinities may only join numbers"
        )


def _check_integers(given: Array, ttype: TType) -> None:
    if given.dtype.kind not in "iu":
        raise TypeDeclarationError(
            f"codes of {ttype} are integers, found dtype {given.dtype}",
            at=f"codes of {ttype}",
            hint="view an array of ml_dtypes as numpy.uint8 to get its codes; "
            "TType.encode turns values into codes",
        )
