"""Propagation over whole layers, large graphs and any graph of moves and layers."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.graph.operators import (
    Binary,
    Concat,
    MatrixProduct,
    Slice,
    Unary,
)
from ladder.graph.rules import Rule
from tests.graph.layouts.conftest import RNG, B, Build, check, data


@cache
def llama_graphs(llama, name):
    """A prompt's graph and a next token's, each with its inputs."""
    import ladder

    config = llama.CONFIGS[name].scaled(32)
    module = llama.layer(config)
    inputs, dynamic = llama.prompt(config, 2, 4)
    prompt = ladder.from_torch(module, inputs, dynamic=dynamic)
    more, dynamic = llama.next_token(config, 2, 4)
    return (prompt, inputs), (ladder.from_torch(module, more, dynamic=dynamic), more)


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("activation", ["float16", "int8"])
def test_no_conversion_is_left_in_a_llama_layer(llama, name, fused, activation):
    rule = Rule(weight="int8", group="channel", activation=activation)
    for (graph, inputs), before in zip(llama_graphs(llama, name), (4, None), strict=True):
        low = graph.assign(rule)
        check(low.fuse() if fused else low, 0, *inputs, before=before)


def test_no_conversion_is_left_in_a_vit_layer(vit):
    torch = pytest.importorskip("torch")
    import ladder

    module, x = vit.layer(48, 96, 3), torch.randn(2, 7, 48)
    graph = ladder.from_torch(module, (x,), dynamic=({0: "batch"},)).fuse()
    check(graph, 0, x, before=2)


def test_many_readers_and_many_operands_make_no_large_tables():
    b = Build()
    x, mask = b.x(B, 16, 16), b.x(B, 16, 16, name="mask")
    turned = b.turn(mask, 0, 2, 1)
    parts = []
    for i in range(24):
        y = b.add(Binary("add"), (b.turn(x, 0, 2, 1) if i % 2 else x, turned), "sum")
        parts.append(b.linear(y, 8, f"y{i}"))
    joined = b.add(Concat(2), parts, "joined")
    graph = b.done(b.linear(joined, 8, "out"))
    check(graph, len(graph.propagate().layouts.conversions), data(2, 16, 16), data(2, 16, 16))


OPERATIONS = ("turn", "shape", "act", "linear", "sum", "slice", "join", "product")


@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9), st.integers(0, 5)),
        min_size=3,
        max_size=9,
    )
)
def test_any_graph_of_moves_and_layers_keeps_its_meaning(steps):
    """Random graphs: what runs on the decided memory equals the plain graph, and never costs more than row-major."""
    b = Build()
    values = [b.x(2, 4, 8), b.x(4, 2, 8, name="y")]
    for kind, pick, variant in steps:
        made = grown(b, kind, values, values[pick % len(values)], variant)
        if made is not None:
            values.append(made)
    graph = b.done(*dict.fromkeys(values[-2:]))
    laid = graph.propagate("h200")
    check(graph, len(laid.layouts.conversions), *(data(*one.type.shape) for one in graph.inputs))


def grown(b, kind, values, x, variant):
    shape = b.type(x).shape
    if kind == "turn":
        return b.turn(
            x, *list(permutations(range(len(shape))))[variant % 6 if len(shape) == 3 else 0]
        )
    if kind == "shape":
        targets = [(2, 4, 8), (8, 8), (4, 2, 8), (2, 2, 16), (4, 16), (64,)]
        target = targets[variant]
        return b.shape(x, *target) if np.prod(target) == np.prod(shape) else None
    if kind == "act":
        return b.add(Unary("tanh"), (x,), "act")
    if kind == "linear":
        n = (4, 8, 16)[variant % 3]
        return (
            b.linear(x, n, "layer", b.constant("w", RNG.normal(size=(n, shape[-1]))))
            if shape
            else None
        )
    if kind == "slice":
        axis = variant % len(shape)
        return b.add(Slice(axis, 0, max(1, shape[axis] // 2)), (x,), "slice")
    same = [v for v in values if b.type(v).shape == shape and v != x]
    if kind == "sum" and same:
        return b.add(Binary("add"), (x, same[0]), "sum")
    if kind == "join" and same:
        return b.add(Concat(variant % len(shape)), (x, same[0]), "join")
    if kind == "product" and len(shape) == 3:
        return b.add(MatrixProduct(), (x, b.turn(x, 0, 2, 1)), "product")
    return None
