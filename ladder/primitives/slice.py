"""``slice``: a box out of a tile. slice(start=(0, 0), extent=(16, 63)) : nf4[32, 63] -> nf4[16, 63]."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import ClassVar

from ladder.errors import ShapeError
from ladder.primitives.base import Array, Cost, NoInverse, moved
from ladder.ttile import Device, Tile


@dataclass(frozen=True, slots=True)
class Slice:
    """The elements ``start .. start+extent-1`` of every axis.

    Attributes:
        start: first element of each axis.
        extent: elements of each axis.

    Raises:
        ShapeError: start and extent differ in length, are negative or empty.
    """

    start: tuple[int, ...]
    extent: tuple[int, ...]
    name: ClassVar[str] = "slice"

    def __post_init__(self) -> None:
        if len(self.start) != len(self.extent):
            raise ShapeError(
                f"start has {len(self.start)} axes, extent {len(self.extent)}", at=self
            )
        if any(s < 0 for s in self.start) or any(e < 1 for e in self.extent):
            raise ShapeError("start must be at least 0 and extent at least 1", at=self)

    def result(self, tile: Tile) -> Tile:
        """The box.

        Raises:
            ShapeError: it has other axes than the tile, or ends outside it.
        """
        _check_axes(self, len(self.start), tile)
        for axis, (s, e, size) in enumerate(zip(self.start, self.extent, tile.shape, strict=True)):
            if s + e > size:
                raise ShapeError(
                    f"slice ends at {s + e} on axis {axis}, which has {size} elements",
                    at=f"{self} on {tile}",
                    hint="pad the tile first, or shorten the extent",
                )
        whole = self.extent == tile.shape
        return tile if whole else tile.with_(shape=self.extent, layout=None)

    def evaluate(self, array: Array) -> Array:
        """A view of the box."""
        return array[
            tuple(builtins.slice(s, s + e) for s, e in zip(self.start, self.extent, strict=True))
        ]

    def cost(self, tile: Tile, device: Device) -> Cost:  # noqa: ARG002 - the same on every device
        """A copy of the box."""
        return moved(self.result(tile))

    def inverse(self, tile: Tile) -> Slice | NoInverse:
        """Itself where it takes the whole tile; otherwise the elements outside are gone."""
        if self.extent == tile.shape:
            return self
        return NoInverse(f"{self} leaves {tile.elements - self.result(tile).elements} elements out")

    def __str__(self) -> str:
        return f"slice(start={self.start}, extent={self.extent})"


def _check_axes(primitive: object, axes: int, tile: Tile) -> None:
    if axes != tile.ndim:
        raise ShapeError(
            f"{axes} axes are given, the tile has {tile.ndim}",
            at=f"{primitive} on {tile}",
            hint="give one number for each axis",
        )
