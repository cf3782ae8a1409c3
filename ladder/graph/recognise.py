"""Operators that models spell out, put together again: norms, rotary embedding, attention, activations.

before --> after::

    x * rsqrt(mean(x^2) + eps) * w                       --> rms_norm(x, w)
    x * cos + concat(-x[h:], x[:h]) * sin                --> rotary(x, cos, sin)
    softmax(scale * q @ transpose(k) + mask) @ v         --> attention(q, k, v, mask)
    reshape(expand(k [B,G,1,T,D])) [B,G*r,T,D] in it     --> attention over G groups
    x * sigmoid(x), 0.5 * x * (1 + erf(x / sqrt(2)))     --> silu(x), gelu(x)

Only the meaning counts: a cast to float32 and back within a norm is how a framework rounds, and goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ladder.graph.draft import Draft
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import (
    Attention,
    Binary,
    Cast,
    Concat,
    Expand,
    MatrixProduct,
    Operator,
    Reduce,
    Reshape,
    RMSNorm,
    Rotary,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from ladder.graph.pattern import (
    Found,
    Made,
    Number,
    Pattern,
    Variable,
    behind_casts,
    either,
    first,
    number_of,
    of,
    op,
)

X = Variable("x")

_MEAN = Made(
    lambda given: isinstance(given, Reduce) and given.function == "mean" and given.keep,
    (either(op("power", X, Number(2)), op("multiply", X, X), op("square", X)),),
    key="mean",
)
_SPREAD = op("add", _MEAN, Number(key="eps"))
_ROOT = either(op("sqrt", _SPREAD), op("power", _SPREAD, Number(0.5)))
_NORMED = either(
    op("multiply", X, either(
        op("rsqrt", _SPREAD), op("reciprocal", _ROOT), op("divide", Number(1), _ROOT), op("power", _SPREAD, Number(-0.5)),
    )),
    op("divide", X, _ROOT),
)  # fmt: skip
_IS_WEIGHT = Variable("w", lambda draft, name: name in draft.constants)
RMS_NORM: Pattern = op("multiply", _NORMED, _IS_WEIGHT)

SILU = op("multiply", X, op("sigmoid", X))
_ERF = op(
    "add",
    Number(1),
    op("erf", either(op("divide", X, Number(math.sqrt(2))), op("multiply", X, Number(math.sqrt(0.5))))),
)  # fmt: skip
GELU = either(
    op("multiply", op("multiply", X, _ERF), Number(0.5)),
    op("multiply", op("multiply", X, Number(0.5)), _ERF),
    op("multiply", X, op("multiply", Number(0.5), _ERF)),
)

_TURNED = of(
    Concat,
    op("negative", of(Slice, X, key="upper")),
    of(Slice, X, key="lower"),
    key="turned",
)
ROTARY = op(
    "add",
    op("multiply", X, Variable("cos")),
    op("multiply", _TURNED, Variable("sin")),
)


def recognise(graph: Graph) -> Graph:
    """All patterns of this module, each wherever it stands."""
    for rule in RULES:
        draft = Draft(graph)
        for node in graph.nodes:
            current = draft.nodes.get(node.name)
            if current is not None:
                rule(draft, current)
        graph = draft.graph()
    return graph


def _put(draft: Draft, node: Node, op_: Operator, inputs: tuple[str, ...], why: str) -> None:
    """Another operator for a node, with a cast behind it where its type would change."""
    made = op_.infer(*(draft.type(name) for name in inputs))
    if made.dtype != node.type.dtype:
        inner = draft.add(op_, inputs, f"{node.name}.{op_.kind}")
        draft.put(node.name, Cast(node.type.dtype), (inner,))
    else:
        draft.put(node.name, op_, inputs)
    draft.decide("rewrite", node.name, f"recognised as {op_}", why)


def rms_norm(draft: Draft, node: Node) -> None:
    """A norm that is spelled out."""
    found = first(RMS_NORM, draft, node) if isinstance(node.op, Binary) else None
    if found is None:
        return
    mean = draft.nodes[found["mean"]].op
    rank = draft.type(found["x"]).rank
    eps = number_of(draft, found["eps"])
    weight = draft.type(found["w"])
    assert isinstance(mean, Reduce)
    if mean.axes not in ((-1,), (rank - 1,)) or eps is None or weight.rank != 1:
        return
    _put(draft, node, RMSNorm(1, eps), (found["x"], found["w"]), "x / rms(x) * weight")


def silu(draft: Draft, node: Node) -> None:
    """``x * sigmoid(x)``."""
    _activation(draft, node, SILU, "silu")


def gelu(draft: Draft, node: Node) -> None:
    """The exact GELU."""
    _activation(draft, node, GELU, "gelu")


def _activation(draft: Draft, node: Node, pattern: Pattern, function: str) -> None:
    found = first(pattern, draft, node) if isinstance(node.op, Binary) else None
    if found is not None:
        _put(draft, node, Unary(function), (found["x"],), "spelled out")


def rotary(draft: Draft, node: Node) -> None:
    """The half-turned form that LLaMA has."""
    found = first(ROTARY, draft, node) if isinstance(node.op, Binary) else None
    if found is None or not _is_half_turn(draft, found):
        return
    inputs = (found["x"], found["cos"], found["sin"])
    for name in inputs[1:]:
        if draft.type(name).rank > draft.type(inputs[0]).rank:
            return
    _put(draft, node, Rotary(), inputs, "x * cos + (-upper, lower) * sin")


def _is_half_turn(draft: Draft, found: Found) -> bool:
    last = draft.type(found["x"]).rank - 1
    turned, upper, lower = (draft.nodes[found[key]].op for key in ("turned", "upper", "lower"))
    extent = draft.type(found["x"]).shape[-1]
    if not isinstance(extent, int) or extent % 2:
        return False
    half = extent // 2
    return (turned, upper, lower) == (
        Concat(last),
        Slice(last, half, extent),
        Slice(last, 0, half),
    )


def attention(draft: Draft, node: Node) -> None:
    """Attention that is spelled out as two products and a softmax."""
    if not isinstance(node.op, MatrixProduct):
        return
    weights = draft.nodes.get(behind_casts(draft, node.inputs[0]))
    if weights is None or not isinstance(weights.op, Softmax):
        return
    if weights.op.axis not in (-1, weights.type.rank - 1):
        return
    found = _scores(draft, weights.inputs[0])
    v = behind_casts(draft, node.inputs[1])
    if found is None or draft.type(found[0]).rank < 3:
        return
    q, k, scale, mask = found
    k, v = _ungrouped(draft, k, v)
    types = [draft.type(name) for name in (q, k, v)]
    if len({one.rank for one in types}) != 1:
        return
    _put(draft, node, Attention(scale=scale), (q, k, v, *mask), "softmax(q k^T) v")


def _scores(draft: Draft, name: str) -> tuple[str, str, float, tuple[str, ...]] | None:
    """q, k, scale and mask of scores; None where they are something else."""
    scale = 1.0
    mask: tuple[str, ...] = ()
    while True:
        name = behind_casts(draft, name)
        node = draft.nodes.get(name)
        if node is None:
            return None
        if isinstance(node.op, MatrixProduct):
            return _q_and_k(draft, node, scale, mask)
        step = _scaling(draft, node)
        if step is not None:
            name, factor = step
            scale *= factor
        elif node.op == Binary("add") and not mask and scale == 1.0:
            name, other = node.inputs
            mask = (other,)
        else:
            return None


def _scaling(draft: Draft, node: Node) -> tuple[str, float] | None:
    """A product with a number: the other operand and the number."""
    if not isinstance(node.op, Binary):
        return None
    a, b = node.inputs
    if node.op.function == "divide" and (number := number_of(draft, b)):
        return a, 1 / number
    if node.op.function == "multiply":
        for one, other in ((a, b), (b, a)):
            if (number := number_of(draft, other)) is not None:
                return one, number
    return None


def _q_and_k(
    draft: Draft, product: Node, scale: float, mask: tuple[str, ...]
) -> tuple[str, str, float, tuple[str, ...]] | None:
    q, turned = (behind_casts(draft, name) for name in product.inputs)
    scales = []
    for name in (q, turned):
        node = draft.nodes.get(name)
        scales.append((_scaling(draft, node) if node is not None else None) or (name, 1.0))
    (q, a), (turned, b) = scales
    node = draft.nodes.get(behind_casts(draft, turned))
    if node is None or not isinstance(node.op, Transpose):
        return None
    rank = node.type.rank
    order = node.op.order
    # k^T often comes as one transpose with the split into heads: undo the last swap only
    swap = (*order[:-2], order[-1], order[-2])
    if swap == tuple(range(rank)):
        k = node.inputs[0]
    else:
        k = draft.add(Transpose(swap), node.inputs, f"{node.name}.heads")
    return q, k, scale * a * b, mask


def _ungrouped(draft: Draft, k: str, v: str) -> tuple[str, str]:
    """k and v before each head was repeated for its group of queries; as they are where none was."""
    found = [_before_repeat(draft, name) for name in (k, v)]
    if found[0] is None or found[1] is None:
        return k, v
    return found[0], found[1]


def _before_repeat(draft: Draft, name: str) -> str | None:
    joined = draft.nodes.get(behind_casts(draft, name))
    if joined is None or not isinstance(joined.op, Reshape):
        return None
    spread = draft.nodes.get(joined.inputs[0])
    if spread is None or not isinstance(spread.op, Expand):
        return None
    opened = draft.nodes.get(spread.inputs[0])
    if opened is None or not isinstance(opened.op, Reshape):
        return None
    source = draft.type(opened.inputs[0]).shape
    if opened.type.shape != (*source[:-2], 1, *source[-2:]):
        return None
    return opened.inputs[0]


#: in the order in which they run over the graph
RULES: tuple[Callable[[Draft, Node], None], ...] = (rms_norm, silu, gelu, rotary, attention)
