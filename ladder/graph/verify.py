"""A graph beside the model that it was imported from, layer by layer.

Each node is computed in float64 from the very operands that the model used, and its result compared with the model's:
errors do not pile up from layer to layer, so each has a bound of its own (:mod:`ladder.graph.bounds`). The graph is also run
by itself from the inputs on, and the direction of every value compared with the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ladder.checks import accept, refuse_unknown
from ladder.errors import GraphError
from ladder.graph.bounds import ROUNDOFF, Quantisation, bound, row_error, weight_error
from ladder.graph.extent import Sizes, Symbolic, shape_of
from ladder.graph.graph import GRAPH, Graph, Node
from ladder.graph.interpret import as_meant, inputs_of, meaning, operand, trace
from ladder.graph.operators import Binary, Cast, Expand, Foreign, Gather, Linear, QuantizeTokens
from ladder.graph.rewrite import MOVES
from ladder.graph.tensor import DTYPES, Array
from ladder.ttype import Quantized


@dataclass(frozen=True, slots=True)
class Row:
    """One value that the model and the graph both have.

    Attributes:
        name: the graph's.
        origin: the model's.
        operator: in words.
        error: ``|y - y'|_2 / |y|_2`` on the model's own operands.
        bound: largest error that rounding, and quantising of this layer's weight, explain.
        cosine: of the value when the graph runs by itself from its inputs.
    """

    name: str
    origin: str
    operator: str
    error: float
    bound: float
    cosine: float

    @property
    def ok(self) -> bool:
        """Whether the error is within its bound."""
        return bool(self.error <= self.bound)


@dataclass(frozen=True)
class Report:
    """What :func:`verify` found.

    Attributes:
        rows: one to each value that both sides have, in order.
        cosine: least of the outputs, run from the inputs on.
    """

    rows: tuple[Row, ...]
    cosine: float

    @property
    def ok(self) -> bool:
        """Whether every row is within its bound."""
        return all(row.ok for row in self.rows)

    @property
    def wrong(self) -> tuple[Row, ...]:
        """Rows beyond their bound."""
        return tuple(row for row in self.rows if not row.ok)

    def __str__(self) -> str:
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [f"{'layer':<{width}}  {'error':>9}  {'bound':>9}  {'cosine':>10}  operator"]
        lines += [
            f"{row.name:<{width}}  {row.error:9.2e}  {row.bound:9.2e}  {row.cosine:10.7f}  "
            f"{row.operator}{'' if row.ok else '  BEYOND ITS BOUND'}"
            for row in self.rows
        ]
        state = "right" if self.ok else f"{len(self.wrong)} layers are beyond their bound"
        return "\n".join(
            [*lines, f"{len(self.rows)} layers, outputs at cosine {self.cosine:.7f}: {state}"]
        )


def verify(
    graph: Graph, model: Any, inputs: Sequence[Any] | None = None, *, seed: int = 0
) -> Report:
    """Compare a graph with the model that it was imported from.

    Args:
        graph: from :func:`ladder.from_torch` or :func:`ladder.from_onnx`, and perhaps assigned types and fused since.
        model: the path of an ONNX file or a loaded one, an ExportedProgram, or an ``nn.Module``.
        inputs: of both; None for seeded normal numbers, symbols of shapes being small.
        seed: of those.

    Raises:
        GraphError: the graph and the model have no value in common, or the inputs leave nothing to compare.
        ModelImportError: what runs the model (torch, or onnx) is missing.
    """
    graph = accept(graph, GRAPH, "graph", at="verify", error=GraphError)
    given = list(inputs) if inputs is not None else example_inputs(graph, seed)
    refuse_empty(graph, inputs_of(graph, given)[1])
    is_onnx = isinstance(model, (str, Path)) or type(model).__module__.startswith("onnx")
    if is_onnx:
        from ladder.graph.importers.onnx import traced as traced_onnx

        values, outputs = traced_onnx(model, given)
    else:
        from ladder.graph.importers.torch_export import exported
        from ladder.graph.importers.torch_run import traced

        # names of values depend on what is dynamic: exported as the graph was
        values, outputs = traced(exported(model, given, _dynamic(graph)), given)
    return compare(graph, given, values, outputs)


def _dynamic(graph: Graph) -> list[dict[int, str]] | None:
    """Of each input, its dynamic axes by name; None where no axis is dynamic."""
    axes = [
        {
            axis: str(extent)
            for axis, extent in enumerate(one.type.shape)
            if str(extent).isidentifier()
        }
        for one in graph.inputs
    ]
    return axes if any(axes) else None


def example_inputs(graph: Graph, seed: int = 0, **sizes: int) -> list[Array]:
    """Seeded inputs of a graph: normal numbers, token numbers below 2, truths; symbols as given, or 2, 3, 4, ..."""
    rng = np.random.default_rng(seed)
    symbols = sorted({s for one in graph.inputs for e in one.type.shape if isinstance(e, Symbolic) for s in e.symbols})  # fmt: skip
    refuse_unknown(sizes, symbols, "the graph has no symbol", at="example_inputs", error=GraphError)
    known = {name: sizes.get(name, place + 2) for place, name in enumerate(symbols)}
    found = []
    for one in graph.inputs:
        shape = shape_of(one.type.shape, known)
        dtype = DTYPES[one.type.element][0]
        numbers = rng.normal(size=shape) if one.type.is_float else rng.integers(0, 2, shape)
        found.append(numbers.astype(dtype))
    return found


def compare(
    graph: Graph,
    inputs: Sequence[Any],
    model: Mapping[str, Array],
    outputs: Sequence[Array],
) -> Report:
    """Compare a graph with the values that a model made of the same inputs.

    Args:
        graph: imported from the model, and perhaps assigned types and fused since.
        inputs: of both.
        model: the model's values by its own names (a node's ``origin``).
        outputs: what the model returned.

    Raises:
        GraphError: the graph and the model have no value in common, or the inputs leave nothing to compare.
    """
    if not any(node.origin in model for node in graph.nodes):
        raise GraphError(
            "graph and model have no value in common",
            at="verify",
            hint="give the model that the graph was imported from",
        )
    values, sizes = inputs_of(graph, inputs)
    refuse_empty(graph, sizes)
    own = trace(graph, inputs, instead=lambda node, _: _foreign(node, model))
    pending: Pending = {}
    rows = []
    for node in graph.nodes:
        operands = [operand(graph, values, name) for name in node.inputs]
        theirs = _foreign(node, model)
        if theirs is not None:  # the framework's own: nothing to compare
            values[node.name] = theirs
            continue
        values[node.name] = result = meaning(node, operands, sizes, {})
        allowed = _allowed(graph, node, operands, pending, sizes)
        if node.origin in model:
            theirs = as_meant(np.asarray(model[node.origin]), node.type)
            rows.append(_row(node, (result, theirs, own[node.name]), allowed))
            values[node.name] = theirs
        else:
            pending[node.name] = allowed
    mine = [own[name] for name in graph.outputs]
    cosines = [cosine(a, np.asarray(b)) for a, b in zip(mine, outputs, strict=True)]
    return Report(tuple(rows), min(cosines, default=1.0))


def refuse_empty(graph: Graph, sizes: Sizes) -> None:
    """Refuse inputs with which a layer, or the whole, computes nothing: no error and no cosine says anything of it.

    Other values may be empty: a cache is at the first token.

    Raises:
        GraphError: the result of a linear layer, or an output, has 0 elements.
    """
    for name in (*(node.name for node in graph.of(Linear)), *graph.outputs):
        shape = shape_of(graph.types[name].shape, sizes)
        if 0 in shape:
            raise GraphError(
                f"{name} is {list(shape)}: there is nothing to verify",
                at="verify",
                hint="give inputs of one row or more",
            )


def _foreign(node: Node, model: Mapping[str, Array]) -> Array | None:
    """What the model made of a node that is left to its framework; None for any other node."""
    if not isinstance(node.op, Foreign):
        return None
    if node.origin not in model:
        raise GraphError(
            f"the model has no value {node.origin!r}",
            at=f"{node.name} = {node.op}",
            hint="an operator of the caller's framework has to come from the model that is compared",
        )
    return as_meant(np.asarray(model[node.origin]), node.type)


def _row(node: Node, values: tuple[Array, Array, Array], allowed: Array) -> Row:
    result, theirs, own = values
    size = float(np.linalg.norm(np.ravel(theirs))) or 1.0
    return Row(
        node.name,
        node.origin,
        str(node.op),
        relative(result, theirs),
        float(np.linalg.norm(np.ravel(allowed))) / size,
        cosine(own, theirs),
    )


#: of values that the model does not have: how far each element may be from what the model would compute
Pending = dict[str, Array]


def _allowed(
    graph: Graph, node: Node, operands: Sequence[Array], pending: Pending, sizes: Sizes
) -> Array:
    """The bound of a node beside a model that rounds to the types of the graph's edges."""
    waiting = [
        pending.get(name, np.zeros(np.shape(o)))
        for name, o in zip(node.inputs, operands, strict=True)
    ]
    if isinstance(node.op, (*MOVES, Expand, Gather, Cast)):
        arguments = [waiting[0], operands[1]] if isinstance(node.op, Gather) else waiting
        return node.op.evaluate(*arguments, sizes=sizes)
    result = node.op.evaluate(*operands, sizes=sizes)
    if isinstance(node.op, QuantizeTokens):
        return row_error(result, node.op) + waiting[0]
    dtypes = {graph.types[name].dtype for name in (*node.inputs, node.name)}
    roundoff = max((ROUNDOFF[dtype] for dtype in dtypes if dtype in ROUNDOFF), default=0.0)
    if not isinstance(node.op, Linear):
        return bound(node, operands, result, roundoff) + _carried(node, waiting, result)
    weight = graph.constant(node.inputs[1])
    w: Array | float = 0.0
    if weight is not None and isinstance(weight.value, Quantized) and weight.sources:
        w = weight_error(weight.value)
    x = waiting[0] if node.inputs[0] in pending else 0.0
    return bound(node, operands, result, roundoff, Quantisation(x, w))


def _carried(node: Node, waiting: Sequence[Array], result: Array) -> Array:
    """Errors of operands that a sum or another operator of real numbers hands on; a sum adds them."""
    if not any(np.any(one) for one in waiting):
        return np.zeros(result.shape)
    if isinstance(node.op, Binary) and node.op.function in ("add", "subtract"):
        return np.broadcast_to(waiting[0] + waiting[1], result.shape)
    raise GraphError(
        f"{node.name} reads a value that the model does not have, and no bound is known for that",
        at=str(node.op),
        hint="verify the graph before it is fused",
    )


def cosine(a: Array, b: Array) -> float:
    """Cosine of the angle between two tensors; 1 where both are zero."""
    x, y = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size else float(np.array_equal(x, y))


def relative(a: Array, b: Array) -> float:
    """``|a - b|_2 / |b|_2``; the absolute error where b is zero."""
    size = float(np.linalg.norm(np.ravel(b)))
    error = float(np.linalg.norm(np.ravel(a).astype(np.float64) - np.ravel(b)))
    return error / size if size else error
