"""Models that are timed whole: kernels are known without the graphs at full size, and are found again by them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import ladder  # noqa: E402
from benchmarks import store  # noqa: E402
from benchmarks.model_cases import (  # noqa: E402
    DECODE,
    PROMPT,
    RULES,
    Shelf,
    build,
    cases,
    compiled,
    decoder_shapes,
    example,
    imported,
    key,
    operators,
    plans,
    typed,
)
from benchmarks.models import BARS, TIMED, TIMED_RULE, wanted  # noqa: E402
from ladder.runtime.layer import low_bit, matmul_of  # noqa: E402


def test_the_layer_that_is_timed_is_the_published_one():
    found = cases()[TIMED]
    assert found.shapes == ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672))
    assert [phase.m for phase in BARS] == [1, 32, 4096]
    assert [str(phase) for phase in BARS][1] == "decode batch 32 context 1024"


@pytest.mark.parametrize("scale", [32, 64])
def test_shapes_are_those_of_the_graph(scale):
    llama = example("llama")
    config = llama.CONFIGS["llama-3-8b"].scaled(scale)
    inputs, dynamic = llama.prompt(config, 2, 3, torch.float16)
    graph = ladder.from_torch(llama.layer(config, torch.float16), inputs, dynamic=dynamic)
    low = graph.assign(RULES["nf4-g64"]).fuse()
    found = [(op.n, op.k) for op in (matmul_of(low, node) for node in low_bit(low))]
    assert found == list(decoder_shapes(config))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["vit-base", "mlp"])
def test_operators_are_those_of_the_graph_at_full_size(name, rule):
    case = cases()[name]
    phase = case.phases[0]
    graph = typed(imported(case, phase, case.module(False, "cpu"), "cpu"), rule, {})
    ops = [matmul_of(graph, node) for node in low_bit(graph)]
    found = operators(case, phase, rule)
    assert [op for op, _ in found] == ops
    wide = {"vit-base": ["float32", "float16", "float32", "float16"], "mlp": ["float16"] * 3}[name]
    assert [source for _, source in found] == (wide if rule == "int8-int8" else [""] * len(ops))
    assert all(op.activation_scale == (rule == "int8-int8") for op in ops)


def test_weights_are_quantised_once_for_both_phases():
    case, known = cases()["llama-2-7b"], {}
    module = case.module(True, "cpu")
    graphs = [
        typed(imported(case, phase, module, "cpu", small=True), "int4-g128", known)
        for phase in (DECODE, PROMPT)
    ]
    down = [
        graph.constant("mlp.down_proj.weight") or graph.constant("mlp.down_proj.weight.int4")
        for graph in graphs
    ]
    assert len(known) == 7
    assert down[0].value is down[1].value


def test_every_kernel_of_a_run_has_a_name_of_its_own():
    found = wanted(["llama-2-70b"], [TIMED_RULE])
    assert found[:2] == [
        (TIMED, next(iter(BARS)), TIMED_RULE, launch) for launch in ("plain", "pdl")
    ]
    names = [
        name
        for model, phase, rule, launch in found
        for name, _, _ in plans(cases()[model], phase, rule, launch)
    ]
    assert len(set(names)) == len(names) - 4  # one token: behind 256 of them as behind 1024


@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_kernels_travel_in_a_folder(tmp_path, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    case = cases()["mlp"]
    phase = case.phases[0]
    index = build(tmp_path, [("mlp", phase, "int8-int8", "plain")])
    assert all(index.built(name) for name in index.kernels)
    shelf = Shelf(tmp_path, store.Index.load(tmp_path))
    graph = typed(imported(case, phase, case.module(False, "cpu"), "cpu"), "int8-int8", {})
    model = compiled(graph, phase.m, "plain", shelf)
    inputs, _ = case.inputs(False, phase, "cpu")
    report = model.on("cpu", builder=shelf).verify(*inputs)
    assert report.ok, str(report)
    with pytest.raises(LookupError, match="not built"):
        shelf.load(key(model.layers[0].plan.op, 7))
