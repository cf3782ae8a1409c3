"""An operator that the graph does not know and leaves to the caller's framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ladder.errors import GraphError
from ladder.graph.extent import Sizes
from ladder.graph.operators.base import Operator
from ladder.graph.tensor import Array, TensorType


@dataclass(frozen=True)
class Foreign(Operator):
    """A call of another framework, kept by name; :func:`ladder.graph.interpret.run` takes its function from the caller.

    Attributes:
        target: the framework's name of it, for example ``aten.cumsum.default``.
        result: what it returns.
        attributes: its other arguments in words, as ``(name, text)``.
    """

    target: str
    result: TensorType
    attributes: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "foreign"
    arity: ClassVar[tuple[int, int]] = (0, 2**31)

    def infer(self, *given: TensorType) -> TensorType:  # noqa: ARG002
        """What was said when it was imported."""
        return self.result

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """Nothing is known here.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            f"{self.target} belongs to the caller's framework",
            at=self.brief,
            hint="run(..., foreign={target: function}) says what it does",
        )

    @property
    def brief(self) -> str:
        """The framework's name."""
        return f"foreign {self.target}"
