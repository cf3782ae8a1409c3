"""Operators by torch's functions are their float64 meaning."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ladder.errors import GraphError  # noqa: E402
from ladder.graph.extent import symbol  # noqa: E402
from ladder.graph.operators import (  # noqa: E402
    FUNCTIONS,
    OPERATORS,
    PAIRS,
    STEPS,
    Activated,
    AddResidual,
    Attention,
    Biased,
    Binary,
    Cast,
    Coded,
    Concat,
    Dequantize,
    Expand,
    Extents,
    Foreign,
    Gated,
    Gather,
    LayerNorm,
    Linear,
    MatrixProduct,
    Quantize,
    QuantizedRows,
    QuantizeTokens,
    Range,
    Reduce,
    Reshape,
    RMSNorm,
    Rotary,
    Scaled,
    Slice,
    Softmax,
    Transpose,
    Unary,
    Where,
)
from ladder.graph.tensor import TensorType  # noqa: E402
from ladder.torch.functions import MAKERS, apply_step, function_of, torch_dtype  # noqa: E402

RNG = np.random.default_rng(0)
SIZES = {"b": 2, "s": 5}
B, S = symbol("b"), symbol("s")


def normal(*shape):
    return RNG.normal(size=shape)


def whole(*shape, most=7):
    return RNG.integers(0, most, shape)


TRUE = RNG.integers(0, 2, (4, 6)).astype(bool)
MASKED = np.where(RNG.integers(0, 2, (6, 6)).astype(bool), 0.0, -np.inf)
MASKED[:, 0] = 0.0
CASES = [
    *((Unary(name), [np.abs(normal(3, 5)) + 0.1]) for name in FUNCTIONS if name != "not"),
    (Unary("not"), [TRUE]),
    *((Binary(name), [np.abs(normal(3, 1)), normal(1, 5).round(1)]) for name in PAIRS if name not in ("and", "or")),
    (Binary("divide"), [np.array([-7, 7, 9]), np.array([2, 2, -2])]),
    (Binary("and"), [TRUE, ~TRUE[::-1]]),
    (Binary("or"), [TRUE, ~TRUE[::-1]]),
    (Where(), [TRUE, normal(4, 6), normal(6)]),
    (Cast("float32"), [normal(3)]),
    (Cast("int64"), [5 * normal(9)]),
    (Linear((Biased(), Activated("silu"), AddResidual())), [normal(2, 3, 8), normal(6, 8), normal(6), normal(2, 3, 6)]),
    (MatrixProduct(), [normal(2, 3, 4), normal(4, 5)]),
    (Attention(), [normal(2, 4, 6, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 8)]),
    (Attention(causal=True, scale=0.3), [normal(2, 4, 6, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 8)]),
    (Attention(), [normal(4, 6, 8), normal(2, 6, 8), normal(2, 6, 8)]),
    (Attention(), [normal(2, 4, 6, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), MASKED]),
    (Attention(causal=True), [normal(2, 4, 6, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 8), MASKED]),
    (Attention(causal=True), [normal(2, 4, 6, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), MASKED == 0]),
    (Rotary(), [normal(2, 4, 6, 8), normal(6, 8), normal(6, 8)]),
    (Rotary(), [normal(2, 4, 6, 8), normal(6, 4), normal(6, 4)]),
    (Rotary(interleaved=True), [normal(2, 4, 6, 8), normal(6, 4), normal(6, 4)]),
    (Softmax(), [normal(3, 5)]),
    (Softmax(axis=0), [np.where(np.arange(5) == 2, -np.inf, normal(3, 5))]),
    (LayerNorm(), [normal(3, 5)]),
    (LayerNorm(axes=2, eps=1e-3), [normal(2, 3, 5), normal(3, 5), normal(5)]),
    (RMSNorm(), [normal(3, 5), normal(5)]),
    (RMSNorm(axes=2), [normal(2, 3, 5), normal(1, 5)]),
    (RMSNorm(out="float32"), [normal(3, 5), normal(5)]),
    *((Reduce(name, (0, -1), keep=keep), [normal(3, 4, 5)]) for name in ("sum", "mean", "maximum", "minimum", "product") for keep in (True, False)),
    (Reshape((B, S * 4)), [normal(2, 5, 4)]),
    (Transpose((2, 0, 1)), [normal(2, 5, 4)]),
    (Concat(1), [normal(2, 5), normal(2, 3)]),
    (Slice(1, 1, S), [normal(2, 5)]),
    (Slice(0, 0, 5, 2), [normal(5, 2)]),
    (Expand((B, S, 4)), [normal(1, 4)]),
    (Gather(from_end=True), [normal(7, 4), whole(2, 3) - 3]),
    (Gather(axis=1), [normal(3, 7, 2), whole(4)]),
    (Gather(), [normal(7), whole(2, 3)]),
    (Extents(B * S + 1), []),
    (Range(S, B, 3), []),
    (Quantize("int8"), [3 * normal(4, 6), np.float32(0.05), np.int64(3)]),
    (Quantize("uint8", axis=0), [3 * normal(4, 6), np.abs(normal(4)).astype(np.float32), whole(4)]),
    (Dequantize(axis=1), [whole(4, 6), normal(6), whole(6)]),
    (Dequantize(axis=1, block=4), [whole(4, 6), normal(4, 2)]),
]  # fmt: skip


@pytest.mark.parametrize("op, given", CASES, ids=lambda one: getattr(one, "brief", ""))
def test_the_function_is_the_meaning(op, given):
    with np.errstate(all="ignore"):
        want = op.evaluate(*[np.asarray(one) for one in given], sizes=SIZES)
    got = function_of(op, SIZES, torch.device("cpu"))(*[torch.as_tensor(one) for one in given])
    np.testing.assert_allclose(
        got.double().numpy(), np.asarray(want, np.float64), rtol=1e-6 if op.kind == "cast" else 1e-12, atol=1e-12
    )  # fmt: skip


@pytest.mark.parametrize("op, index", [(Gather(), -1), (Gather(), 7), (Gather(from_end=True), -8)])
def test_indices_out_of_range_are_refused(op, index):
    function = function_of(op, SIZES, torch.device("cpu"))
    with pytest.raises(GraphError, match=f"index {index} into an axis of 7"):
        function(torch.zeros(7, 4), torch.tensor([0, index]))


@pytest.mark.parametrize("op", [RMSNorm(out="float32"), LayerNorm(out="float32")])
def test_a_norm_whose_result_is_wider_is_not_rounded_to_its_operands(op):
    given = [torch.as_tensor(one).half() for one in (normal(3, 50), normal(50))]
    want = op.evaluate(*[one.double().numpy() for one in given], sizes={})
    got = function_of(op, {}, torch.device("cpu"))(*given)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_every_operator_has_a_function_or_a_reason():
    without = {Foreign, QuantizeTokens}  # somebody else's; a call of its own
    assert set(OPERATORS.values()) - set(MAKERS) == without
    with pytest.raises(GraphError, match="has no torch function"):
        function_of(Foreign("aten.cumsum", TensorType((1,), "float32")), {}, "cpu")


def test_steps_of_an_epilogue():
    y, other = normal(3, 8), normal(3, 8)
    steps = {
        Biased(): (other[0],),
        AddResidual(): (other,),
        Scaled(0.5): (),
        Activated("gelu_tanh"): (),
        Gated("silu"): (),
        Coded("int8", 0.03): (),
    }
    assert {type(step) for step in steps} | {QuantizedRows} == set(STEPS)
    for step, operands in steps.items():
        got = apply_step(step, torch.as_tensor(y), tuple(map(torch.as_tensor, operands)))
        np.testing.assert_allclose(got.numpy(), step.apply(y, operands), rtol=1e-12)
    with pytest.raises(GraphError, match="to int8 by rows has no torch function"):
        apply_step(QuantizedRows("int8"), torch.as_tensor(y), ())


def test_types_that_torch_lacks_are_refused():
    assert torch_dtype("fp8_e4m3fn") == torch.float8_e4m3fn
    with pytest.raises(GraphError, match="torch has no type uint2x"):
        torch_dtype("uint2x")
