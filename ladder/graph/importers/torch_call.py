"""One call of a ``torch.export`` program, in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ladder.errors import ModelImportError
from ladder.graph.draft import Draft
from ladder.graph.extent import Shape
from ladder.graph.operators import Operator
from ladder.graph.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor among the arguments of a call."""

    name: str


@dataclass
class Call:
    """One call of the program, with its arguments translated.

    Attributes:
        draft: where nodes are added.
        name: what the value shall be called.
        args: positional arguments.
        kwargs: the others.
        results: types of what torch returns.
        origin: the program's name of the value.
    """

    draft: Draft
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    results: list[TensorType] = field(default_factory=list)
    origin: str = ""

    def arg(self, place: int, name: str = "", default: Any = None) -> Any:
        """An argument by place or name."""
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name, default)

    def tensor(self, place: int, name: str = "") -> str:
        """Name of a tensor argument; a plain number becomes a constant."""
        given = self.arg(place, name)
        return self.value(given)

    def value(self, given: Any) -> str:
        """Name of the value that an argument stands for."""
        if isinstance(given, Ref):
            return given.name
        if isinstance(given, (bool, int, float)):
            return self.draft.constant(f"const.{given}", np.asarray(given))
        raise ModelImportError(
            f"expected a tensor or a number, found {given!r}", at=self.name, hint="see the table"
        )

    def type(self, place: int) -> TensorType:
        """Type of a tensor argument."""
        return self.draft.type(self.tensor(place))

    def rank(self, place: int = 0) -> int:
        """Axes of a tensor argument."""
        return self.type(place).rank

    @property
    def shape(self) -> Shape:
        """Shape of the (first) result, as torch found it."""
        return self.results[0].shape

    def add(self, op: Operator, *inputs: str, last: bool = True) -> str:
        """A node; only the last one of a call carries the program's name of the value."""
        name = self.name if last else f"{self.name}.{op.kind}"
        return self.draft.add(op, inputs, name, self.origin if last else "")


Converter = Callable[[Call], Any]
