"""Compiled models: run by meaning and by plans, verified within the operators' bars, saved and loaded."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest

import ladder
from ladder.errors import (
    GraphError,
    LaunchError,
    ShapeError,
    TypeDeclarationError,
)
from ladder.graph.draft import Draft
from ladder.graph.operators import (
    Activated,
    AddResidual,
    Concat,
    Gated,
    Gather,
    Linear,
    Scaled,
    Unary,
)
from ladder.graph.tensor import TensorType
from ladder.model.model import Model, compile_graph
from ladder.ttype import quantize
from tests.model.conftest import MODELS, RNG, X, small


@pytest.mark.parametrize("bias", [False, True])
def test_by_plans_is_near_by_meaning_and_not_the_same(bias):
    graph = small(bias=bias)
    model = compile_graph(graph)
    assert [layer.plan.op.bias for layer in model.layers] == [bias, False]
    assert [layer.plan.op.residual for layer in model.layers] == [True, False]
    exact, rounded = model(X), model(X, mode="plan")
    assert exact.dtype == rounded.dtype == np.float16
    np.testing.assert_array_equal(exact, graph.run(X).astype(np.float16))
    error = np.linalg.norm(exact.astype(float) - rounded) / np.linalg.norm(exact.astype(float))
    assert 0 < error < 5e-3


@pytest.mark.parametrize(
    "steps, kernels, left",
    [
        ([Activated("gelu"), AddResidual()], 2, 0),
        ([AddResidual(), Scaled(0.5), Activated("relu")], 1, 2),
        ([Scaled(0.5), AddResidual()], 0, 2),
        ([AddResidual(), Activated("tanh"), AddResidual()], 2, 1),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_steps_that_kernels_do_not_do_are_left_to_the_graph(steps, kernels, left, bias):
    graph = small(bias=bias, steps=steps)
    op = graph.node("y").op
    assert (op.kernel_steps, len(op.epilogue)) == (kernels + bias, kernels + left + bias)
    model = compile_graph(graph)
    assert len(model.plan_of("y").op.epilogue) == kernels
    np.testing.assert_allclose(model(X, mode="plan"), model(X), rtol=5e-2, atol=1e-1)


def test_a_gate_is_one_kernel_and_halves_the_channels():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    w = draft.constant("w", quantize(RNG.normal(size=(96, 64)), ladder.types["int4"].grouped(32)))
    r = draft.input("r", TensorType((3, 48), "float16"))
    steps = (Gated("silu"), AddResidual())
    draft.outputs = [draft.add(Linear(steps), (x, w, r), "y")]
    model = compile_graph(draft.graph())
    added = RNG.normal(size=(3, 48)).astype(np.float16)
    assert model.plan_of("y").op.epilogue == steps
    assert model(X, added, mode="plan").shape == (3, 48)
    assert model.verify(X, added).ok


def test_each_layer_stays_within_its_bar(model):
    report = model.verify(X)
    assert report.ok, str(report)
    assert [row.name for row in report.rows] == ["y", "z"]
    assert all(row.error > 0 for row in report.rows)
    assert report.cosine > 0.9999


def test_a_wrong_plan_is_found(model, monkeypatch):
    from ladder.scheduler.plan import Plan

    plain = Plan.run
    wrong = np.float16(1.01)
    monkeypatch.setattr(Plan, "run", lambda *given, **more: plain(*given, **more) * wrong)
    assert not model.verify(X).ok


def test_equal_operators_share_a_plan():
    model = compile_graph(small(bias=False, steps=[Scaled(2.0)]))  # which is left to the graph
    assert model.layers[0].plan is model.layers[1].plan
    assert model.plan_of("y") is model.layers[0].plan
    assert model.plan_of("x") is None


def test_symbolic_rows_get_plans_for_every_m():
    model = compile_graph(small(ladder.graph.extent.symbol("rows"), bias=False))
    assert len(model.layers[0].plan) > 1
    for rows in (0, 1, 20):
        x = RNG.normal(size=(rows, 64)).astype(np.float16)
        assert model(x, mode="plan").shape == (rows, 64)


def test_no_rows_cannot_be_verified():
    torch = pytest.importorskip("torch")
    graph = small(ladder.graph.extent.symbol("rows"), bias=False)
    model = compile_graph(graph)
    none = torch.zeros(0, 64).half()
    module = torch.nn.Linear(64, 8).half()
    imported = ladder.from_torch(module, (torch.zeros(3, 64).half(),), dynamic=({0: "rows"},))
    for verify, layer, n in (
        (model.verify, "y", 64),
        (model.on("cpu").verify, "y", 64),
        (lambda x: ladder.verify(imported, module, (x,)), imported.nodes[0].name, 8),
    ):
        with pytest.raises(GraphError, match=rf"{layer} is \[0, {n}\]: there is nothing to verify"):
            verify(none)
    assert model.verify(X[:1]).ok


def test_a_cache_that_is_still_empty_can_be_verified():
    draft = Draft()
    x = draft.input("x", TensorType((1, 64), "float16"))
    past = draft.input("past", TensorType((ladder.graph.extent.symbol("context"), 64), "float16"))
    w = draft.constant("w", quantize(RNG.normal(size=(64, 64)), ladder.types["int4"].grouped(32)))
    y = draft.add(Linear(), (x, w), "y")
    draft.outputs = [draft.add(Concat(0), (draft.add(Unary("negative"), (past,), "n"), y), "all")]
    assert compile_graph(draft.graph()).verify(X[:1], X[:0]).ok


def test_what_no_kernel_takes_runs_by_meaning_and_says_why():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float32"))  # and no rule says how a kernel reads it
    w = draft.constant("w", quantize(RNG.normal(size=(8, 64)), ladder.types["int4"].grouped(32)))
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    model = compile_graph(draft.graph())
    assert [layer.plan for layer in model.layers] == [None]
    assert "y: left to its meaning: activation = float32 is not offered" in model.explain()
    np.testing.assert_array_equal(model(X, mode="plan"), model(X))


def test_arguments_that_are_none(model):
    with pytest.raises(LaunchError, match="mode is 'fast'"):
        model(X, mode="fast")
    with pytest.raises(GraphError, match="graph is 3, not a Graph"):
        compile_graph(3)
    with pytest.raises(GraphError, match="0 inputs were given"):
        model()
    with pytest.raises(ShapeError, match=r"the array is \[64\]"):
        model(X[0])
    for wrong in ("x", None, object(), X.astype(complex)):
        with pytest.raises(TypeDeclarationError, match="expected real numbers"):
            model(wrong)
    assert model.plan_of([]) is None


@pytest.mark.parametrize(
    "fields, what",
    [
        (lambda m: (None, ()), "graph is None, not a Graph"),
        (lambda m: (m, m.layers), "graph is a Model, not a Graph"),
        (lambda m: (m.graph, None), "layers is None, not a tuple of Layer"),
        (lambda m: (m.graph, (3, 4)), "layers is a tuple"),
        (lambda m: (m.graph, tuple(replace(one, plan=3) for one in m.layers)), "layers is a tuple"),
        (lambda m: (m.graph, m.layers, 3), "built is 3, not a Built or None"),
    ],
)
def test_a_model_is_made_of_its_parts(model, fields, what):
    with pytest.raises(GraphError, match=what):
        Model(*fields(model))
    assert Model(model.graph, list(model.layers)) == model


def test_without_torch_a_model_says_what_it_lacks(model, monkeypatch):
    for name in [one for one in sys.modules if one.startswith("ladder.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LaunchError, match="a model runs on torch"):
        replace(model).on("cpu")


def test_numbers_of_tokens_are_whole():
    draft = Draft()
    table = draft.input("table", TensorType((4, 3), "float32"))
    tokens = draft.input("tokens", TensorType((2,), "int64"))
    draft.outputs = [draft.add(Gather(), (table, tokens), "y")]
    model = compile_graph(draft.graph())
    x = np.ones((4, 3), np.float32)
    with pytest.raises(TypeDeclarationError, match=r"expected whole numbers, found .* float64"):
        model(x, np.array([0.0, 1.7]))
    assert model(x, np.array([0, 1], np.int32)).shape == (2, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_torch_tensors_come_back_as_torch_tensors(model, dtype):
    torch = pytest.importorskip("torch")
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), dtype))
    w = draft.constant("w", quantize(RNG.normal(size=(64, 64)), ladder.types["nf4"].grouped(32)))
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    compiled = compile_graph(draft.graph())
    given = torch.from_numpy(X.astype(np.float32)).to(getattr(torch, dtype))
    for mode in ("meaning", "plan"):
        y = compiled(given, mode=mode)
        assert y.dtype == given.dtype
        want = given.double() @ torch.from_numpy(draft.constants["w"].values()).T
        assert torch.linalg.norm(y.double() - want) <= 8e-3 * torch.linalg.norm(want)


@pytest.mark.parametrize("rule", ["int4", "nf4", "fp8"])
def test_llama_layers_by_plans_stay_within_the_bars(rule):
    """One token behind a cache, each layer by its plan: within the bar of its operator, the whole at cosine 0.9999."""
    torch = pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("runtime_llama", MODELS / "llama.py")
    llama = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = llama
    spec.loader.exec_module(llama)
    config = llama.CONFIGS["llama-2-70b"].scaled(32)
    inputs, _ = llama.next_token(config, 2, 5, torch.float16)
    graph = ladder.from_torch(llama.layer(config, torch.float16), inputs)
    model = compile_graph(graph.assign(llama.RULES[rule]).fuse().propagate("h200"))
    report = model.verify(*inputs)
    assert len(report.rows) == 4
    assert report.ok, str(report)
    assert report.cosine >= 0.9999


@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn"])
def test_quantised_rows_reach_the_plan_as_codes_and_scales(target):
    weight = {"int8": "int4", "fp8_e4m3fn": "fp4_e2m1"}[target]
    draft = Draft()
    x = draft.input("x", TensorType((3, 128), "float16"))
    w = draft.constant("w", RNG.normal(size=(64, 128)).astype(np.float16))
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    plain = draft.graph()
    graph = plain.assign(ladder.Rule(weight=weight, group=128, activation=target))
    model = compile_graph(graph)
    op = model.layers[0].plan.op
    assert (op.activation.name, op.activation_scale) == (target, True)
    rows = (np.array([[1e-3], [1.0], [40.0]]) * RNG.normal(size=(3, 128))).astype(np.float16)
    report = model.verify(rows)
    assert report.ok, str(report)
    by_plan = model(rows, mode="plan").astype(float)
    np.testing.assert_allclose(by_plan, graph.run(rows), rtol=2e-3, atol=2e-3)
    for got, want in zip(
        by_plan, plain.run(rows), strict=True
    ):  # one scale for all would lose row 0
        assert np.linalg.norm(got - want) < 0.3 * np.linalg.norm(want)
