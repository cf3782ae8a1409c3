"""ONNX models of whole layers beside those from torch: the same graphs, within the same bounds."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.operators import Attention, Linear, RMSNorm, Rotary
from ladder.graph.verify import verify

onnx = pytest.importorskip("onnx")

from ladder.graph.importers.onnx import from_onnx  # noqa: E402

RNG = np.random.default_rng(0)
F32 = np.float32


def angles_half(c, cos, sin):
    return (one[None, :, : c.head // 2].expand(2, -1, -1) for one in (cos, sin))


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize("form", ["17", "cached", "23"])
def test_llama_layers_equal_those_from_torch(llama, onnx_files, name, form):
    torch = pytest.importorskip("torch")
    config = llama.CONFIGS[name].scaled(64)
    module = llama.layer(config)
    weights = onnx_files.weights_of(module)
    if form == "cached":
        (x, cos, sin, keys, values), _ = llama.next_token(config, 2, 5)
        proto = onnx_files.llama(config, weights, cached=True)
        given = [x, cos, sin, torch.zeros(1, 1), keys, values]
        want = module(x, cos, sin, keys, values)[0]
    else:
        (x, cos, sin), _ = llama.prompt(config, 2, 4)
        want = module(x, cos, sin)
        if form == "17":
            proto = onnx_files.llama(config, weights)
            given = [x, cos, sin, torch.where(torch.tril(torch.ones(4, 4)) > 0, 0.0, -1e9)]
        else:
            proto = onnx_files.llama_23(config, weights)
            given = [x, *angles_half(config, cos, sin)]
    graph = from_onnx(proto)
    assert [len(graph.of(kind)) for kind in (Linear, RMSNorm, Rotary, Attention)] == [7, 2, 2, 1]
    got = graph.run(*given)
    got = got[0] if form == "cached" else got
    np.testing.assert_allclose(got, want.detach().numpy(), atol=2e-5)
    report = verify(graph, proto, [one.numpy() for one in given])
    assert report.ok, str(report)
    assert report.cosine > 1 - 1e-9


def test_vit_and_mlp_equal_those_from_torch(vit, mlp, onnx_files):
    torch = pytest.importorskip("torch")
    module, x = vit.layer(48, 96, 3), torch.randn(2, 7, 48)
    proto = onnx_files.vit(onnx_files.weights_of(module), 3)
    graph = from_onnx(proto)
    np.testing.assert_allclose(graph.run(x), module(x).detach().numpy(), atol=1e-5)
    assert len(graph.of(Attention)) == 1
    assert verify(graph, proto, [x.numpy()]).ok
    module, x = mlp.mlp(16, 32, 8), torch.randn(3, 16)
    proto = onnx_files.mlp(onnx_files.weights_of(module))
    graph = from_onnx(proto)
    np.testing.assert_allclose(graph.run(x), module(x).detach().numpy(), atol=1e-5)
    assert [node.op.kind for node in graph.nodes] == ["linear", "unary"] * 2 + ["linear"]
    assert verify(graph, proto, [x.numpy()]).ok


@pytest.mark.parametrize("name", ["llama-3-8b", "vit", "mlp"])
def test_models_get_the_same_rules_as_those_from_torch(llama, vit, mlp, onnx_files, name):
    """Each rule on each model: fused, laid out without a conversion, and within its bounds beside onnx's evaluator."""
    if name == "llama-3-8b":
        config = llama.CONFIGS[name].scaled(64)
        proto = onnx_files.llama(config, onnx_files.weights_of(llama.layer(config)))
        (x, cos, sin), _ = llama.prompt(config, 2, 4)
        given = [x.numpy(), cos.numpy(), sin.numpy(), np.where(np.tri(4) > 0, 0, -1e9).astype(F32)]
    elif name == "vit":
        proto = onnx_files.vit(onnx_files.weights_of(vit.layer(64, 128, 4)), 4)
        given = [RNG.normal(size=(2, 7, 64)).astype(F32)]
    else:
        proto = onnx_files.mlp(onnx_files.weights_of(mlp.mlp(64, 128, 32)))
        given = [RNG.normal(size=(3, 64)).astype(F32)]
    graph = from_onnx(proto)
    for rule in llama.RULES.values():
        low = graph.assign(rule).fuse().propagate("h200")
        assert not low.layouts.conversions
        report = verify(low, proto, given)
        assert report.ok, str(report)
        assert report.cosine > 0.98
        assert low.weight_bytes < 0.45 * graph.weight_bytes
