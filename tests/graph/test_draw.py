"""Random activations: of the operator's type, all of its range, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.graph.draw import activations, row_scales
from ladder.graph.matmul import matmul


@pytest.mark.parametrize("activation", ["float16", "bfloat16", "int8", "fp8_e4m3fn", "fp8_e5m2"])
def test_activations_are_of_the_operators_type(activation):
    op = matmul(None, 8, 4096, activation=activation, weight="uint1")
    x = activations(op, np.random.default_rng(0), 64)
    assert x.shape == (64, 4096)
    assert x.dtype == op.activation.dtype
    again = activations(op, np.random.default_rng(0), 64)
    assert np.array_equal(x.view(np.uint8), again.view(np.uint8))
    wide = x.astype(np.float64)
    assert abs(wide.mean()) < 0.02 * wide.std()


def test_int8_activations_reach_both_ends():
    op = matmul(None, 8, 4096, activation="int8", weight="int4")
    x = activations(op, np.random.default_rng(0), 64)
    assert (x.min(), x.max()) == (-128, 127)
    assert np.mean(np.abs(x.astype(int)) >= 127) < 1e-3


def test_activations_of_4_bits_use_their_range():
    """Two in a thousand lie at the ends; those without a sign are magnitudes."""
    for activation, ends in (("int4", (-8, 7)), ("uint4", (0, 15))):
        op = matmul(None, 8, 4096, activation=activation, weight="int4")
        x = activations(op, np.random.default_rng(0), 64).astype(np.int64)
        assert (x.min(), x.max()) == ends
        assert np.mean(x == ends[1]) < 2e-3


def test_row_scales_are_drawn_where_they_are_declared():
    op = matmul(None, 8, 64, activation="int8", weight="int4", activation_scale=True)
    scales = row_scales(op, np.random.default_rng(0), 5)
    assert scales.shape == (5,)
    assert scales.dtype == np.float32
    assert 0.5 <= scales.min() < scales.max() <= 2
    plain = matmul(None, 8, 64, activation="int8", weight="int4")
    assert row_scales(plain, np.random.default_rng(0), 5) is None
