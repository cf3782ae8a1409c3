"""The operator that turns a quantised weight into a dense one: what is computed, and nothing about how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.checks import Expected, accept, accept_fields, instance, integer, one_of, shown
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.matmul import ACTIVATIONS, MAX_EXTENT, QUANTIZED
from ladder.ttype import (
    ComputeType,
    Dense,
    GroupedType,
    Quantized,
    TType,
    compute_type,
    weight_type,
)

MAKE = "ladder.dequantize(n, k, weight=..., compute=...) takes types by name"

#: field -> what it has to be
_FIELDS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "n": integer(1, MAX_EXTENT),
        "k": integer(1, MAX_EXTENT),
        "weight": instance(GroupedType, MAKE),
        "compute": instance(ComputeType, MAKE),
    }
)


@dataclass(frozen=True)
class Dequantize:
    """``w[n, k]`` of a low-bit format -> the same numbers in a type that tensor cores multiply, rounded to nearest even.

    The result is an output: a number beyond the type's range becomes an infinity, as IEEE 754 says.

    Attributes:
        n: rows (output channels).
        k: columns.
        weight: the number format; not a dense one, of which there is nothing to decode.
        compute: type of the result, float16 or bfloat16.

    Raises:
        TypeDeclarationError: a field is of another kind; :func:`dequantize` takes names too and says more.
    """

    n: int
    k: int
    weight: GroupedType
    compute: ComputeType

    def __post_init__(self) -> None:
        accept_fields(self, _FIELDS, at="Dequantize", error=TypeDeclarationError)
        if not one_of(ACTIVATIONS).fits(self.compute.name):
            raise TypeDeclarationError(
                f"compute = {self.compute.name} is not offered",
                at="Dequantize",
                hint=f"choose one of {', '.join(ACTIVATIONS)}",
            )
        if isinstance(self.weight.element, Dense):
            raise TypeDeclarationError(
                f"a weight of {self.weight.element} is dense already",
                at="Dequantize",
                hint="multiply it as it is",
            )

    @property
    def element(self) -> TType:
        """The element type of the weight."""
        return self.weight.element

    @property
    def activation(self) -> ComputeType:
        """Type of the decoded numbers, as a matmul calls it."""
        return self.compute

    def reference(self, weight: Quantized) -> NDArray[Any]:
        """The operator's meaning: a weight ``[n, k]`` -> numbers ``[n, k]`` of the compute type, rounded once from float64.

        Raises:
            ShapeError: the weight has another shape.
            TypeDeclarationError: the weight is not quantised.
        """
        accept(weight, QUANTIZED, "weight", at=self, error=TypeDeclarationError)
        if weight.shape != (self.n, self.k):
            raise ShapeError(
                f"weight is {list(weight.shape)}, the operator wants {[self.n, self.k]}",
                at=self,
                hint="weights are [n, k]: output channels first",
            )
        with np.errstate(over="ignore"):
            return weight.dequantize().astype(self.compute.dtype)

    def __str__(self) -> str:
        shape = [self.n, self.k]
        return f"dequantize(w {self.weight}{shape} -> {self.compute.name}{shape})"


def dequantize(
    n: int,
    k: int,
    *,
    weight: str | GroupedType | TType,
    compute: str | ComputeType = "float16",
) -> Dequantize:
    """Declare the decoding of a whole weight ``[n, k]`` into memory, for products that read dense weights.

    Types may be given by name.

    Raises:
        ShapeError: an extent is not a positive integer or is larger than a kernel counts.
        TypeDeclarationError: a type is unknown or not offered in its place.
    """
    at = f"dequantize(n={shown(n)}, k={shown(k)})"
    extent = integer(1, MAX_EXTENT)
    return Dequantize(
        n=accept(n, extent, "n", at=at, error=ShapeError, hint="weights are [n, k]"),
        k=accept(k, extent, "k", at=at, error=ShapeError, hint="weights are [n, k]"),
        weight=weight_type(weight),
        compute=compute_type(compute),
    )
