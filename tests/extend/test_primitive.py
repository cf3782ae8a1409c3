"""A primitive from outside the package stands in a chain of steps beside the four, and owes the same laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladder
from ladder.errors import ShapeError
from ladder.primitives import PRIMITIVES, Cost, Map, Pad, Primitive, Slice, chain
from ladder.primitives.map import Axes
from ladder.ttile import Device, Tile

INT4 = ladder.types["int4"]
H200 = ladder.devices["h200"]


@dataclass(frozen=True, slots=True)
class Roll:
    """Elements move ``by`` places along ``axis`` and come in again at the other end."""

    axis: int
    by: int
    name: ClassVar[str] = "roll"

    def result(self, tile: Tile) -> Tile:
        if not 0 <= self.axis < tile.ndim:
            raise ShapeError(f"no axis {self.axis}", at=f"{self} on {tile}")
        return tile

    def evaluate(self, array: np.ndarray) -> np.ndarray:
        return np.roll(array, self.by, self.axis)

    def cost(self, tile: Tile, device: Device) -> Cost:
        return Cost("shared", 2 * tile.nbytes, (("lsu", tile.nbytes / 8),))

    def inverse(self, tile: Tile) -> Roll:
        return Roll(self.axis, -self.by)

    def __str__(self) -> str:
        return f"roll(axis={self.axis}, by={self.by})"


shapes = st.tuples(st.integers(1, 9), st.integers(1, 9))


def test_it_is_none_of_those_shipped() -> None:
    assert Roll not in PRIMITIVES
    assert "roll" not in {kind.name for kind in PRIMITIVES}


@given(shapes, st.integers(0, 1), st.integers(-20, 20))
def test_the_inverse_undoes_it(shape: tuple[int, int], axis: int, by: int) -> None:
    codes = np.random.default_rng(0).integers(0, 16, shape).astype(np.uint8)
    (step,) = chain(Tile(shape, INT4), Roll(axis, by))
    moved = step.evaluate(codes)
    assert moved.shape == step.result.shape
    assert np.array_equal(step.inverse().evaluate(moved), codes)


@given(shapes, st.integers(0, 8))
def test_it_composes_with_the_four(shape: tuple[int, int], by: int) -> None:
    """A roll to the right is a pad in front whose overhang comes back: the same as a slice of the doubled tile."""
    rows, columns = shape
    codes = np.random.default_rng(1).integers(0, 16, shape).astype(np.uint8)
    steps: tuple[Primitive, ...] = (
        Pad((0, 2)),
        Roll(1, by % (columns + 2)),
        Map(Axes.transpose((rows, columns + 2), (1, 0))),
        Slice((0, 0), (1, rows)),
    )
    value = codes
    for step in chain(Tile(shape, INT4), *steps):
        value = step.evaluate(value)
        assert value.shape == step.result.shape
    first = (-by) % (columns + 2)
    expected = codes[:, first] if first < columns else np.zeros(rows, np.uint8)
    assert np.array_equal(value[0], expected)


def test_it_prints_and_is_priced_like_the_others() -> None:
    (step,) = chain(Tile((4, 8), INT4), Roll(1, 2))
    assert str(step) == "roll(axis=1, by=2) : int4[4, 8] -> int4[4, 8]"
    assert step.cost(H200).seconds(H200) > 0


def test_a_tile_that_does_not_fit_is_refused_where_the_step_is_made() -> None:
    with pytest.raises(ShapeError, match="no axis 2"):
        chain(Tile((4, 8), INT4), Roll(2, 1))
