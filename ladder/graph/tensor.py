"""What flows on an edge: a shape and the type of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ladder.checks import is_integer, shown
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.extent import Extent, Shape, Symbolic, product
from ladder.ttype import GroupedType

Array = NDArray[Any]

#: types of activations and of plain constants -> (NumPy's dtype, bits)
DTYPES: Mapping[str, tuple[np.dtype[Any], int]] = MappingProxyType(
    {
        **{name: (np.dtype(name), 8 * np.dtype(name).itemsize) for name in (
            "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
        )},
        "bool": (np.dtype(np.bool_), 8),
        "bfloat16": (np.dtype(ml_dtypes.bfloat16), 16),
        "fp8_e4m3fn": (np.dtype(ml_dtypes.float8_e4m3fn), 8),
        "fp8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), 8),
        "int4": (np.dtype(ml_dtypes.int4), 4),
        "uint4": (np.dtype(ml_dtypes.uint4), 4),
        "int2": (np.dtype(ml_dtypes.int2), 2),
        "uint2": (np.dtype(ml_dtypes.uint2), 2),
    }
)  # fmt: skip

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
#: types whose values are real numbers; those of 8 bits take no part in arithmetic
REALS = FLOATS | {"fp8_e4m3fn", "fp8_e5m2"}

#: mark of activations that were quantised row by row, with a scale to each row: ``int8/token``
PER_TOKEN = "/token"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and type of a value.

    Attributes:
        shape: extents, outermost first.
        dtype: a name of :data:`DTYPES`; ``int8/token`` for activations that are quantised row by row (codes and one
            float32 scale to each row); or, of a constant, what a low-bit type prints as.
        weight: the low-bit type of a constant.

    Raises:
        ShapeError: an extent is negative or no number.
        TypeDeclarationError: the dtype is no type of a tensor.
    """

    shape: Shape
    dtype: str
    weight: GroupedType | None = None

    def __post_init__(self) -> None:
        for extent in self.shape:
            if not isinstance(extent, Symbolic) and not (is_integer(extent) and extent >= 0):
                raise ShapeError(
                    f"an extent is {shown(extent)}, not an integer >= 0 or a symbol",
                    at=f"{self.dtype} tensor",
                    hint="extents are outermost first",
                )
        if self.weight is None and self.element not in DTYPES:
            raise TypeDeclarationError(
                f"{self.dtype!r} is no type of a tensor",
                at=f"tensor {list(self.shape)}",
                hint=f"one of {', '.join(DTYPES)}",
            )

    @property
    def element(self) -> str:
        """The dtype without the mark of a scale per row."""
        return self.dtype.removesuffix(PER_TOKEN)

    @property
    def is_float(self) -> bool:
        """Whether the values are real numbers, low-bit ones included."""
        return self.weight is not None or self.dtype in REALS or self.dtype.endswith(PER_TOKEN)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> Extent:
        """Number of elements."""
        return product(self.shape)

    @property
    def bits(self) -> float:
        """Bits of one element, scales of a low-bit type shared out."""
        if self.weight is not None and len(self.shape) == 2:
            n, k = self.shape
            if isinstance(n, int) and isinstance(k, int):
                return self.weight.bits_per_weight(n, k)
        return DTYPES[self.element][1] if self.weight is None else self.weight.bits

    def with_(self, *, shape: Shape | None = None, dtype: str | None = None) -> TensorType:
        """The same with another shape or type; a value that is made of a low-bit constant is of its scales' type."""
        plain = self.dtype
        if self.weight is not None:
            plain = self.weight.scale if self.weight.scale in FLOATS else "float32"
        return TensorType(self.shape if shape is None else shape, dtype or plain)

    def __str__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"{self.dtype}[{extents}]"


def dtype_name(dtype: Any) -> str:
    """The name of NumPy's (or ml_dtypes') dtype.

    Raises:
        TypeDeclarationError: no tensor of a graph has it.
    """
    for name, (known, _) in DTYPES.items():
        if known == dtype:
            return name
    raise TypeDeclarationError(
        f"dtype {dtype} is no type of a tensor", at="graph", hint=f"one of {', '.join(DTYPES)}"
    )


def real(array: Array) -> NDArray[np.float64]:
    """Numbers as float64."""
    return np.asarray(array, dtype=np.float64)
