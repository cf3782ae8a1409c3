"""``map``: a bijection of places. map(a b c d -> a c b d) : float16[16, 64] -> float16[1, 4, 4, 64]."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladder.errors import LayoutError, ShapeError
from ladder.primitives.base import Array, Cost, moved
from ladder.ttile import Device, Layout, Tile


@dataclass(frozen=True, slots=True)
class Axes:
    """A bijection that any extents allow: cut axes, put them into another order, join them.

    Attributes:
        source: shape before.
        view: the same elements with axes cut further; its axes are named a, b, c, ...
        order: which axis of the view comes first, second, ...
        target: shape after.

    Raises:
        ShapeError: the element counts differ, or ``order`` is no permutation.
    """

    source: tuple[int, ...]
    view: tuple[int, ...]
    order: tuple[int, ...]
    target: tuple[int, ...]

    def __post_init__(self) -> None:
        if len({math.prod(shape) for shape in (self.source, self.view, self.target)}) != 1:
            raise ShapeError(
                f"{list(self.source)}, {list(self.view)} and {list(self.target)} "
                "differ in elements",
                at=self,
            )
        if sorted(self.order) != list(range(len(self.view))):
            raise ShapeError(f"{self.order} is no order of {len(self.view)} axes", at=self)

    @classmethod
    def reshape(cls, source: tuple[int, ...], target: tuple[int, ...]) -> Axes:
        """The same elements in the same order, other axes."""
        return cls(source, source, tuple(range(len(source))), target)

    @classmethod
    def transpose(cls, source: tuple[int, ...], order: tuple[int, ...]) -> Axes:
        """Axes in another order."""
        return cls(source, source, order, tuple(source[i] for i in order))

    def evaluate(self, array: Array) -> Array:
        """The rearranged array."""
        result: Array = array.reshape(self.view).transpose(self.order).reshape(self.target)
        return result

    def inverse(self) -> Axes:
        """The map back."""
        turned = tuple(self.view[i] for i in self.order)
        back = tuple(self.order.index(i) for i in range(len(self.order)))
        return Axes(self.target, turned, back, self.source)

    def __str__(self) -> str:
        if self.order == tuple(range(len(self.order))):
            return f"reshape {'x'.join(map(str, self.target))}"
        names = string.ascii_lowercase
        cut = " ".join(f"{names[i]}:{size}" for i, size in enumerate(self.view))
        return f"{cut} -> {' '.join(names[i] for i in self.order)}"


@dataclass(frozen=True, slots=True)
class Map:
    """Every element to another place; no value changes.

    Attributes:
        places: a bijective :class:`Layout` from the tile's coordinates, outermost first, to those of the result,
            or :class:`Axes` for extents that are no powers of two.

    Raises:
        LayoutError: the layout is no bijection.
    """

    places: Layout | Axes
    name: ClassVar[str] = "map"

    def __post_init__(self) -> None:
        if isinstance(self.places, Layout) and not self.places.is_bijective:
            raise LayoutError("a map needs a bijection", at=self.places)

    @property
    def source(self) -> tuple[int, ...]:
        """Shape before."""
        return self.places.source if isinstance(self.places, Axes) else _extents(self.places.ins)

    @property
    def target(self) -> tuple[int, ...]:
        """Shape after."""
        return self.places.target if isinstance(self.places, Axes) else _extents(self.places.outs)

    def result(self, tile: Tile) -> Tile:
        """The tile in its new shape.

        Raises:
            ShapeError: the tile does not have the shape that the map reads.
        """
        if tile.shape != self.source:
            raise ShapeError(
                f"the map reads {list(self.source)}, the tile is {list(tile.shape)}",
                at=f"{self} on {tile}",
                hint="slice or pad the tile to that shape first",
            )
        return tile.with_(shape=self.target, layout=None)

    def evaluate(self, array: Array) -> Array:
        """The rearranged array: a view where NumPy can, otherwise a copy."""
        if isinstance(self.places, Axes):
            return self.places.evaluate(array)
        moved_to = self.places.points()
        result: Array = np.empty(array.size, dtype=array.dtype)
        result[moved_to] = array.reshape(-1)
        return result.reshape(self.target)

    def cost(self, tile: Tile, device: Device) -> Cost:  # noqa: ARG002 - the same on every device
        """A copy; nothing where the elements keep their order."""
        if isinstance(self.places, Axes):
            still = self.places.order == tuple(range(len(self.places.order)))
        else:
            still = self.places.basis == tuple(1 << i for i in range(self.places.in_bits))
        return Cost() if still else moved(tile)

    def inverse(self, tile: Tile) -> Map:  # noqa: ARG002 - a bijection on every tile
        """The map back."""
        return Map(self.places.inverse())

    def __str__(self) -> str:
        if isinstance(self.places, Axes):
            return f"map({self.places})"
        names = [" ".join(n for n, _ in side) for side in (self.places.ins, self.places.outs)]
        return f"map({names[0]} -> {names[1]})"


def _extents(coordinates: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    return tuple(1 << bits for _, bits in coordinates)
