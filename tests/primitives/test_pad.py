from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError
from ladder.primitives import Pad, Slice, Step, chain, pad_groups
from ladder.ttile import Tile

borders = st.integers(0, 3)


@given(st.data(), st.integers(0, 15))
def test_slice_undoes_pad(data: st.DataObject, value: int) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    before, after = (tuple(data.draw(borders) for _ in shape) for _ in range(2))
    array = np.random.default_rng(0).integers(0, 16, shape).astype(np.uint8)
    step = Step(Pad(after, before, value), Tile(shape, "uint8"))
    padded = step.evaluate(array)
    assert padded.shape == step.result.shape
    back = step.inverse()
    assert isinstance(back, Step)
    assert isinstance(back.primitive, Slice)
    assert back.result == step.source
    assert np.array_equal(back.evaluate(padded), array)
    border = np.ones(padded.shape, bool)
    back.evaluate(border)[...] = False
    assert np.all(padded[border] == value)
    assert padded.dtype == array.dtype


def test_the_line_that_a_pad_prints() -> None:
    assert (
        str(Step(Pad((0, 6)), Tile((8, 10), "int8")))
        == "pad(after=(0, 6)) : int8[8, 10] -> int8[8, 16]"
    )
    assert str(Pad((1,), (2,), 7)) == "pad(before=(2,), after=(1,), value=7)"


@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 12), st.integers(0, 8))
def test_padded_groups_against_a_loop_over_groups(n: int, k: int, size: int, more: int) -> None:
    padded = size + more
    array = np.random.default_rng(1).integers(0, 9, (n, k)).astype(np.uint8)
    steps = chain(Tile((n, k), "uint8"), *pad_groups((n, k), size, padded, value=9))
    got = array
    for step in steps:
        got = step.evaluate(got)
    groups = -(-k // size)
    expected = np.full((n, groups * padded), 9, np.uint8)
    for g in range(groups):
        part = array[:, g * size : (g + 1) * size]
        expected[:, g * padded : g * padded + part.shape[1]] = part
    assert np.array_equal(got, expected)
    for step in reversed(steps):
        back = step.inverse()
        assert isinstance(back, Step)
        got = back.evaluate(got)
    assert np.array_equal(got, array)


def test_groups_that_fit_need_no_step() -> None:
    assert pad_groups((4, 64), 32, 32) == ()
    assert [str(p) for p in pad_groups((4, 60), 32, 32)] == ["pad(after=(0, 4))"]


def test_padding_costs_the_write_of_the_border_alone() -> None:
    tile = Tile((16, 63), "float16")
    cost = Pad((0, 1)).cost(tile, device=None)  # type: ignore[arg-type]
    assert (cost.nbytes, dict(cost.instructions)) == (32, {"lsu": 2.0})
    assert Pad((0, 0)).cost(tile, device=None).nbytes == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Pad((1, 1), (1,)), "before has 1 axes, after 2"),
        (lambda: Pad((-1,)), "cannot be negative"),
        (lambda: Pad((1,)).result(Tile((2, 2), "int8")), "1 axes are given, the tile has 2"),
        (lambda: pad_groups((1, 8), 8, 4), "groups of 8 cannot be padded to 4"),
        (lambda: pad_groups((1, 8), 0, 4), "groups of 0 cannot be padded to 4"),
    ],
)
def test_nonsense_is_refused(build: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build()  # type: ignore[operator]
