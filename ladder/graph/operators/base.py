"""What all operators share: a kind, shape inference, and a meaning in float64."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ladder.errors import ShapeError
from ladder.graph.extent import Sizes
from ladder.graph.tensor import Array, TensorType


@dataclass(frozen=True)
class Operator:
    """A function of tensors with one result, as a frozen value.

    Real numbers are float64 in :meth:`evaluate`, whatever their type; rounding to the type of an edge is what kernels do,
    not what the operator means. Integers are int64, truth values bool.
    """

    #: name in tables, JSON and rules
    kind: ClassVar[str]
    #: least and most inputs
    arity: ClassVar[tuple[int, int]] = (1, 1)

    def infer(self, *given: TensorType) -> TensorType:
        """Type of the result from those of the inputs; raises ShapeError where they do not fit."""
        raise NotImplementedError

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:
        """The meaning; ``sizes`` says what the symbols of shapes are in this call."""
        raise NotImplementedError

    @property
    def brief(self) -> str:
        """Kind and attributes that are not at their defaults: ``softmax(axis=-1)``."""
        parts = [
            f"{field.name}={_shown(value)}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"{self.kind}({', '.join(parts)})" if parts else self.kind

    def __str__(self) -> str:
        return self.brief


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)


def axis_of(axis: int, rank: int, at: object) -> int:
    """An axis counted from the front.

    Raises:
        ShapeError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(
            f"axis {axis} of a tensor with {rank} axes",
            at=at,
            hint=f"axes go from {-rank} to {rank - 1}",
        )
    return axis % rank
