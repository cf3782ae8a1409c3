"""Fusion: what stands around a linear layer becomes its epilogue, and layers that read one input become one.

before --> after, each with the same meaning::

    linear(x, w) + bias[N]                      --> linear(x, w; bias)
    silu(linear(x, w))                          --> linear(x, w; silu)
    silu(linear(x, gate)) * linear(x, up)       --> linear(x, [gate; up]; silu(gate)*up)
    residual + linear(x, w)                     --> linear(x, w; residual)
    quantize_tokens(linear(x, w))               --> linear(x, w; to int8 by rows, or by the scale that is known)
    linear(x, q), linear(x, k), linear(x, v)    --> slices of linear(x, [q; k; v])

A layer whose result somebody else reads too is left: it would be computed twice or stored anyhow. Every fusion, and every
one that was near and not done, is a decision with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ladder.graph.constant import stacked
from ladder.graph.draft import Draft
from ladder.graph.extent import Extent
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import (
    ACTIVATIONS,
    Activated,
    AddResidual,
    Biased,
    Binary,
    Coded,
    EpilogueStep,
    Gated,
    Linear,
    QuantizedRows,
    QuantizeTokens,
    Slice,
    Unary,
)
from ladder.ttype import Quantized


def fuse(graph: Graph) -> Graph:
    """All fusions of this module, rule after rule over the whole graph."""
    for rule in RULES:
        draft = Draft(graph)
        for node in graph.nodes:
            current = draft.nodes.get(node.name)
            if current is not None:
                rule(draft, current)
        graph = draft.graph()
    return graph


def _layer(draft: Draft, name: str) -> Node | None:
    """The linear layer that alone is behind a value, if nobody else reads it."""
    node = draft.nodes.get(name)
    if node is None or not isinstance(node.op, Linear):
        return None
    if draft.sole_user(name) is None:
        users = [user.name for user, _ in draft.users(name)]
        if len(users) > 1 or name in draft.outputs:
            readers = ", ".join([*users, *(["the caller"] if name in draft.outputs else [])])
            draft.decide("fuse", name, "left as it is", f"{readers} read it")
        return None
    return node


def _extended(draft: Draft, node: Node, layer: Node, step: EpilogueStep, *operands: str) -> None:
    """``node`` becomes the layer with one more step; the layer itself is no longer read."""
    assert isinstance(layer.op, Linear)
    op = replace(layer.op, epilogue=(*layer.op.epilogue, step))
    if node.type.dtype != layer.type.dtype and not isinstance(step, (QuantizedRows, Coded)):
        op = replace(op, out=node.type.dtype)
    draft.put(node.name, op, (*layer.inputs, *operands))
    draft.decide(
        "fuse", node.name, f"{step} in the epilogue of {layer.name}", "it is its only reader"
    )


def bias(draft: Draft, node: Node) -> None:
    """A constant of N numbers added to a layer without steps."""
    if not isinstance(node.op, Binary) or node.op.function != "add":
        return
    for one, other in (node.inputs, node.inputs[::-1]):
        constant = draft.constants.get(other)
        if constant is None or constant.type.rank > 1 or constant.type.weight is not None:
            continue
        layer = _layer(draft, one)
        fits = layer is not None and constant.type.shape in ((layer.type.shape[-1],), (1,), ())
        if layer is not None and fits and node.type.shape == layer.type.shape:
            _extended(draft, node, layer, Biased(), other)
            return


def gated(draft: Draft, node: Node) -> None:
    """A gate and an up projection of one input."""
    if not isinstance(node.op, Binary) or node.op.function != "multiply":
        return
    for one, other in (node.inputs, node.inputs[::-1]):
        activation = draft.nodes.get(one)
        if activation is None or not _is_activation(activation) or draft.sole_user(one) is None:
            continue
        gate, up = _layer(draft, activation.inputs[0]), _layer(draft, other)
        if gate is None or up is None:
            continue
        merged = _merged(draft, [gate, up], f"{node.name}.weight")
        if merged is None:
            continue
        assert isinstance(activation.op, Unary)
        op, inputs = merged
        step = Gated(activation.op.function)
        draft.put(
            node.name, replace(op, epilogue=(*op.epilogue, step), out=node.type.dtype), inputs
        )
        why = "both read " + inputs[0]
        draft.decide("fuse", node.name, f"{gate.name} and {up.name} as one layer with {step}", why)
        return


def _is_activation(node: Node) -> bool:
    return isinstance(node.op, Unary) and node.op.function in ACTIVATIONS


def _merged(draft: Draft, layers: list[Node], name: str) -> tuple[Linear, tuple[str, ...]] | None:
    """One layer over the weights of several, one below the other; None, with the reason noted, where that is not possible."""
    ops = [layer.op for layer in layers if isinstance(layer.op, Linear)]
    names = ", ".join(layer.name for layer in layers)
    steps = {op.epilogue for op in ops}
    if len({layer.inputs[0] for layer in layers}) > 1:
        return None
    if len(set(ops)) > 1 or steps - {(), (Biased(),)}:
        draft.decide("fuse", names, "left apart", "their types or epilogues differ")
        return None
    weight = _stacked(draft, [layer.inputs[1] for layer in layers], name)
    if weight is None:
        draft.decide(
            "fuse",
            names,
            "left apart",
            "their weights do not stack: types differ, or a group spans rows",
        )
        return None
    inputs = [layers[0].inputs[0], weight]
    if ops[0].epilogue:
        biases = [draft.constants.get(layer.inputs[2]) for layer in layers]
        if any(one is None or one.type.rank != 1 for one in biases):
            draft.decide("fuse", names, "left apart", "a bias is no constant")
            return None
        values = [np.asarray(one.value) for one in biases if one is not None]
        inputs.append(draft.constant(f"{name}.bias", np.concatenate(values)))
    return ops[0], tuple(inputs)


def _stacked(draft: Draft, names: list[str], name: str) -> str | None:
    constants = [draft.constants.get(one) for one in names]
    known = [constant for constant in constants if constant is not None]
    if len(known) != len(names):
        return None
    sources = tuple(source for one in known for source in one.sources)
    codes = [one.value for one in known if isinstance(one.value, Quantized)]
    if codes and len(codes) == len(known):
        both = stacked(codes)
        return None if both is None else draft.constant(name, both, sources)
    arrays = [one.value for one in known if isinstance(one.value, np.ndarray)]
    if len(arrays) != len(known) or len({array.dtype for array in arrays}) > 1:
        return None
    return draft.constant(name, np.concatenate(arrays))


def activation(draft: Draft, node: Node) -> None:
    """A function that epilogues know, of one layer."""
    if _is_activation(node) and (layer := _layer(draft, node.inputs[0])) is not None:
        assert isinstance(node.op, Unary)
        _extended(draft, node, layer, Activated(node.op.function))


def shared_input(draft: Draft, node: Node) -> None:
    """Layers that read the same value as this one, each a slice of the result of one."""
    if not isinstance(node.op, Linear):
        return
    layers = [
        user
        for user, place in draft.users(node.inputs[0])
        if place == 0 and isinstance(user.op, Linear) and user.name not in draft.outputs
    ]
    if len(layers) < 2 or layers[0].name != node.name:
        return
    prefix = layers[0].name.rpartition(".")[0]
    short = "+".join(layer.name.removeprefix(f"{prefix}.") for layer in layers)
    name = f"{prefix}.{short}" if prefix else short
    merged = _merged(draft, layers, f"{name}.weight")
    if merged is None:
        return
    op, inputs = merged
    one = draft.add(op, inputs, name)
    start: Extent = 0
    for layer in layers:
        stop = start + layer.type.shape[-1]
        draft.put(layer.name, Slice(layer.type.rank - 1, start, stop), (one,))
        start = stop
    names = ", ".join(layer.name for layer in layers)
    draft.decide("fuse", name, f"{names} as one layer", f"all read {inputs[0]}")


def residual(draft: Draft, node: Node) -> None:
    """Another value of the same shape added to one layer."""
    if not isinstance(node.op, Binary) or node.op.function != "add":
        return
    for one, other in (node.inputs[::-1], node.inputs):
        if draft.type(other).shape != node.type.shape or other in draft.constants or one == other:
            continue
        layer = _layer(draft, one)
        if layer is not None and layer.type.shape == node.type.shape:
            _extended(draft, node, layer, AddResidual(), other)
            return


def quantized_rows(draft: Draft, node: Node) -> None:
    """Rows that are quantised as a layer stores them."""
    if isinstance(node.op, QuantizeTokens) and (layer := _layer(draft, node.inputs[0])) is not None:
        _extended(draft, node, layer, node.op.coded or QuantizedRows(node.op.target))


#: in the order in which they run over the graph: a gate takes its two layers before those that are left share an input
RULES: tuple[Callable[[Draft, Node], None], ...] = (
    bias,
    gated,
    activation,
    shared_input,
    residual,
    quantized_rows,
)
