"""What the four primitives share: their protocol, their cost, a step on a known tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from ladder.ttile import Device, Tile

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes.

    Attributes:
        level: memory level whose bytes are counted.
        nbytes: bytes read and written there.
        instructions: ``(pipe, lane instructions)``, sorted by pipe.
    """

    level: str = "shared"
    nbytes: int = 0
    instructions: tuple[tuple[str, float], ...] = ()

    def seconds(self, device: Device) -> float:
        """Time on the whole device when nothing else runs: the slowest of memory and pipes."""
        memory = self.nbytes / device.level(self.level).bytes_per_second
        return (
            max(
                memory, *(count / device.pipe_per_second(pipe) for pipe, count in self.instructions)
            )
            if self.instructions
            else memory
        )

    def __str__(self) -> str:
        pipes = "".join(f", {count:g} {pipe}" for pipe, count in self.instructions)
        return f"{self.nbytes} B in {self.level}{pipes}"


@dataclass(frozen=True, slots=True)
class NoInverse:
    """Why a primitive cannot be undone. It is false in a condition."""

    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"no inverse: {self.reason}"


class Primitive(Protocol):
    """A transformation of a tile, as a frozen value."""

    name: ClassVar[str]

    def result(self, tile: Tile) -> Tile:
        """The tile that leaves; raises ShapeError where the tile does not fit."""

    def evaluate(self, array: Array) -> Array:
        """The meaning: array of the tile's shape in, array of the result's shape out."""

    def cost(self, tile: Tile, device: Device) -> Cost:
        """What the step takes on a device."""

    def inverse(self, tile: Tile) -> Primitive | NoInverse:
        """The primitive that brings ``result(tile)`` back to ``tile``, or why there is none."""


@dataclass(frozen=True, slots=True)
class Step:
    """A primitive on a known tile; prints as ``pad(after=(0, 6)) : nf4[8, 10] -> nf4[8, 16]``."""

    primitive: Primitive
    source: Tile

    def __post_init__(self) -> None:
        # refuses a tile that does not fit where the step is made, not where it is used
        self.primitive.result(self.source)

    @property
    def result(self) -> Tile:
        """The tile that leaves."""
        return self.primitive.result(self.source)

    def evaluate(self, array: Array) -> Array:
        """The primitive's meaning."""
        return self.primitive.evaluate(array)

    def cost(self, device: Device) -> Cost:
        """What the step takes on a device."""
        return self.primitive.cost(self.source, device)

    def inverse(self) -> Step | NoInverse:
        """The step back, or why there is none."""
        back = self.primitive.inverse(self.source)
        return back if isinstance(back, NoInverse) else Step(back, self.result)

    def __str__(self) -> str:
        return f"{self.primitive} : {self.source} -> {self.result}"


def chain(tile: Tile, *primitives: Primitive) -> tuple[Step, ...]:
    """Primitives one after the other on a tile."""
    steps = []
    for primitive in primitives:
        steps.append(Step(primitive, tile))
        tile = steps[-1].result
    return tuple(steps)


def moved(tile: Tile, level: str = "shared", *, granule: int = 16) -> Cost:
    """Reading and writing a tile once in granules of 16 bytes: the cost of a pure copy."""
    accesses = -(-tile.nbytes // granule)
    return Cost(level, 2 * tile.nbytes, (("lsu", 2.0 * accesses),))
