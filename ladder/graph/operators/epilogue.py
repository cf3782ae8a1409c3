"""All steps of epilogues: those of :mod:`ladder.graph.epilogue`, and the quantising of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ladder.graph.epilogue import (
    Activated,
    AddBias,
    AddResidual,
    Coded,
    EpilogueStep,
    Gated,
    Scaled,
)
from ladder.graph.operators.quantize import quantize_rows, quantized_type
from ladder.graph.tensor import Array, TensorType


@dataclass(frozen=True)
class QuantizedRows(EpilogueStep):
    """Rows are stored as codes of a type with one scale each; see :class:`QuantizeTokens`."""

    target: str
    kind: ClassVar[str] = "quantized_rows"

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:  # noqa: ARG002
        """The quantised type."""
        return quantized_type(y, self.target)

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002
        """What codes and scales stand for."""
        return quantize_rows(y, self.target)

    def __str__(self) -> str:
        return f"to {self.target} by rows"


STEPS: tuple[type[EpilogueStep], ...] = (
    AddBias,
    Scaled,
    Activated,
    Gated,
    AddResidual,
    QuantizedRows,
    Coded,
)
