"""The operator: what can be declared, what it means."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.matmul import MAX_EXTENT, MatMul, matmul
from ladder.registry import types
from ladder.ttype import GroupedType, Quantized, bfloat16, float16, float32

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
        (-1, 8, 16, "m = -1 is not an integer in 0"),
        (1.5, 8, 16, "m = 1.5 is not an integer"),
        (True, 8, 16, "m = True is not an integer"),
        (1, 0, 16, "n = 0 is not an integer in 1"),
        (1, None, 16, "n = None is not an integer in 1"),
        (1, 8, 0, "k = 0 is not an integer in 1"),
        (1, 8, MAX_EXTENT + 1, "k = 2147483648 is not an integer"),
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
        ({"activation": "int8"}, "activation = int8 is not offered"),
        ({"activation": "float32"}, "activation = float32 is not offered"),
        ({"out": "int8"}, "out = int8 is not offered"),
        ({"activation": "float17"}, "float17"),
        ({"weight": "float16"}, "float16"),
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
