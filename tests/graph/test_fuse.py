"""Fusion: fewer nodes, the same meaning, and a reason for each that was done or left."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.operators import (
    Activated,
    AddResidual,
    Biased,
    Binary,
    Gated,
    Linear,
    QuantizedRows,
    QuantizeTokens,
    Slice,
    Unary,
)
from ladder.graph.rules import Rule
from ladder.graph.tensor import TensorType
from ladder.graph.verify import verify
from ladder.registry import types
from ladder.ttype import quantize

RNG = np.random.default_rng(0)
B = symbol("b")
WT = types["int4"].grouped(8, zero="integer")


class Build(Draft):
    def __init__(self):
        super().__init__()
        self.x = self.input("x", TensorType((B, 16), "float32"))

    def linear(self, name, n=8, x=None, wt=WT):
        x = x or self.x
        values = RNG.normal(size=(n, self.type(x).shape[-1]))
        w = self.constant(f"{name}.w", quantize(values, wt) if wt else values.astype(np.float32))
        return self.add(Linear(), (x, w), name)

    def two(self, function, one, other):
        return self.add(Binary(function), (one, other), function)

    def done(self, *outputs):
        self.outputs = list(outputs)
        return self.graph()


def check(graph, nodes, *epilogues):
    fused = graph.fuse()
    x = RNG.normal(size=(3, 16)).astype(np.float32)
    one, other = graph.run(x), fused.run(x)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert len(fused.nodes) == nodes
    assert [node.op.epilogue for node in fused.of(Linear)] == list(epilogues)
    return fused


def test_bias_activation_and_residual_in_their_order():
    b = Build()
    y = b.two("add", b.constant("bias", RNG.normal(size=8)), b.linear("y"))
    y = b.add(Unary("gelu"), (y,), "act")
    z = b.two("add", b.linear("z", 16, y), b.x)
    check(b.done(z), 2, (Biased(), Activated("gelu")), (AddResidual(),))


@pytest.mark.parametrize("wt", [WT, None])
@pytest.mark.parametrize("order", [1, -1])
def test_a_gate_and_its_up_projection_are_one_layer(wt, order):
    b = Build()
    gate = b.add(Unary("silu"), (b.linear("gate", wt=wt),), "act")
    fused = check(
        b.done(b.two("multiply", *(gate, b.linear("up", wt=wt))[::order])), 1, (Gated("silu"),)
    )
    (layer,) = fused.of(Linear)
    assert fused.types[layer.inputs[1]].shape == (16, 16)
    assert "gate and up as one layer" in fused.explain()


def test_layers_of_one_input_are_slices_of_one():
    b = Build()
    fused = check(
        b.done(b.two("add", b.two("multiply", b.linear("q"), b.linear("k")), b.linear("v"))), 6, ()
    )
    assert [node.name for node in fused.of(Linear)] == ["q+k+v"]
    assert [str(node.op) for node in fused.of(Slice)] == [
        "slice(axis=1, start=0, stop=8)",
        "slice(axis=1, start=8, stop=16)",
        "slice(axis=1, start=16, stop=24)",
    ]


def test_biases_of_layers_of_one_input_are_joined():
    b = Build()
    outs = []
    for name in "qk":
        bias = b.constant(f"{name}.b", RNG.normal(size=8))
        outs.append(b.add(Unary("exp"), (b.two("add", b.linear(name), bias),), name))
    check(b.done(*outs), 5, (Biased(),))


def test_layers_whose_types_differ_stay_apart_and_say_so():
    b = Build()
    one, two = b.linear("one"), b.linear("two", wt=types["nf4"].grouped(8))
    fused = check(b.done(b.two("multiply", one, two)), 3, (), ())
    assert "their weights do not stack" in fused.explain()


def test_a_result_that_somebody_else_reads_is_not_swallowed():
    b = Build()
    y = b.linear("y")
    fused = check(b.done(b.add(Unary("silu"), (y,), "act"), b.add(Unary("exp"), (y,), "e")), 3, ())
    assert "act, e read it" in fused.explain()
    b = Build()
    y = b.linear("y")
    fused = check(b.done(b.add(Unary("silu"), (y,), "act"), y), 2, ())
    assert "the caller read it" in fused.explain()


def test_what_is_added_in_another_shape_is_no_residual():
    b = Build()
    small = b.input("small", TensorType((1, 16), "float32"))
    y = b.two("add", b.linear("y", 16), small)
    graph = b.done(y)
    assert [node.op.epilogue for node in graph.fuse().of(Linear)] == [()]


def test_a_layer_added_to_itself_is_left():
    b = Build()
    y = b.linear("y")
    check(b.done(b.two("add", y, y)), 2, ())


def test_rows_are_quantised_where_they_are_made():
    b = Build()
    act = b.add(Unary("silu"), (b.linear("y"),), "act")
    rows = b.add(QuantizeTokens("int8"), (act,), "rows")
    z = b.linear("z", 4, rows)
    fused = check(b.done(z), 2, (Activated("silu"), QuantizedRows("int8")), ())
    assert fused.types["rows"].dtype == "int8/token"


@pytest.mark.parametrize("activation", ["float16", "int8"])
def test_a_fused_layer_of_llama_is_verified_beside_the_model(llama, activation):
    import ladder

    config = llama.CONFIGS["llama-3-8b"].scaled(64)
    module = llama.layer(config)
    inputs, dynamic = llama.prompt(config, 2, 4)
    graph = ladder.from_torch(module, inputs, dynamic=dynamic)
    low = graph.assign(Rule(weight="int8", group="channel", activation=activation))
    fused = low.fuse()
    assert len(fused.of(Linear)) == 4
    np.testing.assert_allclose(fused.run(*inputs), low.run(*inputs), rtol=1e-9, atol=1e-11)
    report = verify(fused, module, inputs)
    assert report.ok, str(report)
