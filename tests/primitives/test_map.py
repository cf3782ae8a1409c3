from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import LayoutError, ShapeError
from ladder.primitives import Axes, Map, Step
from ladder.ttile import Layout, Tile, fragments


@st.composite
def axes(draw: st.DrawFn) -> Axes:
    """A reshape into factors, an order, and a reshape that joins two neighbours."""
    view = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    order = tuple(draw(st.permutations(range(len(view)))))
    turned = [view[i] for i in order]
    source = (view[0] * view[1], *view[2:])
    target = (*turned[:-2], turned[-2] * turned[-1])
    return Axes(source, view, order, target)


@given(axes())
def test_axes_against_an_index_by_index_copy(places: Axes) -> None:
    array = np.arange(math.prod(places.source)).reshape(places.source)
    got = Map(places).evaluate(array)
    expected = np.empty([places.view[i] for i in places.order], array.dtype)
    for index in np.ndindex(*places.view):
        expected[tuple(index[i] for i in places.order)] = array.flat[
            np.ravel_multi_index(index, places.view)
        ]
    assert np.array_equal(got, expected.reshape(places.target))


@given(axes())
def test_the_inverse_of_axes_brings_everything_back(places: Axes) -> None:
    step = Step(Map(places), Tile(places.source, "int8"))
    array = np.arange(math.prod(places.source)).reshape(places.source)
    back = step.inverse()
    assert isinstance(back, Step)
    assert back.result == step.source
    assert np.array_equal(back.evaluate(step.evaluate(array)), array)


def test_a_layout_puts_each_element_where_it_says() -> None:
    """An A fragment [row, k] as (register, lane, half): what a packing does to an atom of 16 bits."""
    fragment = fragments.MMA_M16N8K16_A.layout
    step = Step(Map(fragment.inverse()), Tile((16, 16), "float16"))
    array = np.arange(256).reshape(16, 16)
    held = step.evaluate(array)
    assert held.shape == step.result.shape == (4, 32, 2)
    for register, lane, half in np.ndindex(4, 32, 2):
        place = fragment.apply(register=register, lane=lane, half=half)
        assert held[register, lane, half] == array[place["row"], place["k"]]
    back = step.inverse()
    assert isinstance(back, Step)
    assert np.array_equal(back.evaluate(held), array)


def test_the_lines_that_maps_print() -> None:
    flat = Axes((16, 64), (1, 16, 4, 16), (0, 2, 1, 3), (1, 4, 4, 64))
    tile = Tile((16, 64), "float16")
    assert (
        str(Step(Map(flat), tile))
        == "map(a:1 b:16 c:4 d:16 -> a c b d) : float16[16, 64] -> float16[1, 4, 4, 64]"
    )
    assert str(Map(Axes.reshape((4, 6), (4, 2, 3)))) == "map(reshape 4x2x3)"
    assert str(Map(fragments.MMA_M16N8_C.layout)) == "map(register lane -> row column)"


def test_keeping_the_order_is_free() -> None:
    tile = Tile((4, 6), "float16")
    device: object = None
    assert Map(Axes.reshape((4, 6), (24,))).cost(tile, device).nbytes == 0  # type: ignore[arg-type]
    assert Map(Axes.transpose((4, 6), (1, 0))).cost(tile, device).nbytes == 96  # type: ignore[arg-type]
    square = Tile((4, 4), "float16")
    still = Layout.row_major((("row", 2), ("column", 2)))
    assert Map(still).cost(square, device).nbytes == 0  # type: ignore[arg-type]
    swizzle = Layout.xor_swizzle("i", 4, count=2, low=0, high=2).as_(ins=still.ins, outs=still.ins)
    assert Map(swizzle).cost(square, device).nbytes == 64  # type: ignore[arg-type]


def test_only_bijections_are_maps() -> None:
    with pytest.raises(LayoutError, match="a map needs a bijection"):
        Map(Layout((("a", 1),), (("b", 1),), (0,)))


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Axes((4,), (2, 3), (0, 1), (6,)), "differ in elements"),
        (lambda: Axes((6,), (2, 3), (0, 0), (6,)), "is no order of 2 axes"),
        (
            lambda: Map(Axes.reshape((4,), (2, 2))).result(Tile((2, 2), "int8")),
            r"the map reads \[4\], the tile is \[2, 2\]",
        ),
    ],
)
def test_nonsense_is_refused(build: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build()  # type: ignore[operator]
