"""Buckets find what a binary search finds, for every shipped table and at every threshold."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.ttype import TType, types
from ladder.ttype.nearest import LARGE, Buckets, Nearest

NAMES = sorted(t.name for t in types.values() if isinstance(t, TType) and t.bits <= 8)


def hard_inputs(nearest: Nearest) -> np.ndarray:
    """Thresholds and values with their neighbours, zeros of both signs, ends of the range, and numbers of all sizes."""
    points = np.concatenate([nearest.thresholds, nearest.values[np.isfinite(nearest.values)]])
    with np.errstate(over="ignore"):
        points = np.concatenate(
            [points, np.nextafter(points, -np.inf), np.nextafter(points, np.inf)]
        )
    edges = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, -(2.0**-1022), np.inf, -np.inf, 1e308, -1e308]
    rng = np.random.default_rng(0)
    sizes = np.exp2(rng.uniform(-30, 20, 2000)) * rng.choice([-1.0, 1.0], 2000)
    return np.concatenate([points, edges, sizes, rng.normal(size=2000)])


@pytest.mark.parametrize("name", NAMES)
def test_buckets_agree_with_the_search(name):
    nearest = Nearest.of(types[name].values)
    buckets = Buckets.of(nearest)
    assert buckets is not None
    inputs = hard_inputs(nearest)
    np.testing.assert_array_equal(buckets.encode(inputs), nearest.search(inputs))


def test_large_arrays_take_buckets_and_keep_their_shape(monkeypatch):
    nearest = Nearest.of(types["nf4"].values)
    inputs = np.random.default_rng(1).normal(size=(257, 256))
    assert inputs.size >= LARGE
    want = nearest.search(inputs)
    monkeypatch.setattr(Nearest, "search", None)
    np.testing.assert_array_equal(nearest.encode(inputs[:, ::-1]), want[:, ::-1])


def test_thresholds_that_lie_too_close_are_searched():
    nearest = Nearest.of(np.array([0.0, 1.0, 1.0001, 1.0002]))
    assert Buckets.of(nearest) is None
    inputs = np.random.default_rng(2).choice([0.2, 1.0, 1.00008, 1.5], LARGE)
    np.testing.assert_array_equal(nearest.encode(inputs), nearest.search(inputs))
