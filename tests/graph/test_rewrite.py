"""The canonical form and recognised operators: the same meaning by other nodes."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.constant import stacked, transposed
from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.operators import (
    Attention,
    Binary,
    Linear,
    MatrixProduct,
    Reshape,
    RMSNorm,
    Transpose,
    Unary,
)
from ladder.graph.recognise import recognise
from ladder.graph.rewrite import canonical
from ladder.graph.tensor import TensorType
from ladder.registry import types
from ladder.ttype import quantize

RNG = np.random.default_rng(0)
B = symbol("b")


def kinds(graph):
    return [node.op.kind for node in graph.nodes]


def test_products_by_constants_become_linear_and_transposes_go_offline():
    draft = Draft()
    x = draft.input("x", TensorType((B, 4), "float64"))
    w = draft.constant("w", RNG.normal(size=(5, 4)))
    turned = draft.add(Transpose((1, 0)), (w,), "t")
    draft.outputs = [draft.add(MatrixProduct(), (x, turned), "y")]
    graph = draft.graph()
    small = canonical(graph)
    assert kinds(small) == ["linear"]
    assert small.constants[0].value.shape == (5, 4)
    data = RNG.normal(size=(3, 4))
    np.testing.assert_array_equal(small.run(data), graph.run(data))
    assert any("constants worked out offline" in str(one) for one in small.decisions)


def test_a_shared_constant_is_turned_once_and_kept_for_the_other_reader():
    draft = Draft()
    x = draft.input("x", TensorType((B, 4), "float64"))
    w = draft.constant("w", RNG.normal(size=(4, 4)))
    one = draft.add(MatrixProduct(), (x, w), "one")
    draft.outputs = [draft.add(Linear(), (one, w), "two")]
    graph = draft.graph()
    small = canonical(graph)
    assert kinds(small) == ["linear", "linear"]
    assert len(small.constants) == 2
    data = RNG.normal(size=(3, 4))
    np.testing.assert_allclose(small.run(data), graph.run(data), rtol=1e-12)


def test_moves_join_and_vanish():
    draft = Draft()
    x = draft.input("x", TensorType((B, 4, 6), "float64"))
    a = draft.add(Transpose((2, 0, 1)), (x,), "a")
    b = draft.add(Transpose((1, 2, 0)), (a,), "b")
    c = draft.add(Reshape((B, 24)), (b,), "c")
    d = draft.add(Reshape((B, 4, 6)), (c,), "d")
    draft.outputs = [draft.add(Unary("exp"), (d,), "y")]
    small = canonical(draft.graph())
    assert kinds(small) == ["unary"]
    assert small.node("y").inputs == ("x",)


def test_a_quantised_weight_turns_with_its_groups():
    q = quantize(RNG.normal(size=(6, 8)), types["int4"].grouped(4, zero="integer"))
    turned = transposed(q)
    assert turned.type.group == (4, 1)
    np.testing.assert_array_equal(turned.dequantize(), q.dequantize().T)
    assert transposed(turned) == q


def test_weights_stack_where_no_group_would_span_two():
    wt = types["int4"].grouped(4)
    one, two = (quantize(RNG.normal(size=(n, 8)), wt) for n in (6, 2))
    both = stacked([one, two])
    np.testing.assert_array_equal(
        both.dequantize(), np.concatenate([one.dequantize(), two.dequantize()])
    )
    assert stacked([one, quantize(np.ones((2, 8)), types["int4"].grouped(8))]) is None
    tensor = types["int4"].grouped("tensor")
    assert stacked([quantize(np.ones((2, 8)), tensor)] * 2) is None


def norm(draft, x, root, order):
    two, eps = draft.constant("2", np.array(2.0)), draft.constant("eps", np.array(1e-3))
    from ladder.graph.operators import Reduce

    square = draft.add(Binary("power"), (x, two), "square")
    mean = draft.add(Reduce("mean", (-1,)), (square,), "mean")
    spread = draft.add(Binary("add"), (eps, mean), "spread")
    if root == "rsqrt":
        inverse = draft.add(Unary("rsqrt"), (spread,), "inverse")
        normed = draft.add(Binary("multiply"), (inverse, x)[::order], "normed")
    else:
        deviation = draft.add(Unary("sqrt"), (spread,), "deviation")
        normed = draft.add(Binary("divide"), (x, deviation), "normed")
    return draft.add(
        Binary("multiply"), (draft.constant("w", RNG.normal(size=6)), normed)[::order], "y"
    )


@pytest.mark.parametrize("root", ["rsqrt", "sqrt"])
@pytest.mark.parametrize("order", [1, -1])
def test_rms_norm_in_its_spellings(root, order):
    draft = Draft()
    x = draft.input("x", TensorType((B, 6), "float64"))
    draft.outputs = [norm(draft, x, root, order)]
    graph = draft.graph()
    small = recognise(graph)
    assert [node.op for node in small.nodes] == [RMSNorm(1, 1e-3)]
    data = RNG.normal(size=(3, 6))
    np.testing.assert_allclose(small.run(data), graph.run(data), rtol=1e-12)


def test_a_mean_over_another_axis_is_no_rms_norm():
    from ladder.graph.operators import Reduce

    draft = Draft()
    x = draft.input("x", TensorType((6, 6), "float64"))
    draft.outputs = [norm(draft, x, "rsqrt", 1)]
    draft.put("mean", Reduce("mean", (0,)), draft.nodes["mean"].inputs)
    assert "rms_norm" not in kinds(recognise(draft.graph()))


def test_attention_spelled_out_with_repeated_heads_and_mask():
    torch = pytest.importorskip("torch")
    from ladder.graph.importers.torch_export import from_torch

    class Spelled(torch.nn.Module):
        def forward(self, q, k, v, mask):
            b, g, t, d = k.shape
            k, v = (one[:, :, None].expand(b, g, 3, t, d).reshape(b, 3 * g, t, d) for one in (k, v))
            scores = q @ k.transpose(2, 3) / d**0.5 + mask
            return torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v

    q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    given = (q, k, v, torch.randn(1, 1, 4, 5))
    graph = from_torch(Spelled(), given)
    assert [type(node.op) for node in graph.nodes] == [Attention]
    assert graph.nodes[0].inputs == ("q", "k", "v", "mask")
    np.testing.assert_allclose(graph.run(*given), Spelled()(*given).numpy(), atol=1e-5)


@pytest.mark.parametrize("spelling", ["x * sigmoid", "gelu"])
def test_activations_spelled_out(spelling):
    torch = pytest.importorskip("torch")
    from ladder.graph.importers.torch_export import from_torch

    class Spelled(torch.nn.Module):
        def forward(self, x):
            if spelling == "gelu":
                return x * 0.5 * (1.0 + torch.erf(x / 2**0.5))
            return x * torch.sigmoid(x)

    x = torch.randn(3, 4)
    graph = from_torch(Spelled(), (x,))
    assert [str(node.op) for node in graph.nodes] == ["gelu" if spelling == "gelu" else "silu"]
    np.testing.assert_allclose(graph.run(x), Spelled()(x).numpy(), atol=1e-6)
