"""Decoding a weight into memory: what it means, and what is refused when it is declared."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.errors import ShapeError, TypeDeclarationError

W4 = ladder.types["int4"].grouped(32)


def test_its_meaning_is_the_weights_rounded_once() -> None:
    q = ladder.quantize(np.random.default_rng(0).standard_normal((8, 64)), W4)
    op = ladder.dequantize(8, 64, weight=W4, compute="bfloat16")
    numbers = op.reference(q)
    assert numbers.dtype == op.compute.dtype
    assert np.array_equal(numbers, q.dequantize().astype(op.compute.dtype))
    assert np.count_nonzero(numbers) > 256
    assert str(op) == f"dequantize(w {W4}[8, 64] -> bfloat16[8, 64])"


def test_numbers_beyond_the_type_become_infinities() -> None:
    q = ladder.quantize(np.full((1, 32), 2.0**100), ladder.types["mxfp4"])
    found = ladder.dequantize(1, 32, weight="mxfp4").reference(q)
    assert np.isposinf(found.astype(np.float64)).all()


@pytest.mark.parametrize(
    "change, error, what",
    [
        ({"n": 0}, ShapeError, "n is 0"),
        ({"k": 1.5}, ShapeError, r"k is 1\.5"),
        ({"compute": "float32"}, TypeDeclarationError, "float32 is not offered"),
        ({"weight": "float16"}, TypeDeclarationError, "float16 is dense already"),
        ({"weight": "no_such"}, TypeDeclarationError, "no_such"),
    ],
)
def test_what_makes_no_sense_is_refused(change, error, what) -> None:
    with pytest.raises(error, match=what):
        ladder.dequantize(**{"n": 8, "k": 64, "weight": W4, **change})


def test_a_weight_that_does_not_fit_is_refused() -> None:
    op = ladder.dequantize(8, 64, weight=W4)
    q = ladder.quantize(np.ones((8, 32)), W4)
    with pytest.raises(ShapeError, match=r"weight is \[8, 32\]"):
        op.reference(q)
    with pytest.raises(TypeDeclarationError, match="weight is"):
        op.reference(np.ones((8, 64)))
