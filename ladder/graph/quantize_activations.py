"""The operator that quantises activations row by row: what is computed, and nothing about how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.checks import (
    Expected,
    accept,
    accept_fields,
    instance,
    integer,
    one_of,
    optional,
    shown,
)
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.matmul import MAX_EXTENT
from ladder.ttype import ComputeType, TType, compute_type, element_type
from ladder.ttype.arrays import as_values

#: types of activations that are quantised
SOURCES = ("float16", "bfloat16", "float32")
#: elements that they are quantised to
TARGETS = ("int8", "fp8_e4m3fn", "int4")

#: least scale of a row: the smallest normal number of float32, whose inverse is finite
LEAST_SCALE = np.float32(2.0**-126)

MAKE = "ladder.quantize_activations(m, k, source=..., target=...) takes types by name"

#: field -> what it has to be
_FIELDS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "m": optional(integer(0, MAX_EXTENT)),
        "k": integer(1, MAX_EXTENT),
        "source": instance(ComputeType, MAKE),
        "target": instance(TType, MAKE),
    }
)


@dataclass(frozen=True)
class QuantizeActivations:
    """``x[m, k]`` -> codes ``q[m, k]`` and a float32 scale for each row, ``x = q * scale``.

    Codes of 4 bits are stored two to a byte, as a matmul reads them: uint8 ``[m, ceil(k / 2)]``, the first one lowest.
    With ``top`` the largest magnitude that the target has with both signs (127, 448, 7)::

        scale = max(max_k |x| / top, 2^-126)                        in float32
        q     = round to nearest even of x * (1 / scale), saturating

    where the quotient ``1 / scale`` is a float32. An integer is rounded once, from the exact product, a float from the product in
    float32: what one fma, and one product before a conversion, give.

    A row of zeros has codes of zero and the least scale. A row with a NaN has a scale of NaN, one with an infinity (and
    no NaN) an infinite scale, so that nothing that is multiplied by it passes for a number; its codes are those of
    ``x * (1 / scale)``, where a NaN is 0 in an integer.

    Attributes:
        m: rows (tokens), or None for any number including 0.
        k: columns.
        source: type of x, a name of :data:`SOURCES`.
        target: the element type of the codes, a name of :data:`TARGETS`.

    Raises:
        TypeDeclarationError: a field is of another kind; :func:`quantize_activations` takes names too and says more.
    """

    m: int | None
    k: int
    source: ComputeType
    target: TType

    def __post_init__(self) -> None:
        accept_fields(self, _FIELDS, at="QuantizeActivations", error=TypeDeclarationError)
        for name, given, offered in (
            ("source", self.source.name, SOURCES),
            ("target", self.target.name, TARGETS),
        ):
            if not one_of(offered).fits(given):
                raise TypeDeclarationError(
                    f"{name} = {given} is not offered",
                    at="QuantizeActivations",
                    hint=f"choose one of {', '.join(offered)}",
                )
        if self.target != element_type(self.target.name):
            raise TypeDeclarationError(
                f"target is another {self.target.name} than ladder.types has",
                at="QuantizeActivations",
                hint=f'give target="{self.target.name}"',
            )

    @property
    def activation(self) -> ComputeType:
        """Type of x, as a matmul calls it."""
        return self.source

    @property
    def codes(self) -> ComputeType:
        """The compute type of the codes."""
        return compute_type(self.target.name)

    @property
    def out_dtype(self) -> np.dtype[Any]:
        """dtype of the codes as they are stored: int8, float8_e4m3fn, or uint8 for two of 4 bits."""
        return self.codes.storage

    @property
    def top(self) -> float:
        """The largest magnitude of a code."""
        return min(self.target.max, -self.target.min)

    def reference(self, x: ArrayLike) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The operator's meaning, bit by bit: x ``[..., k]`` -> codes ``[..., items(k)]``, scales ``[...]``.

        Raises:
            ShapeError: x has another number of columns.
            TypeDeclarationError: x does not hold real numbers.
        """
        values = as_values(x, at=f"x of {self}")
        if values.shape[-1:] != (self.k,):
            raise ShapeError(
                f"x is {list(values.shape)}, the operator takes [..., {self.k}]",
                at=self,
                hint="k comes last",
            )
        with np.errstate(all="ignore"):
            rows = values.astype(self.source.dtype).astype(np.float32)
            scale = np.abs(rows).max(axis=-1) / np.float32(self.top)
            scale = np.where(scale < LEAST_SCALE, LEAST_SCALE, scale)  # a NaN stays
            codes = self._codes(rows, (np.float32(1) / scale)[..., None])
            return self.codes.pack(codes), scale.astype(np.float32)

    def _codes(self, rows: NDArray[np.float32], inverse: NDArray[np.float32]) -> NDArray[Any]:
        kind = self.codes
        if not kind.is_float:
            # Float64 holds products of two float32.
            whole = np.nan_to_num(np.rint(rows * inverse.astype(np.float64)), nan=0.0)
            return np.asarray(np.clip(whole, kind.min, kind.max).astype(kind.dtype))
        top, scaled = np.float32(self.top), rows * inverse
        nan = np.uint8(self.target.nan_codes[0])
        codes = np.clip(scaled, -top, top).astype(kind.dtype).view(np.uint8)
        return np.asarray(np.where(np.isnan(scaled), nan, codes).view(kind.dtype))

    def __str__(self) -> str:
        m = "any" if self.m is None else self.m
        return (
            f"quantize_activations(x {self.source.name}[{m}, {self.k}]"
            f" -> {self.target.name}[{m}, {self.k}], float32[{m}])"
        )


def quantize_activations(
    m: int | None,
    k: int,
    *,
    source: str | ComputeType = "float16",
    target: str | TType = "int8",
) -> QuantizeActivations:
    """Declare the quantisation of activations ``[m, k]``, with one scale for each row, found as the kernel runs.

    Types may be given by name. ``m=None`` declares an operator for any number of rows.

    Raises:
        ShapeError: an extent is not a positive integer (m may be 0) or is larger than a kernel counts.
        TypeDeclarationError: a type is unknown or not offered in its place.
    """
    at = f"quantize_activations(m={shown(m)}, k={shown(k)})"
    rows = optional(integer(0, MAX_EXTENT))
    return QuantizeActivations(
        m=accept(m, rows, "m", at=at, error=ShapeError, hint="m=None means any number of rows"),
        k=accept(k, integer(1, MAX_EXTENT), "k", at=at, error=ShapeError, hint="x is [m, k]"),
        source=compute_type(source),
        target=element_type(target),
    )
