"""Verifying a graph beside its model: bounds hold where all is right, and break where something is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ladder.errors import GraphError
from ladder.graph.bounds import half_gap, row_error, weight_error
from ladder.graph.draft import Draft
from ladder.graph.operators import Attention, Linear, QuantizeTokens, RMSNorm
from ladder.graph.operators.quantize import quantize_rows
from ladder.graph.rules import Rule
from ladder.graph.verify import cosine, example_inputs, verify
from ladder.registry import types
from ladder.ttype import quantize

torch = pytest.importorskip("torch")
from ladder.graph.importers.torch_export import exported, from_torch  # noqa: E402

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "wt",
    [
        types["int4"].grouped(8),
        types["int4"].grouped(8, zero="integer"),
        types["uint4"].grouped(8, zero="float"),
        types["uint4"].grouped(8, zero="rescaled"),
        types["nf4"].grouped(16, scale="float32"),
        types["fp8_e4m3fn"].grouped("channel"),
        types["mxfp4"],
        types["nvfp4"],
    ],
    ids=str,
)
def test_quantising_never_moves_a_weight_further_than_the_bound(wt):
    w = RNG.normal(size=(16, 64)) * np.exp(RNG.normal(size=(16, 1)))
    q = quantize(w, wt)
    moved, allowed = np.abs(q.dequantize() - w), weight_error(q)
    assert np.all(moved <= allowed * (1 + 2.0**-10) + 1e-12)
    assert moved.max() > np.max(allowed) / 20, "the bound has to be near what happens"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_that_are_not_quantised_move_by_their_own_size(dtype):
    w = RNG.normal(size=(16, 64)) * np.exp(RNG.normal(size=(16, 64)))
    w[0] *= 2.0**-20
    q = quantize(w, dtype)
    moved, allowed = np.abs(q.dequantize() - w), weight_error(q)
    assert np.all(moved <= allowed)
    assert np.median(moved / allowed) > 1 / 8, "the bound has to be near what happens, everywhere"


@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn", "fp8_e5m2"])
def test_quantised_rows_stay_within_their_bound(target):
    x = RNG.normal(size=(20, 50))
    y = quantize_rows(x, target)
    assert np.all(np.abs(y - x) <= row_error(y, QuantizeTokens(target)))


def test_half_gaps():
    assert half_gap(types["int4"]) == 0.5
    assert half_gap(types["fp4_e2m1"]) == 1.0
    assert half_gap(types["fp8_e4m3fn"]) == 16


@pytest.fixture(scope="module")
def small(llama):
    config = llama.CONFIGS["llama-3-8b"].scaled(64)
    inputs, dynamic = llama.prompt(config, 2, 4)
    program = exported(llama.layer(config), inputs, dynamic)
    return program, inputs, from_torch(program)


RULES = {
    "int4-g128": Rule(weight="int4", group=128, zero="integer"),
    "nf4-g64": Rule(weight="nf4", group=64),
    "fp8": Rule(weight="fp8_e4m3fn", group="channel"),
    "float16": Rule(weight="float16"),
    "int8": Rule(weight="int8", group="channel", activation="int8"),
    "fp8 rows": Rule(weight="fp8_e4m3fn", group="channel", activation="fp8_e4m3fn"),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_stays_within_what_quantising_explains(small, name):
    program, inputs, graph = small
    report = verify(graph.assign(RULES[name]), program, inputs)
    assert report.ok, str(report)
    low = [row for row in report.rows if row.operator.startswith("linear")]
    assert all(row.error > 1e-4 for row in low), "quantising has to show"
    assert all(row.bound < 1 and row.bound < 20 * row.error for row in low), "bounds say something"
    assert report.cosine > 0.97


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_models_stay_within_their_rounding(llama, dtype):
    config = llama.CONFIGS["llama-2-7b"].scaled(64)
    inputs, _ = llama.prompt(config, 1, 3, getattr(torch, dtype))
    program = exported(llama.layer(config, getattr(torch, dtype)), inputs)
    report = verify(from_torch(program), program, inputs)
    assert report.ok, str(report)
    assert report.cosine > 0.999


def swap(graph, kind, op):
    draft = Draft(graph)
    node = graph.of(kind)[0]
    draft.put(node.name, op(node.op), node.inputs)
    return draft.graph()


@pytest.mark.parametrize(
    "kind, op",
    [
        (RMSNorm, lambda op: replace(op, eps=1e-2)),
        (Attention, lambda op: replace(op, causal=not op.causal)),
        (Attention, lambda op: replace(op, scale=0.35)),
    ],
)
def test_a_wrong_operator_is_found(small, kind, op):
    program, inputs, graph = small
    report = verify(swap(graph, kind, op), program, inputs)
    assert not report.ok
    assert [row.operator.split("(")[0] for row in report.wrong] == [graph.of(kind)[0].op.kind]
    assert "BEYOND ITS BOUND" in str(report)


def test_weights_that_are_exchanged_are_found(small):
    program, inputs, graph = small
    draft = Draft(graph)
    gate, up = (graph.node(f"mlp.{name}_proj") for name in ("gate", "up"))
    draft.put(gate.name, Linear(), (gate.inputs[0], up.inputs[1]))
    report = verify(draft.graph(), program, inputs)
    assert [row.name for row in report.wrong] == [gate.name]


def test_another_model_has_nothing_in_common(small):
    program, inputs, graph = small
    draft = Draft(graph)
    draft.nodes = {name: replace(node, origin="") for name, node in draft.nodes.items()}
    with pytest.raises(GraphError, match="no value in common"):
        verify(draft.graph(), program, inputs)


def test_what_is_left_to_the_framework_takes_its_values():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.two(self.one(x).cumsum(-1))

    module, x = Mixed(), torch.randn(3, 16)
    graph = from_torch(module, (x,), unknown="foreign").assign(Rule(weight="int4", group=16)).fuse()
    report = verify(graph, module, (x,))
    assert report.ok, str(report)
    assert [row.name for row in report.rows] == ["one", "two"]


@pytest.mark.parametrize("size", [2.0**-20, 2.0**-130, 2.0**-140])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_results_below_the_normal_numbers_are_within_their_rounding(dtype, size):
    module = torch.nn.Sequential(
        torch.nn.Linear(16, 32, bias=False), torch.nn.ReLU(), torch.nn.Linear(32, 8, bias=False)
    ).to(getattr(torch, dtype))
    x = (torch.randn(5, 16) * size).to(getattr(torch, dtype))
    report = verify(from_torch(module, (x,)), module, (x,))
    assert report.ok, str(report)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_any_number_of_rows_is_compared(rows):
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    graph = from_torch(module, (torch.randn(rows, 16),), dynamic=({0: "rows"},))
    assert str(graph.inputs[0].type) == "float32[rows, 16]"
    if not rows:
        with pytest.raises(GraphError, match=r"is \[0, 32\]: there is nothing to verify"):
            verify(graph, module, (torch.randn(0, 16),))
    report = verify(graph, module, (torch.randn(rows or 2, 16),))
    assert report.ok, str(report)
    assert len(report.rows) == 3


def test_example_inputs_fit_the_graph(small):
    _, _, graph = small
    graph.run(*example_inputs(graph))
    x, *_ = example_inputs(graph, d0=3, d1=9)
    assert x.shape[:2] == (3, 9)
    with pytest.raises(GraphError, match="the graph has no symbol tokens"):
        example_inputs(graph, tokens=3)


def test_what_is_no_graph_is_refused():
    with pytest.raises(GraphError, match=r"graph is 'model\.onnx', not a Graph"):
        verify("model.onnx", torch.nn.Linear(3, 3), (torch.ones(1, 3),))


def test_cosine():
    assert cosine(np.ones(3), np.ones(3)) == pytest.approx(1)
    assert cosine(np.zeros(3), np.zeros(3)) == 1
    assert cosine(np.array([1, 0]), np.array([0, 1])) == 0
