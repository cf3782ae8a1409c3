"""The operator: what can be declared, what it means."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.epilogue import AddResidual, Gated, Scaled
from ladder.graph.matmul import MAX_EXTENT, MatMul, matmul
from ladder.registry import types
from ladder.ttype import GroupedType, Quantized, TType, bfloat16, float16, float32, quantize
from ladder.ttype.encoding import Float

INT4 = types["int4"]


def test_types_by_name_and_by_value_are_the_same():
    one = matmul(1, 8, 16, activation="float16", weight="int4", out="float32")
    other = matmul(1, 8, 16, activation=float16, weight=INT4, out=float32)
    assert one == other
    assert hash(one) == hash(other)
    assert isinstance(one.weight, GroupedType)
    assert one.element == INT4


def test_defaults():
    op = matmul(1, 8, 16, activation="bfloat16", weight="mxfp4")
    assert (op.out.name, op.bias, op.activation) == ("float16", False, bfloat16)


def test_printed():
    op = matmul(None, 8, 16, activation="float16", weight=INT4.grouped(8), bias=True)
    assert str(op) == (
        "matmul(x float16[any, 16], w int4 g8 scale=float16[8, 16] + bias -> float16[any, 8])"
    )


@pytest.mark.parametrize(
    "m, n, k, text",
    [
        (-1, 8, 16, "m is -1, not an integer in 0"),
        (1.5, 8, 16, "m is 1.5, not an integer"),
        (True, 8, 16, "m is True, not an integer"),
        (1, 0, 16, "n is 0, not an integer in 1"),
        (1, None, 16, "n is None, not an integer in 1"),
        (1, 8, 0, "k is 0, not an integer in 1"),
        (1, 8, MAX_EXTENT + 1, f"k is {MAX_EXTENT + 1}, not an integer"),
    ],
)
def test_extents_that_are_none(m, n, k, text):
    with pytest.raises(ShapeError) as caught:
        matmul(m, n, k, activation="float16", weight="int4")
    assert caught.value.what.startswith(text)


def test_extents_at_the_edge():
    op = matmul(0, 1, MAX_EXTENT, activation="float16", weight="int4")
    assert isinstance(op, MatMul)
    assert op.m == 0


@pytest.mark.parametrize(
    "change, text",
    [
        ({"activation": "float32"}, "activation = float32 is not offered"),
        ({"out": "int8"}, "out = int8 is not offered"),
        ({"activation": "float17"}, "float17"),
        ({"weight": "float32"}, "float32"),
        ({"weight": "bfloat16"}, "a weight of bfloat16"),
        ({"weight": "int44"}, "int44"),
    ],
)
def test_types_that_do_not_go_there(change, text):
    given = {"activation": "float16", "weight": "int4", "out": "float16", **change}
    with pytest.raises(TypeDeclarationError) as caught:
        matmul(1, 8, 16, **given)
    assert text in caught.value.what


def test_reference_is_the_definition():
    op = matmul(2, 3, 4, activation="float16", weight=INT4, bias=True)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (3, 4))
    x = rng.standard_normal((2, 4)).astype(np.float16)
    bias = np.array([1, 2, 3], np.float16)
    y = op.reference(x, Quantized(INT4, codes), bias)
    assert y.dtype == np.float64
    for i in range(2):
        for j in range(3):
            terms = [float(x[i, k]) * ((codes[j, k] + 8) % 16 - 8) for k in range(4)]
            assert y[i, j] == pytest.approx(sum(terms) + float(bias[j]), rel=1e-12)


def test_reference_keeps_leading_axes():
    op = matmul(None, 3, 4, activation="float16", weight=INT4)
    weights = Quantized(INT4, np.ones((3, 4), int))
    assert op.reference(np.ones((5, 2, 4), np.float16), weights).shape == (5, 2, 3)


def test_reference_refuses_weights_of_another_shape():
    op = matmul(2, 3, 4, activation="float16", weight=INT4)
    with pytest.raises(ShapeError) as caught:
        op.reference(np.ones((2, 4)), Quantized(INT4, np.ones((4, 3), int)))
    assert caught.value.what == "weight is [4, 3], the operator wants [3, 4]"
    assert "output channels first" in caught.value.hint


def test_extents_may_be_numpys():
    op = matmul(np.int64(2), np.int32(8), np.uint16(16), activation="float16", weight="int4")
    assert op == matmul(2, 8, 16, activation="float16", weight="int4")
    assert [type(extent) for extent in (op.m, op.n, op.k)] == [int] * 3


@pytest.mark.parametrize("bias", [None, 1, "yes", np.ones(8, np.float16)])
def test_a_bias_is_declared_and_its_values_are_given_later(bias):
    with pytest.raises(TypeDeclarationError, match=r"bias is .*, not True or False") as caught:
        matmul(1, 8, 16, activation="float16", weight="int4", bias=bias)
    assert "with each call" in caught.value.hint


def test_activations_that_are_not_offered_are_refused_with_those_that_are():
    with pytest.raises(TypeDeclarationError) as caught:
        matmul(1, 32, 16, activation="float32", weight="int4")
    assert str(caught.value) == (
        "activation = float32 is not offered\n"
        "  at: matmul(activation=...)\n"
        "  hint: choose one of float16, bfloat16, int8, fp8_e4m3fn, fp8_e5m2, int4, uint4"
    )


@pytest.mark.parametrize("out", ["int8", "int32"])
def test_integer_outputs_are_refused(out):
    """C59: codes are stored by a step that knows their scale (``Coded``), and never by an out type, which has none."""
    with pytest.raises(TypeDeclarationError):
        matmul(1, 32, 16, activation="int8", weight="int4", out=out)


def test_rows_of_x_are_scaled_where_that_is_declared():
    """C31: activations have a scale to each row, and no zero point: x is what it says times its scale."""
    op = matmul(None, 3, 5, activation="int8", weight="int4", activation_scale=True)
    assert str(op) == "matmul(x int8[any, 5] * scale[m], w int4[3, 5] -> float16[any, 3])"
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (3, 5)).astype(np.uint8)
    x = rng.integers(-128, 128, (2, 4, 5)).astype(np.int8)
    scale = rng.uniform(0.5, 2, (2, 4)).astype(np.float32)
    weights = np.where(codes > 7, codes.astype(int) - 16, codes.astype(int))
    wanted = np.einsum("abk,nk->abn", x.astype(int), weights) * scale[..., None].astype(float)
    got = op.reference(x, Quantized(op.weight, codes), x_scale=scale)
    np.testing.assert_array_equal(got, wanted)
    with pytest.raises(ShapeError, match=r"x_scale is \[4\], x has rows \[2, 4\]"):
        op.reference(x, Quantized(op.weight, codes), x_scale=scale[0])


def test_int8_sums_have_to_fit_int32():
    matmul(1, 32, 2**17 - 1, activation="int8", weight="int4")
    with pytest.raises(ShapeError, match="may leave int32"):
        matmul(1, 32, 2**17, activation="int8", weight="int4")
    matmul(1, 32, 2**17, activation="fp8_e4m3fn", weight="int4")


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "fp8_e4m3fnuz", "float8_e5m2fnuz"])
def test_fnuz_names_are_refused_and_no_other_format_is_suggested(name):
    """C23: the type without uz reads the same bytes as twice as much; how to declare the right one is said."""
    with pytest.raises(TypeDeclarationError, match=f"{name} is not offered") as caught:
        matmul(1, 32, 16, activation="float16", weight=name)
    assert "did you mean" not in caught.value.hint
    declared = re.search(r"encoding=(Float\(.*?\))\)", caught.value.hint).group(1)
    own = TType("my_fnuz", 8, encoding=eval(declared, {"Float": Float}))  # its own hint
    want = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name.replace("fp8", "float8")))
    np.testing.assert_array_equal(own.values, want.astype(np.float64))


@pytest.mark.parametrize("name", ["gptq", "AWQ", "gguf", "onnx"])
def test_file_formats_are_no_types(name):
    """File formats are refused with what to do instead: an importer for ONNX, codes by hand for the rest."""
    with pytest.raises(TypeDeclarationError, match="is not offered") as caught:
        matmul(1, 32, 16, activation="float16", weight=name)
    assert "ladder.Quantized" in caught.value.hint


# -- epilogue -------------------------------------------------------------------------------------------------------


def with_steps(*steps, n=8, **more):
    return matmul(2, n, 16, activation="float16", weight="int4", epilogue=steps, **more)


def test_steps_by_name_and_by_value_are_the_same():
    one = with_steps("silu_gate", "residual", bias=True)
    other = with_steps(Gated("silu"), AddResidual(), bias=True)
    assert one == other
    assert hash(one) == hash(other)
    assert (one.gated, one.residual, one.out_n) == (True, True, 4)
    assert str(one) == (
        "matmul(x float16[2, 16], w int4[8, 16] + bias, silu(gate)*up, residual -> float16[2, 4])"
    )


@pytest.mark.parametrize(
    "steps, n, text",
    [
        ("silu", 8, "epilogue is 'silu', not a tuple of names of steps"),
        (("mish",), 8, "epilogue is a tuple ('mish',), not a tuple of names of steps"),
        ((3,), 8, "epilogue is a tuple (3,), not"),
        (("silu_gate",), 7, "7 channels have no two equal halves"),
        (("silu_gate", "gelu_gate"), 8, "gated stands there 2 times"),
        (("residual", "silu", "residual"), 8, "residual stands there 2 times"),
        (("residual", "silu_gate"), 8, "cannot be added before the gate"),
        ((Scaled(2.0),), 8, "kernels do not do times 2"),
    ],
)
def test_epilogues_that_no_kernel_does(steps, n, text):
    with pytest.raises(TypeDeclarationError) as caught:
        matmul(1, n, 16, activation="float16", weight="int4", epilogue=steps)
    assert text in caught.value.what
    assert "residual" in caught.value.hint


def test_what_an_epilogue_means():
    rng = np.random.default_rng(0)
    q = quantize(rng.normal(size=(8, 16)), INT4.grouped(16))
    x, bias, r = rng.normal(size=(3, 16)), rng.normal(size=8), rng.normal(size=(3, 4))
    op = matmul(
        *(3, 8, 16),
        activation="float16",
        weight=q.type,
        bias=True,
        epilogue=("relu", "silu_gate", "residual"),
    )
    y = np.maximum(x @ q.dequantize().T + bias, 0)
    want = y[:, :4] / (1 + np.exp(-y[:, :4])) * y[:, 4:] + r
    np.testing.assert_allclose(op.reference(x, q, bias, residual=r), want)
    with pytest.raises(ShapeError, match="the residual is missing"):
        op.reference(x, q, bias)
    with pytest.raises(ShapeError, match=r"residual is \[3, 8\], y is \[3, 4\]"):
        op.reference(x, q, bias, residual=np.zeros((3, 8)))
    with pytest.raises(ShapeError, match="a residual is given"):
        with_steps().reference(x, quantize(np.ones((8, 16)), INT4), residual=r)
