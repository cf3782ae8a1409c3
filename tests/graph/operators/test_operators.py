"""Operators: shapes, and meanings against loops and closed forms written here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ladder.errors import GraphError, ShapeError, TypeDeclarationError
from ladder.graph.extent import symbol
from ladder.graph.operators import (
    OPERATORS,
    Activated,
    AddResidual,
    Attention,
    Biased,
    Binary,
    Cast,
    Concat,
    Dequantize,
    Expand,
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
from ladder.graph.tensor import TensorType

B, S = symbol("b"), symbol("s")
RNG = np.random.default_rng(0)


def tensor(*shape, dtype="float32"):
    return TensorType(shape, dtype)


def value(op, *arrays, **sizes):
    return op.evaluate(*(np.asarray(a, float) for a in arrays), sizes=sizes)


def test_every_operator_is_in_the_table_under_its_kind():
    assert all(cls.kind == kind for kind, cls in OPERATORS.items())
    assert len(OPERATORS) == 24


@pytest.mark.parametrize(
    "name, function",
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("gelu", lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2))),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("rsqrt", lambda x: abs(x) ** -0.5),
        ("negative", lambda x: -x),
    ],
)
def test_functions_of_one_number(name, function):
    x = np.linspace(-6, 6, 24)
    x = np.abs(x) if name == "rsqrt" else x
    np.testing.assert_allclose(value(Unary(name), x), [function(v) for v in x], rtol=1e-12)


def test_silu_of_large_numbers_stays_finite():
    np.testing.assert_array_equal(value(Unary("silu"), [-1e4, 1e4]), [0, 1e4])


def test_linear_and_its_epilogue_step_by_step():
    x, w = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(6, 4))
    bias, residual = RNG.normal(size=6), RNG.normal(size=(2, 3, 3))
    op = Linear((Scaled(2.0), Biased(), Gated("silu"), AddResidual()))
    y = np.zeros((2, 3, 3))
    for i in range(2):
        for j in range(3):
            s = [2 * sum(x[i, j, k] * w[n, k] for k in range(4)) + bias[n] for n in range(6)]
            y[i, j] = [s[n] / (1 + math.exp(-s[n])) * s[n + 3] for n in range(3)]
    np.testing.assert_allclose(value(op, x, w, bias, residual), y + residual, rtol=1e-12)
    given = tensor(B, S, 4), tensor(6, 4), tensor(6), tensor(B, S, 3)
    assert op.infer(*given) == tensor(B, S, 3)
    assert str(op) == "linear(times 2, bias, silu(gate)*up, residual)"


@pytest.mark.parametrize(
    "steps, operands, text",
    [
        ((Biased(),), (), "0 operands for the epilogue bias"),
        ((Biased(),), ((5,),), "bias and output channels: 5 and 6"),
        ((AddResidual(),), ((B, 7),), "residual"),
        ((), ((6,),), "1 operands for the epilogue of no step"),
    ],
)
def test_epilogues_that_do_not_fit(steps, operands, text):
    with pytest.raises(ShapeError, match=text):
        Linear(steps).infer(tensor(B, 4), tensor(6, 4), *(tensor(*one) for one in operands))


def test_a_gate_needs_two_halves_and_an_activation_a_name():
    with pytest.raises(ShapeError, match="7 channels"):
        Linear((Gated("silu"),)).infer(tensor(B, 4), tensor(7, 4))
    with pytest.raises(ShapeError, match="function is 'sine'"):
        Activated("sine")


def test_k_has_to_agree():
    with pytest.raises(ShapeError, match="K of x and w: 4 and 5"):
        Linear().infer(tensor(B, 4), tensor(6, 5))
    with pytest.raises(ShapeError, match="K: 4 and 5"):
        MatrixProduct().infer(tensor(B, 4), tensor(5, 6))


def test_attention_by_loops_with_groups_mask_and_causality():
    q, k, v = RNG.normal(size=(4, 3, 8)), RNG.normal(size=(2, 3, 8)), RNG.normal(size=(2, 3, 5))
    mask = RNG.normal(size=(1, 3, 3))
    want = np.zeros((4, 3, 5))
    for h in range(4):
        for i in range(3):
            e = [
                math.exp(0.3 * float(q[h, i] @ k[h // 2, j]) + mask[0, i, j]) for j in range(i + 1)
            ]
            want[h, i] = sum(e[j] * v[h // 2, j] for j in range(i + 1)) / sum(e)
    op = Attention(causal=True, scale=0.3)
    np.testing.assert_allclose(value(op, q, k, v, mask), want, rtol=1e-12)
    kept = np.tri(3, dtype=bool)
    same = Attention(scale=0.3).evaluate(q, k, v, kept, sizes={})
    np.testing.assert_allclose(same, value(Attention(causal=True, scale=0.3), q, k, v), rtol=1e-12)
    assert op.infer(tensor(B, 4, S, 8), tensor(B, 2, S, 8), tensor(B, 2, S, 5)) == tensor(
        B, 4, S, 5
    )


def test_a_row_that_is_masked_whole_gives_zeros_not_nan():
    q, k = np.ones((1, 1, 2)), np.ones((1, 3, 2))
    y = Attention().evaluate(q, k, k, np.zeros((1, 3), bool), sizes={})
    np.testing.assert_array_equal(y, np.zeros((1, 1, 2)))


def test_heads_that_do_not_divide():
    with pytest.raises(ShapeError, match="3 heads of q over 2 of k"):
        Attention().infer(tensor(3, S, 8), tensor(2, S, 8), tensor(2, S, 8))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_rotary_turns_pairs_of_features(interleaved, twice):
    x, angle = RNG.normal(size=(2, 5, 6)), RNG.normal(size=(5, 3))
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 3) for i in range(3)]
    want = np.zeros_like(x)
    for i, (a, b) in enumerate(pairs):
        c, s = np.cos(angle[:, i]), np.sin(angle[:, i])
        want[..., a] = x[..., a] * c - x[..., b] * s
        want[..., b] = x[..., b] * c + x[..., a] * s
    cos, sin = np.cos(angle), np.sin(angle)
    if twice:
        order = np.argsort([p for pair in pairs for p in pair])
        cos, sin = (np.repeat(one, 2, -1)[:, order] for one in (cos, sin))
    np.testing.assert_allclose(value(Rotary(interleaved), x, cos, sin), want, rtol=1e-12)


def test_norms():
    x, w, b = RNG.normal(size=(2, 7)) + 3, RNG.normal(size=7), RNG.normal(size=7)
    for row, y in zip(x, value(RMSNorm(eps=0.1), x, w), strict=True):
        np.testing.assert_allclose(y, row / math.sqrt(sum(row**2) / 7 + 0.1) * w)
    for row, y in zip(x, value(LayerNorm(eps=0.1), x, w, b), strict=True):
        mean = sum(row) / 7
        deviation = math.sqrt(sum((row - mean) ** 2) / 7 + 0.1)
        np.testing.assert_allclose(y, (row - mean) / deviation * w + b)
    with pytest.raises(ShapeError, match="weight and normalised axes"):
        RMSNorm().infer(tensor(B, 7), tensor(6))


def test_softmax_and_reductions():
    x = RNG.normal(size=(2, 3, 4))
    np.testing.assert_allclose(value(Softmax(1), x).sum(1), np.ones((2, 4)))
    np.testing.assert_allclose(value(Softmax(1), x + 1000), value(Softmax(1), x))
    assert Reduce("mean", (-1,), keep=False).infer(tensor(B, S, 4)) == tensor(B, S)
    np.testing.assert_allclose(value(Reduce("sum", (0, 2)), x)[0, :, 0], x.sum((0, 2)))


def test_moves_of_symbolic_shapes():
    x = tensor(B, S, 12)
    assert Reshape((B * S, 3, 4)).infer(x) == tensor(B * S, 3, 4)
    assert Transpose((2, 0, 1)).infer(x) == tensor(12, B, S)
    assert Concat(1).infer(x, tensor(B, 2, 12)) == tensor(B, S + 2, 12)
    assert Slice(1, 1, S).infer(x) == tensor(B, S - 1, 12)
    assert Slice(2, 1, 12, 4).infer(x) == tensor(B, S, 3)
    assert Expand((B, S, 12)).infer(tensor(S, 1)) == x
    assert Gather(0).infer(tensor(100, 8), tensor(B, S, dtype="int64")) == tensor(B, S, 8)
    assert Range(S + 1).infer() == tensor(S + 1, dtype="int64")


def test_moves_move_what_they_say():
    x = np.arange(24).reshape(2, 3, 4)
    assert value(Slice(2, 1, 4, 2), x)[1, 2].tolist() == [21, 23]
    assert value(Concat(1), x, x).shape == (2, 6, 4)
    assert value(Reshape((B * 3, 4)), x, b=2)[5].tolist() == [20, 21, 22, 23]
    taken = Gather(1, from_end=True).evaluate(x, np.array([2, -3]), sizes={})
    assert taken[0].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert Range(S, 3, 2).evaluate(sizes={"s": 3}).tolist() == [3, 5, 7]


@pytest.mark.parametrize(
    "from_end, indices, found, first",
    [(False, [0, -1], -1, 0), (False, [0, 4], 4, 0), (True, [-5, 3], -5, -4), (True, [4], 4, -4)],
)
def test_indices_out_of_range_are_refused(from_end, indices, found, first):
    """As the frameworks refuse them; NumPy would count from the end, unasked."""
    table = np.zeros((4, 2))
    gather = Gather(0, from_end)
    with pytest.raises(GraphError, match=f"index {found} into an axis of 4") as caught:
        value(gather, table, np.array(indices))
    assert caught.value.hint == f"indices go from {first} to 3"
    assert value(gather, table, np.array([0, 3, first])).shape == (3, 2)
    assert value(gather, table, np.zeros((0, 2), int)).shape == (0, 2, 2)


@pytest.mark.parametrize(
    "op, given",
    [
        (Reshape((5,)), [tensor(2, 3)]),
        (Transpose((0, 0)), [tensor(2, 3)]),
        (Concat(0), [tensor(2, 3), tensor(2, 4)]),
        (Concat(2), [tensor(2, 3)]),
        (Slice(0, 0, S, 2), [tensor(S)]),
        (Expand((2, 4)), [tensor(2, 3)]),
        (Softmax(2), [tensor(2, 3)]),
    ],
)
def test_moves_that_do_not_fit_are_refused(op, given):
    with pytest.raises(ShapeError) as caught:
        op.infer(*given)
    assert caught.value.at
    assert caught.value.hint


def test_types_of_pairs():
    half, number, index = tensor(3, dtype="float16"), tensor(), tensor(3, dtype="int64")
    assert Binary("add").infer(half, number).dtype == "float16"
    assert Binary("multiply").infer(index, half).dtype == "float16"
    assert Binary("less").infer(half, half).dtype == "bool"
    assert Where().infer(tensor(3, dtype="bool"), half, number).dtype == "float16"
    assert Cast("int64").evaluate(np.array([-1.5, 2.9]), sizes={}).tolist() == [-1, 2]
    for kept in ("float16", "fp8_e4m3fn", "fp8_e5m2"):
        assert Cast(kept).evaluate(np.array([1 + 2**-20]), sizes={}).tolist() == [1 + 2**-20]
    with pytest.raises(ShapeError, match="cast to float17"):
        Cast("float17")


def test_rows_are_quantised_by_their_own_largest_number():
    x = np.array([[127.0, 0.5, 1.5, -2.5], [0, 0, 0, 0], [1e-3, 3e-3, -4e-3, 0]])
    y = value(QuantizeTokens("int8"), x)
    assert y[0].tolist() == [127, 0, 2, -2]  # ties to even
    assert y[1].tolist() == [0, 0, 0, 0]
    scale = float(np.float32(4e-3 / 127))
    assert y[2].tolist() == [32 * scale, 95 * scale, -127 * scale, 0]
    assert QuantizeTokens("int8").infer(tensor(B, 4)) == tensor(B, 4, dtype="int8/token")
    with pytest.raises(TypeDeclarationError, match="not quantised to 'int3'"):
        QuantizeTokens("int3").infer(tensor(B, 4))
    np.testing.assert_array_equal(value(Linear((QuantizedRows("int8"),)), x, np.eye(4)), y)


def test_fp8_rows_are_nearest_values_of_the_format():
    x = RNG.normal(size=(3, 64))
    scale = np.abs(x).max(-1, keepdims=True) / 448
    import ml_dtypes

    want = (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(float) * scale
    np.testing.assert_allclose(value(QuantizeTokens("fp8_e4m3fn"), x), want, rtol=1e-6)


def test_quantize_rounds_half_to_even_and_saturates():
    x = np.array([0.5, 1.5, 2.5, -0.5, 1000, -1000])
    assert value(Quantize("int8"), x, 1.0).tolist() == [0, 2, 2, 0, 127, -128]
    assert value(Quantize("uint8"), x, 1.0, 128).tolist() == [128, 130, 130, 128, 255, 0]
    assert value(Quantize("int4"), x, 1.0).tolist() == [0, 2, 2, 0, 7, -8]


def test_scales_by_tensor_axis_and_block():
    q = np.arange(12).reshape(2, 6)
    assert value(Dequantize(), q, 2.0)[1, 5] == 22
    rows = value(Dequantize(axis=0), q, [1, 10], [0, 6])
    assert rows[1].tolist() == [0, 10, 20, 30, 40, 50]
    blocks = value(Dequantize(axis=1, block=4), q, [[1, 2], [3, 4]])
    assert blocks[0].tolist() == [0, 1, 2, 3, 8, 10]
    with pytest.raises(ShapeError, match="expected"):
        value(Dequantize(axis=1, block=4), q, [[1], [2]])


def test_what_belongs_to_the_framework_says_so():
    op = Foreign("aten.cumsum.default", tensor(B, 4))
    assert op.infer(tensor(B, 4)) == tensor(B, 4)
    with pytest.raises(GraphError, match="belongs to the caller's framework"):
        op.evaluate(np.ones((1, 4)), sizes={})


@pytest.mark.parametrize("target", ["int8", "fp8_e4m3fn"])
def test_rows_are_quantised_as_the_kernel_does_it_and_their_codes_found_again(target):
    from ladder.graph import quantize_activations
    from ladder.graph.operators.quantize import quantize_rows, rows_of

    sizes = np.array([[0.0], [1e-7], [1.0], [300.0]])
    x = (sizes * np.random.default_rng(5).normal(size=(4, 50_000))).astype(np.float16)
    codes, scales = quantize_activations(4, 50_000, target=target).reference(x)
    values = quantize_rows(x.astype(np.float64), target)
    np.testing.assert_array_equal(values, codes.astype(np.float64) * scales[:, None].astype(float))
    again, same = rows_of(values, target)
    np.testing.assert_array_equal(again.view(np.uint8), codes.view(np.uint8))
    np.testing.assert_array_equal(same, scales)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_passes_for_no_number(bad):
    y = value(QuantizeTokens("int8"), np.array([[1.0, bad], [1.0, 2.0]]))
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()
