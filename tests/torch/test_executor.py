"""Whole models on torch tensors, by plans, in the emulator and compiled, beside the float64 meaning of their graphs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import ladder  # noqa: E402
from ladder.errors import GraphError, LaunchError, ShapeError  # noqa: E402
from ladder.graph.draft import Draft  # noqa: E402
from ladder.graph.operators import Cast, Linear, QuantizeTokens  # noqa: E402
from ladder.graph.tensor import TensorType  # noqa: E402
from ladder.torch import meaning  # noqa: E402
from ladder.torch.places import ByPlan, plain_rows, quantize_rows  # noqa: E402
from ladder.torch.static_codes import static_rows  # noqa: E402

MODELS = Path(__file__).parents[2] / "examples" / "models"
RULES = {
    "int4": ladder.Rule(weight="int4", group=128, zero="integer"),
    "nf4": ladder.Rule(weight="nf4", group=64),
    "fp8": ladder.Rule(weight="fp8_e4m3fn", group="channel"),
    "int8": ladder.Rule(weight="int8", group="channel", activation="int8"),
}
#: rows that are quantised fall to other codes where a value was rounded before; all else rounds in float16
COSINE = {"int8": 0.9998}


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", MODELS / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LLAMA, VIT, MLP = (example(name) for name in ("llama", "vit", "mlp"))
SMALL = LLAMA.CONFIGS["llama-2-70b"].scaled(64)


def decode(batch=2, context=7):
    return LLAMA.next_token(SMALL, batch, context, torch.float16)


def prompt(batch=2, tokens=6):
    return LLAMA.prompt(SMALL, batch, tokens, torch.float16)


def imported(name):
    if name in ("decode", "prompt"):
        inputs, dynamic = {"decode": decode, "prompt": prompt}[name]()
        return ladder.from_torch(LLAMA.layer(SMALL, torch.float16), inputs, dynamic=dynamic)
    if name == "vit":
        x = torch.randn(2, 5, 64).half()
        return ladder.from_torch(VIT.layer(64, 128, 4).half(), (x,), dynamic=({0: "batch"},))
    module = MLP.mlp(64, 128, 32).half()
    return ladder.from_torch(module, (torch.randn(3, 64).half(),), dynamic=({0: "rows"},))


INPUTS = {
    "decode": lambda: decode()[0],
    "prompt": lambda: prompt()[0],
    "vit": lambda: (torch.randn(3, 5, 64).half(),),
    "mlp": lambda: (torch.randn(4, 64).half(),),
}


@pytest.fixture(scope="module")
def models():
    known = {}

    def get(name, rule):
        if (name, rule) not in known:
            graph = imported(name).assign(RULES[rule]).fuse()
            known[name, rule] = ladder.compile_graph(graph)
        return known[name, rule]

    return get


def each(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize(
    "name, rule",
    [
        (name, rule)
        for name in INPUTS
        for rule in (RULES if name == "decode" else ("int4", "int8"))  # with and without codes of x
    ],
)
def test_a_model_by_its_plans_is_its_meaning(models, name, rule):
    torch.manual_seed(0)
    model, inputs = models(name, rule), INPUTS[name]()
    executor = model.on("cpu")
    report = executor.verify(*inputs)
    assert report.ok, str(report)
    assert [row.name for row in report.rows] == [layer.node for layer in model.layers]
    assert report.cosine > COSINE.get(rule, 0.999999)
    exact = each(model(*inputs))
    for got, want in zip(each(executor(*inputs)), exact, strict=True):
        assert got.dtype == want.dtype
        assert meaning.cosine(got, want) > COSINE.get(rule, 0.999999)


@pytest.mark.parametrize("rule", ["int4", "int8"])
@pytest.mark.parametrize("name", INPUTS)
def test_the_torch_meaning_is_the_graphs(models, name, rule):
    torch.manual_seed(1)
    graph, inputs = models(name, rule).graph, INPUTS[name]()
    for got, want in zip(each(meaning.run(graph, inputs)), each(graph.run(*inputs)), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", ["int4", "int8"])
@pytest.mark.parametrize("name", ["decode", "vit"])
def test_a_bound_call_repeats_the_call_in_planned_memory(models, name, rule):
    torch.manual_seed(2)
    model, inputs = models(name, rule), INPUTS[name]()
    executor = model.on("cpu")
    bound = executor.bind(*inputs)
    for _ in range(2):
        wanted, got = each(executor(*inputs)), each(bound())
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        inputs[0].normal_()  # a bound call reads its tensors anew
    sizes = [task.type for task in executor.tasks if hasattr(task, "node")]
    rows = inputs[0].shape[0] * inputs[0].shape[1]
    apart = sum(2 * rows * one.shape[-1] for one in sizes)
    assert 0 < bound.arena.nbytes < max(apart, 4 * 512 * len(sizes))


def test_symbols_take_other_sizes_in_each_call(models):
    model = models("decode", "int4")
    for batch, context in ((1, 3), (3, 9), (1, 3)):
        inputs, _ = decode(batch, context)
        y, keys, values = model.on("cpu")(*inputs)
        assert y.shape == (batch, 1, SMALL.hidden)
        assert keys.shape == values.shape == (batch, SMALL.groups, context + 1, SMALL.head)
        assert torch.equal(keys[:, :, :-1], inputs[3])
        assert meaning.cosine(y, model(*inputs)[0]) > 0.999999


@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.parametrize("rule", ["int4", "int8"])
def test_compiled_islands_compute_the_same(models, rule):
    model, inputs = models("decode", rule), decode()[0]
    try:
        got = model.on("cpu", islands="compile")(*inputs)
    except torch._dynamo.exc.BackendCompilerFailed as error:  # no C++ compiler here
        pytest.skip(str(error).splitlines()[0])
    for one, other in zip(got, model.on("cpu")(*inputs), strict=True):
        assert meaning.cosine(one, other) > COSINE.get(rule, 0.999999)


@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="needs the compile extra")
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
@pytest.mark.parametrize("rule", RULES)
def test_the_kernels_of_a_model_compute_it_in_the_emulator(rule, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    inputs, _ = decode(2, 5)
    graph = ladder.from_torch(LLAMA.layer(SMALL, torch.float16), inputs).assign(RULES[rule]).fuse()
    model = ladder.compile_graph(graph)
    by_kernel, by_plan = (model.on(place)(*inputs) for place in ("emulator", "cpu"))
    for one, other in zip(by_kernel, by_plan, strict=True):
        assert meaning.cosine(one, other) > 0.99999
    report = model.on("emulator").verify(*inputs)
    assert report.ok, str(report)


def linear(dtype, rule, out=1):
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), dtype))
    w = draft.constant("w", np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32))
    draft.outputs = [draft.add(Linear(), (x, w), "y"), "x", "w"][:out]
    return ladder.compile_graph(draft.graph().assign(rule))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_of_activations(dtype, rule):
    model = linear(dtype, RULES[rule])
    x = torch.randn(3, 64).to(getattr(torch, dtype))
    y, exact = model.on("cpu")(x), model(x)
    assert y.dtype == x.dtype
    assert meaning.cosine(y, exact) > 0.9999
    assert model.on("cpu").verify(x).ok


def test_layers_that_no_kernel_takes_run_by_torch():
    model = linear("float32", ladder.Rule(weight="int4", group=32, activation="float16"))
    graph = model.graph
    # as if no kernel took it
    without = ladder.Model(
        graph, tuple(type(layer)(layer.node, None, "no") for layer in model.layers)
    )
    x = torch.randn(3, 64)
    torch.testing.assert_close(without.on("cpu")(x).double(), meaning.run(graph, (x,)), rtol=1e-4, atol=1e-4)  # fmt: skip


def test_outputs_that_are_inputs_and_constants():
    model = linear("float16", RULES["int4"], out=3)
    x = torch.randn(3, 64).half()
    for call in (model.on("cpu"), model.on("cpu").bind(x).__call__):
        _, same, w = call(x) if call is model.on("cpu") else call()
        assert torch.equal(same, x)
        assert w.shape == (32, 64)


@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn", "fp8_e5m2"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_are_quantised_by_torch_as_the_graph_says(target, dtype):
    sizes = torch.tensor([[0.0], [1e-6], [1.0], [300.0]])
    x = (sizes * torch.randn(4, 96, generator=torch.Generator().manual_seed(0))).to(dtype)
    want = QuantizeTokens(target).evaluate(x.double().numpy(), sizes={})
    codes, scales = quantize_rows(x, target)
    np.testing.assert_array_equal(codes.double().numpy() * scales.double().numpy()[:, None], want)
    assert plain_rows((codes, scales)).dtype == torch.float32


@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_are_quantised_by_a_known_scale_as_the_graph_says(target, dtype):
    x = 40 * torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    x[0, :4] = torch.tensor([1e9, -1e9, 0.0, 0.75])  # they saturate, or are a tie
    x = x.to(torch.float32 if dtype == torch.float64 else dtype).clamp(-6e4, 6e4).to(dtype)
    op = QuantizeTokens(target, 0.5)
    codes, scales = static_rows(x, op.coded)
    assert (scales.dtype, scales.tolist()) == (torch.float32, [0.5] * 4)
    want = op.evaluate(x.double().numpy(), sizes={})
    np.testing.assert_array_equal(codes.double().numpy() * 0.5, want)


def test_quantised_rows_that_an_island_reads_are_the_numbers_that_they_stand_for():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    rows = draft.add(QuantizeTokens("int8"), (x,), "rows")
    draft.outputs = [draft.add(Cast("float16"), (rows,), "y"), "rows"]
    model = ladder.compile_graph(draft.graph())
    given = torch.randn(3, 64).half()
    y, rows = model.on("cpu")(given)
    want, values = model.graph.run(given)
    np.testing.assert_allclose(rows.numpy(), values, rtol=1e-6)
    np.testing.assert_allclose(y.float().numpy(), want, rtol=2e-3, atol=1e-4)


def test_arguments_that_do_not_fit(models):
    model, inputs = models("decode", "int4"), decode()[0]
    executor = model.on("cpu")
    with pytest.raises(GraphError, match="1 inputs were given"):
        executor(inputs[0])
    with pytest.raises(LaunchError, match=r"the tensor is torch.float32 on cpu"):
        executor(inputs[0].float(), *inputs[1:])
    with pytest.raises(ShapeError):
        executor(inputs[0][:1], *inputs[1:])
    with pytest.raises(LaunchError, match="islands is 'fast'"):
        model.on("cpu", islands="fast")
    with pytest.raises(LaunchError, match="no place is called 'moon'"):
        model.on("moon")
    with pytest.raises(LaunchError, match="runs on cpu"):
        executor.capture(*inputs)


def test_a_place_is_made_once(models):
    model = models("mlp", "int4")
    assert model.on("cpu") is model.on("cpu")
    assert isinstance(model.on("cpu").place, ByPlan)
