"""One node of an ONNX model, in plain Python; and integers that are known while the model is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ladder.errors import ModelImportError
from ladder.graph.draft import Draft
from ladder.graph.extent import Extent, is_symbolic
from ladder.graph.operators import Concat, Extents, Operator, Reshape
from ladder.graph.tensor import TensorType

#: integers of a 1-D tensor, or one for a scalar, where they follow from shapes and constants
Known = tuple[Extent, ...] | Extent


@dataclass
class Values:
    """What the walk knows so far, by ONNX's names.

    Attributes:
        draft: where nodes are added.
        names: the draft's name of each tensor.
        known: contents of small integer tensors, such as shapes.
        initializers: constants of the model as arrays, before any becomes a constant of the graph.
        opset: version of the default operator set.
    """

    draft: Draft
    opset: int
    names: dict[str, str] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    initializers: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def name(self, tensor: str) -> str:
        """The draft's name of a tensor; a constant or known integers are added when they are first read."""
        if tensor in self.names:
            return self.names[tensor]
        if tensor in self.initializers:
            self.names[tensor] = self.draft.constant(tensor, self.initializers[tensor])
        elif tensor in self.known:
            self.names[tensor] = self._integers(tensor, self.known[tensor])
        else:
            raise ModelImportError(f"no tensor is called {tensor!r}", at="model", hint="check it")
        return self.names[tensor]

    def _integers(self, tensor: str, known: Known) -> str:
        extents = known if isinstance(known, tuple) else (known,)
        if not is_symbolic(extents):
            shape = (len(extents),) if isinstance(known, tuple) else ()
            return self.draft.constant(tensor, np.asarray(extents, np.int64).reshape(shape))
        single = [self.draft.add(Extents(one), (), f"{tensor}.extent") for one in extents]
        if not isinstance(known, tuple):
            return single[0]
        rows = [self.draft.add(Reshape((1,)), (one,), f"{tensor}.row") for one in single]
        return self.draft.add(Concat(0), rows, tensor)

    def integers(self, tensor: str) -> Known | None:
        """The contents of an integer tensor, if they are known and it has at most one axis."""
        if tensor in self.known:
            return self.known[tensor]
        array = self.initializers.get(tensor)
        if array is None or array.ndim > 1 or array.dtype.kind not in "iu":
            return None
        return tuple(array.tolist()) if array.ndim else int(array)


@dataclass
class Call:
    """A node with its attributes as Python values.

    Attributes:
        values: what is known so far.
        kind: operator, with its domain where that is not the default one.
        name: what the value shall be called.
        inputs: ONNX's names, "" for one that is left out.
        outputs: the same.
        attributes: by name.
    """

    values: Values
    kind: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def tensor(self, place: int) -> str:
        """The draft's name of an input."""
        if not self.has(place):
            raise ModelImportError(
                f"input {place} is missing", at=self.name, hint="onnx.checker.check_model says more"
            )
        return self.values.name(self.inputs[place])

    def tensors(self) -> list[str]:
        """All inputs that are given."""
        return [self.tensor(place) for place in range(len(self.inputs)) if self.has(place)]

    def type(self, place: int) -> TensorType:
        """Type of an input."""
        return self.values.draft.type(self.tensor(place))

    def rank(self, place: int = 0) -> int:
        """Axes of an input."""
        return self.type(place).rank

    def array(self, place: int) -> np.ndarray[Any, Any] | None:
        """An input that is a constant of the model."""
        return self.values.initializers.get(self.inputs[place]) if self.has(place) else None

    def integers(self, place: int, attribute: str = "") -> tuple[Extent, ...] | None:
        """Integers from an input, or from an attribute of older operator sets; None where neither is given.

        Raises:
            ModelImportError: the input is not known before the model runs.
        """
        if attribute and attribute in self.attributes:
            return tuple(self.attributes[attribute])
        if not self.has(place):
            return None
        known = self.values.integers(self.inputs[place])
        if known is None:
            raise ModelImportError(
                f"{self.inputs[place]} is computed while the model runs",
                at=self.name,
                hint="shapes, axes and ends have to follow from constants and shapes",
            )
        return known if isinstance(known, tuple) else (known,)

    def add(self, op: Operator, *inputs: str, last: bool = True) -> str:
        """A node; only the last one of a call carries ONNX's name of the value."""
        name = self.name if last else f"{self.name}.{op.kind}"
        return self.values.draft.add(op, inputs, name, self.outputs[0] if last else "")


Converter = Callable[[Call], Any]
