"""An MLP that ONNX quantised by static scales: its products read codes and store codes."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.errors import TypeDeclarationError
from ladder.graph.graph import Graph
from ladder.graph.operators import Coded, Dequantize, Linear, Quantize, QuantizeTokens
from ladder.graph.verify import verify
from tests.graph.importers.conftest import model

onnx = pytest.importorskip("onnx")

from ladder.graph.importers.onnx import from_onnx  # noqa: E402

RNG = np.random.default_rng(0)
F32, K, INNER, N = np.float32, 96, 160, 64
RULE = ladder.Rule(weight="int8", activation="int8")


def mlp(zero=0, scale=0.03):
    """QuantizeLinear, DequantizeLinear and MatMul by codes, a relu, and the same again."""
    constants = {}
    nodes, x = [], "x"
    for place, (k, n) in enumerate([(K, INNER), (INNER, N)]):
        w, y = f"w{place}", f"y{place}"
        constants |= {
            w: RNG.integers(-127, 128, (k, n)).astype(np.int8),
            f"{w}.scale": (RNG.uniform(0.5, 1, n) / 127 / np.sqrt(k)).astype(F32),
            f"{x}.scale": F32(scale),
            f"{x}.zero": np.int8(zero),
        }
        at_x = [f"{x}.scale", f"{x}.zero"]
        nodes += [
            ("QuantizeLinear", [x, *at_x], [f"{x}.q"]),
            ("DequantizeLinear", [f"{x}.q", *at_x], [f"{x}.dq"]),
            ("DequantizeLinear", [w, f"{w}.scale"], [f"{w}.dq"], {"axis": 1}),
            ("MatMul", [f"{x}.dq", f"{w}.dq"], [y]),
        ]
        if not place:
            nodes.append(("Relu", [y], ["h"]))
            x = "h"
    return model(nodes, {"x": ["m", K]}, ["y1"], 21, **constants)


def low(given) -> Graph:
    return from_onnx(given).assign(RULE).fuse()


def test_the_first_product_stores_what_the_second_reads():
    given = mlp()
    graph = low(given)
    assert not graph.of(Quantize, Dequantize)
    (rows,) = graph.of(QuantizeTokens)
    assert (rows.inputs, rows.op) == (("x",), QuantizeTokens("int8", float(F32(0.03))))
    first, second = graph.of(Linear)
    assert [str(step) for step in first.op.epilogue] == ["relu", "to int8 by 0.03"]
    assert (first.type.dtype, second.inputs[0]) == ("int8/token", first.name)
    x = RNG.normal(size=(5, K)).astype(F32)
    np.testing.assert_allclose(graph.run(x), from_onnx(given).run(x), rtol=1e-12)
    report = verify(graph, given, [x])
    assert report.ok, str(report)
    assert report.cosine > 0.99999


@pytest.mark.parametrize("place", ["cpu", "emulator"])
def test_kernels_write_and_read_the_codes(place):
    pytest.importorskip("torch")
    import torch

    compiled = ladder.compile_graph(low(mlp()))
    first = compiled.layers[0].plan.op
    assert (first.stored.name, first.codes) == ("int8", Coded("int8", 0.03))
    x = torch.as_tensor(RNG.normal(size=(5, K)).astype(F32))
    run = compiled.on(place)
    y = run(x)
    want = compiled.graph.run(x)
    np.testing.assert_allclose(y.numpy(), want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    assert torch.equal(run.bind(x)(), y)
    assert run.verify(x).ok
    assert compiled.verify(x).ok
    np.testing.assert_allclose(compiled(x, mode="plan").numpy(), y.numpy(), rtol=1e-3, atol=1e-3)


def test_a_graph_with_static_scales_is_written_and_read(tmp_path):
    graph = low(mlp())
    graph.save(tmp_path)
    assert Graph.load(tmp_path) == graph


def test_a_zero_point_leaves_the_models_steps_and_rows_find_their_scales():
    graph = low(mlp(zero=3))
    assert len(graph.of(Quantize)) == len(graph.of(Dequantize)) == 2
    assert [node.op.scale for node in graph.of(QuantizeTokens)] == [None, None]


def test_a_rule_says_a_scale_itself():
    rule = ladder.Rule(weight="int8", activation="int8", activation_scale=0.02)
    graph = from_onnx(mlp()).assign(rule)
    assert {node.op.scale for node in graph.of(QuantizeTokens)} == {float(F32(0.02))}
    for wrong in ({"activation_scale": -1.0}, {"activation": "float16"}):
        with pytest.raises(TypeDeclarationError):
            ladder.Rule(
                **{"weight": "int8", "activation": "int8", "activation_scale": 0.02} | wrong
            )
