"""Views as arrangements there and back, and the gaps of slices, beside what NumPy makes of the same memory."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ladder.graph.layouts.arrangement import permuted
from ladder.graph.layouts.views import broken, gaps, pulled, viewed
from ladder.graph.operators import Slice
from tests.graph.layouts.conftest import Build

SHAPE = (4, 6, 8)
ORDERS = list(permutations(range(3)))


def view_of(make):
    b = Build()
    graph = b.done(make(b, b.x(*SHAPE)))
    (node,) = graph.nodes
    return node


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stored", ORDERS)
def test_what_is_pulled_through_a_view_is_seen_through_it(order, stored):
    """C51: also orders of three axes, which are not their own inverse."""
    views = (
        view_of(lambda b, x: b.turn(x, *order)),
        view_of(lambda b, x: b.shape(x, 4, 2, 3, 8)),
        view_of(lambda b, x: b.add(Slice(1, 0, 3), (x,), "cut")),
    )
    source = permuted(SHAPE, stored)
    for node in views:
        result = viewed(node, source)
        assert result is not None
        assert result.shape == node.type.shape
        assert pulled(node, result, SHAPE) == source


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("order", ORDERS)
def test_a_reshape_that_joins_across_the_gap_of_a_slice_has_no_view(axis, order):
    """C51: the gap goes with its axis through a transpose; whether a view is left is what NumPy finds in memory."""
    whole = np.zeros(SHAPE)
    half = SHAPE[axis] // 2
    turned = whole[(slice(None),) * axis + (slice(0, half),)].transpose(order)
    for place in range(2):
        extents = turned.shape
        joined = (*extents[:place], extents[place] * extents[place + 1], *extents[place + 2 :])
        b = Build()
        cut = b.add(Slice(axis, 0, half), (b.x(*SHAPE),), "cut")
        graph = b.done(b.shape(b.turn(cut, *order), *joined))
        assert gaps(graph)["turn"] == {order.index(axis)}
        if order[place] + 1 == order[place + 1]:  # neighbours in memory, but for the gap
            has_view = np.shares_memory(turned, turned.reshape(joined))
            assert bool(broken(graph)) != has_view
