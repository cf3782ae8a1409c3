"""The meaning of quantised activations, against exact arithmetic and the bounds of rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import ladder
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.quantize_activations import LEAST_SCALE, SOURCES, TARGETS

EVERY_SOURCE = pytest.mark.parametrize("source", SOURCES)
KINDS = pytest.mark.parametrize("target", TARGETS)


def operator(source: str, target: str, m: int | None = None, k: int = 33):
    return ladder.quantize_activations(m, k, source=source, target=target)


def numbers(op, x):
    """The codes of the meaning as float64, unpacked, and its scales."""
    codes, scales = op.reference(x)
    assert codes.shape == (*x.shape[:-1], op.codes.items(op.k))
    return op.codes.unpack(codes, op.k).astype(np.float64), scales


@EVERY_SOURCE
@KINDS
def test_codes_are_the_nearest_to_x_over_scale(source: str, target: str) -> None:
    op = operator(source, target)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((9, 33)) * np.exp2(rng.integers(-9, 9, (9, 1)))).astype(
        op.source.dtype
    )
    codes, scales = numbers(op, x)
    assert scales.dtype == np.float32
    exact = np.array([[Fraction(float(v)) for v in row] for row in x])
    for row, code, scale in zip(exact, codes, scales, strict=True):
        largest = max(map(abs, row))
        assert abs(Fraction(float(scale)) * Fraction(op.top) / largest - 1) <= Fraction(1, 2**24)
        assert max(map(abs, code)) == op.top  # the whole range is used
        for value, q in zip(row, code, strict=True):
            # half a step of the target: 1 for integers, 2^-3 of a number's own power of two for e4m3, but 2^-9 below 2^-6
            power = 2.0 ** np.floor(np.log2(abs(q) or 1))
            step = max(2.0**-9, power / 8) if op.codes.is_float else 1
            error = abs(value - Fraction(float(q)) * Fraction(float(scale)))
            assert error <= Fraction(step) / 2 * Fraction(float(scale)) * (1 + Fraction(1, 2**14))


@KINDS
def test_ties_go_to_the_even_code(target: str) -> None:
    op = operator("float16", target, k=4)
    top = op.top  # scale 1
    ties, wanted = {
        **dict.fromkeys(("int8", "int4"), ([0.5, 1.5, -2.5], [0, 2, -2])),
        "fp8_e4m3fn": ([1 + 1 / 16, 1 + 3 / 16, -(1 + 1 / 16)], [1, 1.25, -1]),
    }[target]
    codes, scales = numbers(op, np.array([[*ties, top]], np.float16))
    assert scales.tolist() == [1.0]
    assert codes.tolist() == [[*wanted, top]]


def test_codes_of_4_bits_lie_two_to_a_byte_the_first_one_lowest() -> None:
    op = operator("float16", "int4", k=5)
    codes, scales = op.reference(np.array([[7, -7, 1, -1, 3]], np.float16))
    assert scales.tolist() == [1.0]
    assert (codes.dtype, op.out_dtype) == (np.uint8, np.uint8)
    assert codes.tolist() == [[0x97, 0xF1, 0x03]]


@EVERY_SOURCE
def test_integers_are_rounded_once_from_the_exact_product(source: str) -> None:
    """Multiples of a row's scale that are nearly halves: a product rounded to float32 first would be one."""
    op = operator(source, "int8", k=2)
    largest = np.arange(1, 2, 1 / 64)
    x = np.stack([largest / 2, largest], axis=1).astype(op.source.dtype)
    codes, scales = op.reference(x)
    inverse = np.float32(1) / scales
    halves = [
        Fraction(float(row[0])) * Fraction(float(i)) for row, i in zip(x, inverse, strict=True)
    ]
    assert codes[:, 0].tolist() == list(map(round, halves))
    twice = np.rint(x[:, 0].astype(np.float32) * inverse)
    assert (codes[:, 0] != twice).any()  # the rows tell one meaning from the other


@EVERY_SOURCE
@KINDS
def test_zeros_and_tiny_rows_have_the_least_scale(source: str, target: str) -> None:
    op = operator(source, target, k=2)
    codes, scales = numbers(op, np.zeros((2, 2), op.source.dtype))
    assert scales.tolist() == [LEAST_SCALE] * 2 == [2.0**-126] * 2
    assert not codes.any()
    if source != "float16":  # which has no number so small
        tiny = np.array([[2.0**-130, 0]]).astype(op.source.dtype)
        codes, scales = numbers(op, tiny)
        assert scales.tolist() == [2.0**-126]
        assert codes.tolist() == [[2.0**-4 if op.codes.is_float else 0.0, 0.0]]


@EVERY_SOURCE
@KINDS
def test_rows_that_are_no_numbers_have_scales_that_are_none(source: str, target: str) -> None:
    op = operator(source, target, k=3)
    x = np.array([[1, np.nan, 2], [1, -np.inf, 2], [np.inf, np.nan, 0], [3, 2, 1]])
    codes, scales = numbers(op, x.astype(op.source.dtype))
    assert np.isnan(scales[[0, 2]]).all()
    assert scales[1] == np.inf
    assert np.isfinite(scales[3])
    with np.errstate(invalid="ignore"):
        decoded = codes * scales[:, None]
    assert not np.isfinite(decoded[:3]).any()
    assert np.isfinite(decoded[3]).all()


def test_leading_axes_are_rows() -> None:
    op = operator("float16", "int8", k=8)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float16)
    codes, scales = op.reference(x)
    assert (codes.shape, scales.shape) == ((2, 3, 8), (2, 3))
    assert np.array_equal(codes.reshape(6, 8), op.reference(x.reshape(6, 8))[0])


def test_it_prints_and_compares() -> None:
    op = operator("fp16", "float8_e4m3fn", k=8)
    assert str(op) == "quantize_activations(x float16[any, 8] -> fp8_e4m3fn[any, 8], float32[any])"
    assert op == operator("float16", "fp8_e4m3fn", k=8) != operator("float16", "int8", k=8)
    assert (op.top, operator("float16", "int8").top) == (448.0, 127.0)


@pytest.mark.parametrize(
    "given, kind, what",
    [
        ({"source": "int8"}, TypeDeclarationError, "source = int8 is not offered"),
        ({"target": "uint4"}, TypeDeclarationError, "target = uint4 is not offered"),
        ({"target": "mxfp4"}, TypeDeclarationError, "expected an element type"),
        (
            {"target": ladder.TType("int8", bits=4, values=range(16))},
            TypeDeclarationError,
            "target is another int8 than",
        ),
        ({"k": 0}, ShapeError, "k is 0"),
        ({"m": -1}, ShapeError, "m is -1"),
        ({"m": 2**31}, ShapeError, "m is"),
    ],
)
def test_what_is_not_offered_is_refused(given, kind, what) -> None:
    with pytest.raises(kind, match=what):
        ladder.quantize_activations(**{"m": 1, "k": 8, **given})


def test_x_of_another_width_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"x is \[2, 8\], the operator takes \[..., 33\]"):
        operator("float16", "int8").reference(np.zeros((2, 8)))
