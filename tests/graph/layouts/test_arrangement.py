"""Arrangements: views share memory, maps compose, inverse pairs cancel; agreement with NumPy and with the algebra over F2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import LayoutError
from ladder.graph.extent import symbol
from ladder.graph.layouts.arrangement import arranged, blocked, permuted, row_major
from ladder.ttile.layout import Layout

B, S = symbol("batch"), symbol("seq")
SWIZZLE = Layout.xor_swizzle("offset", 8, count=3, low=1, high=5)


@st.composite
def shapes(draw):
    return tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))


@st.composite
def arrangements(draw, shape):
    cut = []
    for extent in shape:
        first = draw(st.sampled_from([d for d in (1, 2, 3, extent) if extent % d == 0]))
        cut.append((extent // first, first))
    count = sum(map(len, cut))
    return arranged(tuple(cut), tuple(draw(st.permutations(range(count)))))


@st.composite
def reshapes(draw, shape):
    """Another shape of as many elements: neighbours joined, or an axis split."""
    target = list(shape)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(target) - 1))
        if draw(st.booleans()) and place + 1 < len(target):
            target[place : place + 2] = [target[place] * target[place + 1]]
        else:
            part = draw(st.sampled_from([d for d in (1, 2, 3) if target[place] % d == 0]))
            target[place : place + 1] = [target[place] // part, part]
    return tuple(target)


@given(st.data())
def test_memory_holds_each_element_once_and_gives_it_back(data):
    shape = data.draw(shapes())
    layout = data.draw(arrangements(shape))
    x = np.arange(math.prod(shape)).reshape(shape)
    flat = layout.store(x, {})
    assert sorted(flat.tolist()) == list(range(x.size))
    np.testing.assert_array_equal(layout.load(flat, {}), x)


@given(st.data())
def test_a_view_is_the_same_memory(data):
    shape = data.draw(shapes())
    layout = data.draw(arrangements(shape))
    x = np.arange(math.prod(shape)).reshape(shape)
    flat = layout.store(x, {})
    order = data.draw(st.permutations(range(len(shape))))
    np.testing.assert_array_equal(layout.transposed(order).load(flat, {}), x.transpose(order))
    target = data.draw(reshapes(shape))
    viewed = layout.reshaped(target)
    if viewed is not None:
        np.testing.assert_array_equal(viewed.load(flat, {}), x.reshape(target))
        assert viewed.shape == target


@given(st.data())
def test_what_is_turned_and_turned_back_is_equal_to_what_was(data):
    shape = data.draw(shapes())
    layout = data.draw(arrangements(shape))
    order = data.draw(st.permutations(range(len(shape))))
    back = [order.index(i) for i in range(len(order))]
    assert layout.transposed(order).transposed(back) == layout
    viewed = layout.reshaped(data.draw(reshapes(shape)))
    if viewed is not None:
        assert viewed.reshaped(shape) == layout


@given(st.data())
def test_row_major_has_every_reshape(data):
    shape = data.draw(shapes())
    target = data.draw(reshapes(shape))
    assert row_major(shape).reshaped(target) == row_major(target)


def test_to_heads_and_back_with_symbols():
    x = row_major((B, S, 32))
    heads = x.reshaped((B, S, 4, 8)).transposed((0, 2, 1, 3))
    assert str(heads) == "(a:batch c:seq b:4 d:8)"
    assert heads.whole_innermost(-1)
    assert not heads.whole_innermost(2)
    assert heads.transposed((0, 2, 1, 3)).reshaped((B, S, 32)) == x
    written = row_major((B, 4, S, 8)).transposed((0, 2, 1, 3)).reshaped((B, S, 32))
    assert str(written) == "(a:batch c0:4 b:seq c1:8)"
    assert row_major((B, S, 32)).reshaped((B * S, 32)) == row_major((B * S, 32))
    assert heads.reshaped((B, 4 * S, 8)) is None or not heads.reshaped((B, 4 * S, 8)).is_row_major


def test_what_has_no_view():
    assert row_major((B, 6)).reshaped((B, 4)) is None
    turned = permuted((4, 6), (1, 0))
    assert str(turned.reshaped((24,))) == "(a1:6 a0:4)"
    assert turned.reshaped((8, 3)) is not None, "6 is cut into 2 and 3"
    assert permuted((3, 4), (1, 0)).reshaped((6, 2)) is not None
    assert permuted((3, 5), (1, 0)).reshaped((5, 3)) is None


def test_extents_of_one_stand_anywhere():
    assert permuted((B, 1, 4), (1, 0, 2)) == row_major((B, 1, 4))
    assert row_major((1, 1)).whole_innermost(0)
    assert row_major((B, 1)).reshaped((B,)) == row_major((B,))


def test_tiles_and_swizzles_survive_views():
    tiled = blocked((64, 32), 16, 16, SWIZZLE)
    assert str(tiled) == "(a0:4 b0:2 a1:16 b1:16) swizzled"
    x = np.random.default_rng(0).normal(size=(64, 32))
    flat = tiled.store(x, {})
    for view, want in (
        (tiled.transposed((1, 0)), x.T),
        (tiled.reshaped((8, 8, 32)), x.reshape(8, 8, 32)),
        (tiled.reshaped((2048,)), x.reshape(-1)),
    ):
        np.testing.assert_array_equal(view.load(flat, {}), want)
    assert tiled.transposed((1, 0)).transposed((1, 0)) == tiled
    assert blocked((60, 32), 16, 16) is None
    assert blocked((S, 32), 16, 16) is None
    assert str(blocked((16 * S, 32), 16, 16)) == "(a0:seq b0:2 a1:16 b1:16)"


def test_a_swizzle_is_a_bijection_of_a_tile():
    with pytest.raises(LayoutError, match="a tile has 64"):
        blocked((64, 64), 8, 8, SWIZZLE)
    with pytest.raises(LayoutError, match="no order of 2 pieces"):
        arranged(((2,), (3,)), (0, 0))
    identity = Layout.identity((("offset", 8),))
    assert blocked((64, 64), 16, 16, identity) == blocked((64, 64), 16, 16)


def test_powers_of_two_agree_with_the_algebra_over_f2():
    """An arrangement of a power-of-two tensor is a layout; a transpose in front of it is a composition."""
    tiled = blocked((64, 32), 16, 16, SWIZZLE)
    by_bits = Layout.from_bits(
        (("row", 6), ("column", 5)),
        (("offset", 11),),
        {
            "offset": "column.0 column.1 column.2 column.3 row.0 row.1 row.2 row.3 column.4 row.4 row.5"
        },
    )
    swizzled = Layout.from_bits(
        (("offset", 11),),
        (("offset", 11),),
        {
            "offset": "offset.0 offset.1^offset.5 offset.2^offset.6 offset.3^offset.7 "
            + " ".join(f"offset.{i}" for i in range(4, 11))
        },
    )
    whole = by_bits >> swizzled
    rows, columns = np.arange(64)[:, None], np.arange(32)[None, :]
    places = whole.apply(row=rows, column=columns)["offset"]
    index = np.arange(2048).reshape(64, 32)
    flat = tiled.store(index, {})
    np.testing.assert_array_equal(flat[places], index)
    turn = Layout.from_bits(
        (("a", 5), ("b", 6)), (("row", 6), ("column", 5)),
        {"row": " ".join(f"b.{i}" for i in range(6)), "column": " ".join(f"a.{i}" for i in range(5))},
    )  # fmt: skip
    turned = (turn >> whole).apply(a=np.arange(32)[:, None], b=np.arange(64)[None, :])["offset"]
    np.testing.assert_array_equal(tiled.transposed((1, 0)).load(flat, {}), flat[turned])


def test_slices_keep_an_uncut_axis():
    x = row_major((B, S, 32))
    assert x.resized(2, 8) == row_major((B, S, 8))
    assert permuted((B, S, 4), (1, 0, 2)).resized(0, 1) == row_major((1, S, 4))
    heads = row_major((B, 4, S, 8)).transposed((0, 2, 1, 3)).reshaped((B, S, 32))
    assert heads.resized(2, 8) is None
    assert str(row_major((B, 1, 4)).resized(1, S)) == "(b:seq a:batch c:4)"
