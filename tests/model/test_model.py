"""Compiled models: run by meaning and by plans, verified within the operators' bars, saved and loaded."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ladder
from ladder.errors import (
    ArtifactError,
    GraphError,
    LaunchError,
    ShapeError,
    TypeDeclarationError,
)
from ladder.files import save_document
from ladder.graph.draft import Draft
from ladder.graph.operators import (
    Activated,
    AddResidual,
    Biased,
    Concat,
    Gated,
    Gather,
    Linear,
    Scaled,
    Unary,
)
from ladder.graph.tensor import TensorType
from ladder.model.model import PLANS, Model, compile_graph
from ladder.ttype import quantize

RNG = np.random.default_rng(0)
STEPS = (Activated("silu"), AddResidual())
MODELS = Path(__file__).parents[2] / "examples" / "models"


COMPILES = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="needs the compile extra"
)


def small(m=3, bias=True, steps=STEPS):
    draft = Draft()
    x = draft.input("x", TensorType((m, 64), "float16"))
    w = draft.constant("w", quantize(RNG.normal(size=(64, 64)), ladder.types["int4"].grouped(32)))
    operands = [x] * sum(step.operands for step in steps)
    if bias:
        b = draft.constant("b", RNG.normal(size=64).astype(np.float16))
        steps, operands = [Biased(), *steps], [b, *operands]
    y = draft.add(Linear(tuple(steps)), (x, w, *operands), "y")
    draft.outputs = [draft.add(Linear(), (y, w), "z")]
    return draft.graph()


@pytest.fixture(scope="module")
def model():
    return compile_graph(small())


X = RNG.normal(size=(3, 64)).astype(np.float16)


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


def test_a_folder_gives_the_model_back(model, tmp_path):
    model.save(tmp_path)
    again = Model.load(tmp_path)
    assert again == model
    np.testing.assert_array_equal(again(X, mode="plan"), model(X, mode="plan"))
    code = (
        "import sys, numpy as np, ladder; "
        f"m = ladder.Model.load({str(tmp_path)!r}); m(np.ones((3, 64), np.float16), mode='plan'); "
        "assert not {'tvm', 'torch', 'onnx', 'cuda'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("through", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
@pytest.mark.parametrize("built", [False, pytest.param(True, marks=COMPILES)])
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_model_that_ran_is_pickled_without_what_it_ran_on(monkeypatch, built, through):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    model = compile_graph(eight_bit()).build() if built else compile_graph(small())
    x = torch.from_numpy(X)
    wanted = model.on("cpu")(x)
    again = through(model)
    assert again == model
    assert torch.equal(again.on("cpu")(x), wanted)
    if built:
        assert again.built.weights == model.built.weights
        assert [k.source for k in again.built.kernels.values()] == [
            k.source for k in model.built.kernels.values()
        ]
    with pytest.raises(LaunchError, match="an executor stays in its process"):
        through(model.on("cpu"))


def test_saving_replaces_a_model_or_a_graph_and_nothing_else(model, tmp_path, monkeypatch):
    model.graph.save(tmp_path / "m")
    model.save(tmp_path / "m")
    (tmp_path / "m" / "thesis.tex").write_text("x")
    with pytest.raises(GraphError, match=r"no model's: thesis\.tex"):
        model.save(tmp_path / "m")
    (tmp_path / "m" / "thesis.tex").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full_disk(self, text, encoding):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(GraphError, match="No space left"):
        compile_graph(small(bias=False)).save(tmp_path / "m")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "text, error, match",
    [
        ("{", GraphError, "the model cannot be read"),
        ("{}", ArtifactError, r"plans\.json holds format None"),
        ('{"format": "ladder.model/0", "layers": []}', ArtifactError, "holds format"),
        ('{"format": "ladder.model/2", "layers": []}', ArtifactError, "not as it was written"),
    ],
)
def test_a_damaged_folder_is_refused(model, tmp_path, text, error, match):
    model.save(tmp_path)
    (tmp_path / PLANS).write_text(text)
    with pytest.raises(error, match=match):
        Model.load(tmp_path)


def test_plans_of_other_layers_are_refused(model, tmp_path):
    model.save(tmp_path)
    document = json.loads((tmp_path / PLANS).read_text())
    y, z = document["layers"]
    for layers, match in (
        ([], "the graph has"),
        ([y], "the graph has"),
        ([{**y, "node": "x"}, z], "the graph has"),
        ([{**y, "plan": z["plan"]}, z], "the plan of y is of"),
    ):
        save_document(tmp_path / PLANS, {**document, "layers": layers})
        with pytest.raises(GraphError, match=match):
            Model.load(tmp_path)


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


def eight_bit():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    w = draft.constant("w", RNG.normal(size=(64, 64)).astype(np.float16))
    y = draft.add(Linear((Activated("silu"),)), (x, w), "y")
    draft.outputs = [draft.add(Linear(), (y, w), "z")]
    return draft.graph().assign(ladder.Rule(weight="int8", group="channel", activation="int8"))


LOADED = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # importing either is an error
import numpy as np, torch, ladder
model = ladder.Model.load(sys.argv[1])
x = torch.from_numpy(np.load(sys.argv[2]))
np.save(sys.argv[3], model.on("emulator")(x).numpy())
"""


@COMPILES
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
@pytest.mark.parametrize("make", [small, eight_bit])
def test_a_model_that_was_built_runs_without_tvm(make, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    model = compile_graph(make()).build()
    wanted = model.on("emulator")(torch.from_numpy(X)).numpy()
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert again == model
    assert again.built.weights == model.built.weights
    assert list(again.built.kernels) == list(model.built.kernels)
    np.save(tmp_path / "x.npy", X)
    arguments = [tmp_path / "model", tmp_path / "x.npy", tmp_path / "y.npy"]
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", LOADED, *map(str, arguments)], check=True, cwd=root)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted)
    again.save(tmp_path / "model")  # over what it is mapped from
    assert Model.load(tmp_path / "model").built.weights == model.built.weights


@COMPILES
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_damaged_folder_of_a_built_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    model = compile_graph(small()).build()
    weight = Path("weights", "0", "weight.npy")

    def flip(folder):
        content = bytearray((folder / weight).read_bytes())
        content[-1] ^= 1
        (folder / weight).write_bytes(content)

    other = '{"format": "ladder.built/0"}'
    for damage, error, match in (
        (lambda f: (f / "built.json").write_text("{"), GraphError, "cannot be read"),
        (lambda f: (f / "built.json").write_text(other), ArtifactError, "holds format"),
        (lambda f: (f / weight).unlink(), GraphError, "cannot be read"),
        (flip, ArtifactError, r"weight\.npy has sha256"),
    ):
        model.save(tmp_path)
        damage(tmp_path)
        with pytest.raises(error, match=match):
            Model.load(tmp_path)
    model.save(tmp_path)
    compile_graph(small()).save(tmp_path)  # not built: what was built before is not its own
    assert Model.load(tmp_path).built is None
