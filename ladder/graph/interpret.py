"""The reference interpreter: what a graph means, in float64 of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ladder.errors import GraphError, TypeDeclarationError
from ladder.graph.extent import bind
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import Foreign
from ladder.graph.tensor import DTYPES, Array, TensorType
from ladder.ttype.arrays import as_array

#: what the caller's framework computes, by the target of a :class:`~ladder.graph.operators.Foreign`
ForeignFunctions = Mapping[str, Callable[..., Any]]
#: kinds of NumPy's dtypes of truths and whole numbers
WHOLE = "biu"
#: types of torch that NumPy lacks
WIDENED = frozenset({"torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"})
#: another way to compute a node: from the node and its operands to its value, or None for the meaning
Instead = Callable[[Node, Sequence[Array]], Array | None]


def run(graph: Graph, inputs: Sequence[Any], *, foreign: ForeignFunctions | None = None) -> Any:
    """Run a graph on arrays (NumPy's, or anything that NumPy reads, such as torch's on the CPU).

    Returns:
        One array, or a tuple of them as the graph has outputs. Real numbers are float64, not rounded anywhere.

    Raises:
        GraphError: there are too few or too many inputs.
        ShapeError: an input does not have its shape.
    """
    values = trace(graph, inputs, foreign=foreign, keep=graph.outputs)
    results = tuple(values[name] for name in graph.outputs)
    return results[0] if len(results) == 1 else results


def trace(
    graph: Graph,
    inputs: Sequence[Any],
    *,
    foreign: ForeignFunctions | None = None,
    keep: Sequence[str] | None = None,
    instead: Instead | None = None,
) -> dict[str, Array]:
    """Run a graph and return the values of ``keep`` (None: of every node), by name."""
    values, sizes = inputs_of(graph, inputs)
    readers = {name: len(users) for name, users in graph.users.items()}
    kept = set(graph.types if keep is None else keep)
    for constant in graph.constants:
        if constant.name in kept:
            values[constant.name] = constant.values()
    for node in graph.nodes:
        operands = [operand(graph, values, name) for name in node.inputs]
        found = None if instead is None else instead(node, operands)
        if found is None:
            found = meaning(node, operands, sizes, foreign or {})
        values[node.name] = np.asarray(found)
        for name in node.inputs:
            readers[name] -= 1
            if not readers[name] and name not in kept:
                values.pop(name, None)
    return {name: value for name, value in values.items() if name in kept}


def operand(graph: Graph, values: Mapping[str, Array], name: str) -> Array:
    """A value; constants are spread out to float64 only while a node reads them."""
    if name in values:
        return values[name]
    constant = graph.constant(name)
    assert constant is not None
    return constant.values()


def meaning(
    node: Node, operands: Sequence[Array], sizes: Mapping[str, int], foreign: ForeignFunctions
) -> Array:
    """A node's value from those of its operands."""
    if isinstance(node.op, Foreign) and node.op.target in foreign:
        return np.asarray(foreign[node.op.target](*operands))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return node.op.evaluate(*operands, sizes=sizes)


def inputs_of(graph: Graph, given: Sequence[Any]) -> tuple[dict[str, Array], dict[str, int]]:
    """The values of a call's inputs, and what symbols of shapes they make known.

    Raises:
        GraphError: there are too few or too many.
        ShapeError: one does not have its shape.
        TypeDeclarationError: one does not hold real numbers, or not whole ones where its type does.
    """
    if len(given) != len(graph.inputs):
        raise GraphError(
            f"{len(given)} inputs were given",
            at="run",
            hint="it takes " + ", ".join(f"{one.name}: {one.type}" for one in graph.inputs),
        )
    sizes: dict[str, int] = {}
    values: dict[str, Array] = {}
    for one, array in zip(graph.inputs, given, strict=True):
        at = f"input {one.name}: {one.type}"
        found = as_array(_host(array), at=at)
        if found.dtype.kind in "cOSUMm":  # they would lose or gain a meaning
            raise TypeDeclarationError(
                f"expected real numbers, found an array of dtype {found.dtype}",
                at=at,
                hint="pass an array of a float or integer dtype; ml_dtypes' dtypes are welcome",
            )
        whole = DTYPES[one.type.element][0].kind in WHOLE
        if whole and found.dtype.kind not in WHOLE:  # digits would be cut off
            raise TypeDeclarationError(
                f"expected whole numbers, found an array of dtype {found.dtype}",
                at=at,
                hint=f"convert it: array.astype({one.type.dtype!r})",
            )
        bind(one.type.shape, found.shape, sizes, at)
        values[one.name] = as_meant(found, one.type)
    return values, sizes


def _host(array: Any) -> Any:
    """A tensor of torch as NumPy's array: types that NumPy lacks widened exactly."""
    if hasattr(array, "detach"):
        array = array.detach()
        if str(array.dtype) in WIDENED:
            array = array.float()
    return array


def as_meant(array: Array, type_: TensorType) -> Array:
    """An array as values of a type are handled: float64, int64 or bool."""
    if type_.dtype == "bool":
        return array.astype(bool)
    return array.astype(np.float64 if type_.is_float else np.int64)
