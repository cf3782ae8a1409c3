from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError
from ladder.primitives import NoInverse, Slice, Step
from ladder.ttile import Layout, Tile


@given(st.data())
def test_a_slice_takes_the_elements_of_its_box(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    start = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    extent = tuple(
        data.draw(st.integers(1, size - s)) for size, s in zip(shape, start, strict=True)
    )
    array = np.arange(np.prod(shape)).reshape(shape)
    step = Step(Slice(start, extent), Tile(shape, "float16"))
    taken = step.evaluate(array)
    assert taken.shape == step.result.shape == extent
    for index in np.ndindex(*extent):
        source = tuple(i + s for i, s in zip(index, start, strict=True))
        assert taken[index] == array[source]


def test_the_line_that_a_slice_prints() -> None:
    step = Step(Slice((0, 0), (16, 63)), Tile((32, 63), "int8"))
    assert str(step) == "slice(start=(0, 0), extent=(16, 63)) : int8[32, 63] -> int8[16, 63]"


def test_only_a_slice_of_everything_can_be_undone() -> None:
    tile = Tile((4, 4), "int8")
    assert Slice((0, 0), (4, 4)).inverse(tile) == Slice((0, 0), (4, 4))
    lost = Slice((0, 1), (4, 3)).inverse(tile)
    assert isinstance(lost, NoInverse)
    assert not lost
    assert str(lost) == "no inverse: slice(start=(0, 1), extent=(4, 3)) leaves 4 elements out"


def test_a_part_has_no_layout_of_its_own() -> None:
    tile = Tile((4, 4), "int8", Layout.identity((("row", 2), ("column", 2))))
    assert Slice((0, 0), (4, 4)).result(tile) == tile
    assert Slice((0, 0), (2, 4)).result(tile).layout is None


def test_a_slice_reads_and_writes_what_it_takes() -> None:
    cost = Slice((0, 0), (16, 64)).cost(Tile((32, 64), "float16"), device=None)  # type: ignore[arg-type]
    assert (cost.nbytes, dict(cost.instructions)) == (2 * 2048, {"lsu": 2 * 128})


def test_a_slice_beyond_the_end_says_axis_and_size() -> None:
    with pytest.raises(ShapeError) as caught:
        Step(Slice((0, 4), (8, 16)), Tile((8, 16), "int8"))
    assert str(caught.value) == (
        "slice ends at 20 on axis 1, which has 16 elements\n"
        "  at: slice(start=(0, 4), extent=(8, 16)) on int8[8, 16]\n"
        "  hint: pad the tile first, or shorten the extent"
    )


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Slice((0,), (1, 1)), "start has 1 axes, extent 2"),
        (lambda: Slice((-1,), (1,)), "at least 0"),
        (lambda: Slice((0,), (0,)), "at least 1"),
        (
            lambda: Slice((0,), (1,)).result(Tile((2, 2), "int8")),
            "1 axes are given, the tile has 2",
        ),
    ],
)
def test_nonsense_is_refused(build: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build()  # type: ignore[operator]
