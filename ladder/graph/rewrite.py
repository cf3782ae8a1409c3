"""The canonical form of an imported graph: constants worked out offline, plain products by weights as linear layers.

Every rewrite keeps the meaning. before --> after, with shapes::

    transpose(constant[N, K])                 --> constant[K, N]
    matrix_product(x[..., K], constant[K, N]) --> linear(x[..., K], constant[N, K])
    transpose(transpose(x, p), q)             --> transpose(x, p after q), or x
    reshape(reshape(x, s), t)                 --> reshape(x, t)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ladder.graph.constant import Constant, transposed
from ladder.graph.draft import Draft
from ladder.graph.extent import is_symbolic
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import (
    Cast,
    Concat,
    Dequantize,
    Expand,
    Linear,
    MatrixProduct,
    Reshape,
    Slice,
    Transpose,
)
from ladder.graph.tensor import Array
from ladder.ttype import Quantized

#: operators that keep every bit of what they move, so that a constant keeps its dtype
MOVES = (Transpose, Reshape, Slice, Concat)


def canonical(graph: Graph) -> Graph:
    """All rewrites of this module until none applies."""
    while True:
        draft = Draft(graph)
        changed = False
        for node in graph.nodes:
            current = draft.nodes.get(node.name)
            changed |= current is not None and any(rule(draft, current) for rule in RULES)
        if not changed:
            return graph
        graph = draft.graph()


def folded(draft: Draft, node: Node) -> bool:
    """A node of constants alone is worked out offline."""
    constants = [draft.constants.get(name) for name in node.inputs]
    if not constants or isinstance(node.op, (Expand, Dequantize)) or is_symbolic(node.type.shape):
        return False
    known = [constant for constant in constants if constant is not None]
    if len(known) != len(constants):
        return False
    value = _offline(node, known)
    if value is None:
        return False
    name = draft.constant(_offline_name(node, known), value)
    draft.decide("rewrite", node.name, f"{node.op.kind} of constants worked out offline")
    draft.replace(node.name, name)
    del draft.nodes[node.name]
    return True


def _offline(node: Node, constants: list[Constant]) -> Array | Quantized | None:
    values = [constant.value for constant in constants]
    if isinstance(values[0], Quantized):
        turned = isinstance(node.op, Transpose) and node.op.order == (1, 0)
        return transposed(values[0]) if turned else None
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if len(arrays) != len(values):
        return None
    if isinstance(node.op, MOVES):
        return node.op.evaluate(*arrays, sizes={})
    if isinstance(node.op, Cast) and node.op.dtype == constants[0].type.dtype:
        return arrays[0]
    return node.op.evaluate(*(constant.values() for constant in constants), sizes={})


def _offline_name(node: Node, constants: list[Constant]) -> str:
    """A weight that was turned keeps its own name, with a mark; anything else is called as its node was."""
    if isinstance(node.op, Transpose):
        return f"{constants[0].name}.T"
    return f"{node.name}.value"


def linear_of_product(draft: Draft, node: Node) -> bool:
    """A product by a constant matrix is a linear layer over its transpose."""
    if not isinstance(node.op, MatrixProduct):
        return False
    x, w = node.inputs
    constant = draft.constants.get(w)
    if constant is None or constant.type.rank != 2 or draft.type(x).rank < 1:
        return False
    value = constant.value
    turned = transposed(value) if isinstance(value, Quantized) else value.T
    name = draft.constant(f"{w}.T", turned)
    draft.put(node.name, Linear(), (x, name))
    draft.decide("rewrite", node.name, f"a linear layer over {name}", "the factor is a constant")
    return True


def joined_moves(draft: Draft, node: Node) -> bool:
    """Two transposes are one, two reshapes are one, and one that moves nothing is none."""
    if not isinstance(node.op, (Transpose, Reshape)):
        return False
    before = draft.nodes.get(node.inputs[0])
    if isinstance(node.op, Reshape) and draft.type(node.inputs[0]).shape == node.op.shape:
        return _dropped(draft, node)
    if isinstance(node.op, Transpose) and node.op.order == tuple(range(len(node.op.order))):
        return _dropped(draft, node)
    if before is None or type(before.op) is not type(node.op):
        return False
    op: Transpose | Reshape = node.op
    if isinstance(op, Transpose) and isinstance(before.op, Transpose):
        op = Transpose(tuple(before.op.order[i] for i in op.order))
    draft.put(node.name, op, before.inputs)
    return True


def _dropped(draft: Draft, node: Node) -> bool:
    draft.replace(node.name, node.inputs[0])
    del draft.nodes[node.name]
    return True


#: in the order in which they are tried at a node
RULES: tuple[Callable[[Draft, Node], bool], ...] = (folded, linear_of_product, joined_moves)
