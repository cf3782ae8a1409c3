"""``pad``: a border around a tile. pad(after=(0, 6)) : nf4[8, 10] -> nf4[8, 16]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladder.errors import ShapeError
from ladder.primitives.base import Array, Cost, Primitive
from ladder.primitives.map import Axes, Map
from ladder.primitives.slice import Slice
from ladder.ttile import Device, Tile


@dataclass(frozen=True, slots=True)
class Pad:
    """Elements of one value before and after every axis.

    Attributes:
        after: elements that are added behind each axis.
        before: elements in front of each axis; empty means none.
        value: what they hold: a code of the tile's type, or a number where the tile holds numbers.

    Raises:
        ShapeError: before and after differ in length, or are negative.
    """

    after: tuple[int, ...]
    before: tuple[int, ...] = ()
    value: float = 0
    name: ClassVar[str] = "pad"

    def __post_init__(self) -> None:
        if self.before and len(self.before) != len(self.after):
            raise ShapeError(
                f"before has {len(self.before)} axes, after {len(self.after)}", at=self
            )
        if min((*self.before, *self.after), default=0) < 0:
            raise ShapeError(
                "a border cannot be negative", at=self, hint="slice makes tiles smaller"
            )

    def _front(self) -> tuple[int, ...]:
        return self.before or (0,) * len(self.after)

    def result(self, tile: Tile) -> Tile:
        """The tile with its border.

        Raises:
            ShapeError: the border has other axes than the tile.
        """
        if len(self.after) != tile.ndim:
            raise ShapeError(
                f"{len(self.after)} axes are given, the tile has {tile.ndim}",
                at=f"{self} on {tile}",
                hint="give one number for each axis",
            )
        shape = tuple(
            b + size + a for b, size, a in zip(self._front(), tile.shape, self.after, strict=True)
        )
        return tile if shape == tile.shape else tile.with_(shape=shape, layout=None)

    def evaluate(self, array: Array) -> Array:
        """A new array with the border filled in."""
        border = tuple(zip(self._front(), self.after, strict=True))
        padded: Array = np.pad(array, border, constant_values=np.asarray(self.value, array.dtype))
        return padded

    def cost(self, tile: Tile, device: Device) -> Cost:  # noqa: ARG002 - the same on every device
        """The write of the border; the elements themselves move with the slice that brings them."""
        border = self.result(tile).nbytes - tile.nbytes
        return Cost("shared", border, (("lsu", float(-(-border // 16))),)) if border else Cost()

    def inverse(self, tile: Tile) -> Slice:
        """The slice that takes the border off."""
        return Slice(self._front(), tile.shape)

    def __str__(self) -> str:
        fields = [f"before={self.before}"] if any(self.before) else []
        fields.append(f"after={self.after}")
        fields += [f"value={self.value:g}"] if self.value else []
        return f"pad({', '.join(fields)})"


def pad_groups(
    shape: tuple[int, int], size: int, padded: int, value: float = 0
) -> tuple[Primitive, ...]:
    """Pad every group of ``size`` along K to ``padded``, as primitives for a tile [N, K].

    [N, K] -> pad -> [N, G*size] -> map -> [N, G, size] -> pad -> [N, G, padded] -> map -> [N, G*padded]; a short last
    group is first filled up. Steps that would change nothing are left out.

    Raises:
        ShapeError: ``padded`` is smaller than ``size``, or an extent is not positive.
    """
    n, k = shape
    if not 0 < size <= padded or min(shape) < 1:
        raise ShapeError(
            f"groups of {size} cannot be padded to {padded}",
            at=f"pad_groups({list(shape)})",
            hint="0 < size <= padded",
        )
    groups = -(-k // size)
    steps: list[Primitive] = []
    if groups * size != k:
        steps.append(Pad((0, groups * size - k), value=value))
    if padded != size:
        steps += [
            Map(Axes.reshape((n, groups * size), (n, groups, size))),
            Pad((0, 0, padded - size), value=value),
            Map(Axes.reshape((n, groups, padded), (n, groups * padded))),
        ]
    return tuple(steps)
