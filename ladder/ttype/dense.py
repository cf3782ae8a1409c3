"""Dense elements: compute types of 16 bits as the elements of a weight that is not quantised.

A dense element is a value table as any other, of 65,536 values; it is made when somebody asks for it. What other elements
find in their tables by search, encoding and refusing NaNs, a dense one has from the dtype that it is named after. A weight
of it has neither scales nor zeros: every number that they would give is there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from ladder.errors import TypeDeclarationError
from ladder.ttype.arrays import Bools, Codes, Values, read_only
from ladder.ttype.compute import ComputeType, bfloat16, float16
from ladder.ttype.element import TType
from ladder.ttype.encoding import Table

DENSE_BITS = 16


@dataclass(frozen=True, slots=True)
class Native:
    """The encoding of a dtype that NumPy or ml_dtypes has: codes are the bits of its numbers.

    Attributes:
        compute: the type, of 16 bits.
    """

    compute: ComputeType

    @property
    def bits(self) -> int:
        """Width of a code: 16."""
        return self.compute.bits

    def values(self) -> Values:
        """float64[2**bits], read-only, indexed by code."""
        patterns = np.arange(1 << self.bits, dtype=np.uint16).view(self.compute.dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs are among the patterns
            return read_only(patterns.astype(np.float64))

    def table(self) -> Table:
        """The same as a tuple."""
        return tuple(self.values().tolist())


class Dense(TType):
    """The element of a weight whose codes are numbers of a compute type of 16 bits, immutable.

    >>> t = DENSE["bfloat16"]
    >>> t.encode([1, 3.14159]).tolist(), t.decode([0x3F80]).tolist()
    ([16256, 16457], [1.0])

    Args:
        compute: float16 or bfloat16.
    """

    def __init__(self, compute: ComputeType) -> None:
        assert compute.is_float
        assert compute.bits == DENSE_BITS
        self._name, self._bits, self._unused = compute.name, compute.bits, ()
        self._compute = compute
        self._encoding = Native(compute)

    @property
    def compute(self) -> ComputeType:
        """The type that its codes are numbers of."""
        return self._compute

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """dtype of arrays of codes: uint16."""
        return np.dtype(np.uint16)

    @property
    def values(self) -> Values:
        """float64[65536], read-only, indexed by code; NaN for NaN codes."""
        return self._table

    @cached_property
    def _table(self) -> Values:
        return Native(self._compute).values()

    def check_scalable(self) -> None:
        """Refuse scales.

        Raises:
            TypeDeclarationError: always.
        """
        raise TypeDeclarationError(
            f"a weight of {self} has no scales",
            at=self.name,
            hint="multiply them into the weights, or choose an element of at most 8 bits",
        )

    def _encode(self, inputs: Values) -> Codes:
        largest = self._compute.max
        numbers = np.where(np.isinf(inputs), inputs, np.clip(inputs, -largest, largest))
        codes: Codes = self._compute.round(numbers).astype(self._compute.dtype).view(np.uint16)
        return codes

    def _beyond(self, inputs: Values) -> Bools:
        limit = 2 * self._compute.max  # rounding stays within float64
        rounded = self._compute.round(np.clip(inputs, -limit, limit))
        beyond: Bools = np.isinf(rounded) & ~np.isinf(inputs)
        return beyond

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self._name, self._bits, self._compute)

    def __reduce__(self) -> tuple[object, ...]:
        return (Dense, (self._compute,))


#: dense elements by name
DENSE: Mapping[str, Dense] = MappingProxyType({c.name: Dense(c) for c in (float16, bfloat16)})
