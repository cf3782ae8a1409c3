"""tTile: the unit that a memory level moves or an instruction reads (Ladder, OSDI'24, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ladder.errors import ShapeError
from ladder.ttile.layout import Layout

#: bits of the number types that hardware knows by name
HARDWARE_BITS: dict[str, int] = {
    "float32": 32,
    "tfloat32": 32,
    "float16": 16,
    "bfloat16": 16,
    "fp8_e4m3fn": 8,
    "fp8_e5m2": 8,
    "int32": 32,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "uint4": 4,
    "uint1": 1,
}


@runtime_checkable
class NumberType(Protocol):
    """What a tile asks of a type: its name and the bits of one element."""

    @property
    def name(self) -> str:
        """Canonical name."""

    @property
    def bits(self) -> int:
        """Bits of one element."""


@dataclass(frozen=True, slots=True)
class Granule:
    """Opaque bytes that move as one, for example the 16 bytes of a row that ``ldmatrix`` reads."""

    nbytes: int

    @property
    def name(self) -> str:
        """For example ``16B``."""
        return f"{self.nbytes}B"

    @property
    def bits(self) -> int:
        """Bits of one granule."""
        return 8 * self.nbytes

    def __str__(self) -> str:
        return self.name


#: a type value (TType, ComputeType, GroupedType, Granule) or the name of a hardware type
DType = Any


def type_name(dtype: DType) -> str:
    """Name of a type or of a type name."""
    return dtype if isinstance(dtype, str) else str(dtype.name)


def type_bits(dtype: DType) -> int:
    """Bits of one element of a type; a grouped type answers for its element.

    Raises:
        ShapeError: ``dtype`` is a name that no hardware knows.
    """
    if isinstance(dtype, str):
        if dtype not in HARDWARE_BITS:
            raise ShapeError(
                f"the bits of {dtype!r} are not known by name",
                at="type_bits",
                hint="give the type itself, for example ladder.types[name]",
            )
        return HARDWARE_BITS[dtype]
    element: Any = getattr(dtype, "element", dtype)
    return int(element.bits)


@dataclass(frozen=True, slots=True)
class Tile:
    """A box of elements of one type.

    Attributes:
        shape: extents in elements of ``dtype``, outermost first.
        dtype: type value or hardware type name, see :data:`DType`.
        layout: where the elements lie, or None for row-major.
        granularity: bytes that move as one, or None where nothing is asked.

    Raises:
        ShapeError: an extent or the granularity is not positive.
    """

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout | None = None
    granularity: int | None = None

    def __post_init__(self) -> None:
        if any(extent < 1 for extent in self.shape):
            raise ShapeError(
                f"extents must be at least 1, not {list(self.shape)}",
                at=f"tile of {type_name(self.dtype)}",
            )
        if self.granularity is not None and self.granularity < 1:
            raise ShapeError(f"granularity {self.granularity} B is not positive", at=str(self))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return type_bits(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements without gaps, rounded up."""
        return -(-self.elements * self.bits // 8)

    @property
    def inner_bits(self) -> int:
        """Bits of one innermost line."""
        return (self.shape[-1] if self.shape else 1) * self.bits

    def with_(self, **changes: Any) -> Tile:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def in_granules(self, nbytes: int) -> Tile:
        """The same box counted in granules of ``nbytes`` along the innermost axis.

        Raises:
            ShapeError: a line is no whole number of granules.
        """
        bits = 8 * nbytes
        if self.inner_bits % bits:
            raise ShapeError(
                f"a line of {self.inner_bits} bits is no multiple of {nbytes} B",
                at=str(self),
                hint="pad the innermost axis first",
            )
        return Tile((*self.shape[:-1], self.inner_bits // bits), Granule(nbytes))

    def __str__(self) -> str:
        mark = "" if self.layout is None else "*"
        return f"{type_name(self.dtype)}{list(self.shape)}{mark}"
