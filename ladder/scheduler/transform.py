"""ScheduleTransform: which primitives bring a tile from one level to the next (Ladder, OSDI'24, Algorithm 1).

Always slice; pad where the lower tile is no multiple of the higher one; convert where the types differ and this is
the placement that was chosen; map where the tile that the next layer reads has other innermost lines than the hint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.errors import ScheduleError, ShapeError
from ladder.primitives import Axes, Convert, Map, Pad, Primitive, Slice, Step, chain
from ladder.primitives.convert import element_of, has_codes
from ladder.scheduler.hint import Hint, device_hint
from ladder.ttile import Device, Instruction, Operand, Tile, type_bits, type_name
from ladder.ttile.tile import DType

#: where :func:`schedule_transform` can put the conversion of a weight
CONVERT_AT = ("shared", "register")

Start = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one operand from dram through shared memory into the registers of the core.

    Attributes:
        role: ``weight`` or ``activation``.
        tensor: the whole operand, [rows, k].
        shared: extents of its tile in shared memory.
        core: the instruction's operand tile.
        convert: level at which its type changes, ``shared`` or ``register``.
        load: instruction that reads shared memory, or None for plain loads.
        line: elements of one line in shared memory where tiles of the core are flattened into lines, or None.
        granularity: bytes that move as one.
    """

    role: str
    tensor: Tile
    shared: tuple[int, int]
    core: Tile
    convert: str
    load: Instruction | None
    line: int | None
    granularity: int

    def edge(self) -> Start:
        """First element of a tile that shows the padding, if any tile has some; otherwise of the first tile."""
        return _edge(self.tensor.shape, self.shared)

    def to_shared(self, start: Start | None = None) -> tuple[Step, ...]:
        """Steps of Transform-Load from dram to shared memory for the tile at ``start``."""
        at = self.edge() if start is None else start
        extent = tuple(
            min(s, size - a) for a, s, size in zip(at, self.shared, self.tensor.shape, strict=True)
        )
        border = tuple(s - e for s, e in zip(self.shared, extent, strict=True))
        steps: list[Primitive] = [Slice(at, extent)]
        if any(border):
            steps.append(Pad(border, value=_pad_value(self.tensor.dtype)))
        if self.convert == "shared":
            steps += self._conversion()
        if self.line is not None:
            steps.append(Map(self._flatten(self.shared, self.line)))
        return chain(self.tensor, *steps)

    def in_shared(self) -> Tile:
        """The tile as it lies in shared memory."""
        return self.to_shared()[-1].result.with_(granularity=self.granularity)

    def to_register(self, start: Start = (0, 0)) -> tuple[Step, ...]:
        """Steps from shared memory to the core for the core tile at ``start`` inside the shared tile."""
        rows, k = self.core.shape
        if self.line is None:
            steps: list[Primitive] = [Slice(start, (rows, k))]
        else:
            lines = rows * k // self.line
            at = (start[0] // rows, start[1] // k, 0, 0)
            flat = self._flatten((rows, k), self.line)
            steps = [Slice(at, (1, 1, lines, self.line)), Map(flat.inverse())]
        if self.convert == "register":
            steps += self._conversion()
        return chain(self.in_shared(), *steps)

    def _conversion(self) -> list[Primitive]:
        source, target = self.tensor.dtype, self.core.dtype
        # codes become numbers even where the hardware knows the type by the same name and nothing moves
        same = type_name(target) == type_name(source) and not has_codes(source)
        return [] if same else [Convert(source, target, self.convert)]

    def _flatten(self, shape: tuple[int, int], line: int) -> Axes:
        """Core tiles one after the other, each row-major in lines: the paper's ScheduleMap."""
        (rows, k), (r, c) = shape, self.core.shape
        return Axes(
            shape,
            (rows // r, r, k // c, c),
            (0, 2, 1, 3),
            (rows // r, k // c, r * c // line, line),
        )

    def __str__(self) -> str:
        via = f" by {self.load.name}" if self.load else ""
        lines = [f"load {self.role} dram -> shared"]
        lines += [f"  {step}" for step in self.to_shared()]
        lines.append(f"load {self.role} shared -> register{via}")
        lines += [f"  {step}" for step in self.to_register()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Transforms:
    """Transform-Load of both operands, Compute, Transform-Store: the result of Algorithm 1 for one matmul.

    Attributes:
        hint: what the device suggested.
        weight: the way of the weight.
        activation: the way of the activation.
        out: type of the output.
    """

    hint: Hint
    weight: Route
    activation: Route
    out: DType

    @property
    def accumulator(self) -> Tile:
        """What one compute instruction leaves, [rows of the weight, tokens]."""
        return self.hint.instruction.operand("accumulator").tile

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the output, [tokens, rows of the weight]."""
        return self.activation.tensor.shape[0], self.weight.tensor.shape[0]

    def to_dram(self, start: Start | None = None) -> tuple[Step, ...]:
        """Steps of Transform-Store for the output tile at ``start``: convert, turn to [tokens, rows], cut the edge."""
        rows, tokens = self.accumulator.shape
        at = _edge(self.shape, (tokens, rows)) if start is None else start
        extent = tuple(
            min(s, size - a) for a, s, size in zip(at, (tokens, rows), self.shape, strict=True)
        )
        steps: list[Primitive] = []
        if type_name(self.out) != type_name(self.accumulator.dtype):
            steps.append(Convert(self.accumulator.dtype, self.out, "register"))
        steps.append(Map(Axes.transpose((rows, tokens), (1, 0))))
        if extent != (tokens, rows):
            steps.append(Slice((0, 0), extent))
        return chain(self.accumulator, *steps)

    def run(self, activation: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
        """The schedule by its NumPy meaning, tile by tile: arrays of the operands' types to ``[tokens, rows]``.

        Raises:
            ShapeError: an array does not have its operand's shape.
        """
        for route, array in ((self.activation, activation), (self.weight, weight)):
            if array.shape != route.tensor.shape:
                raise ShapeError(
                    f"{route.role} is {list(array.shape)}, not {list(route.tensor.shape)}",
                    at="Transforms.run",
                )
        x, w = _core_tiles(self.activation, activation), _core_tiles(self.weight, weight)
        rows, tokens = self.accumulator.shape
        total = np.float64 if type_name(self.accumulator.dtype) == "float32" else np.int64
        result = None
        for m in range(0, self.shape[0], tokens):
            for n in range(0, self.shape[1], rows):
                sums = np.zeros((rows, tokens), total)
                for k in range(0, self.weight.tensor.shape[1], self.weight.core.shape[1]):
                    sums += w[n, k].astype(total) @ x[m, k].astype(total).T
                tile = sums
                if total is np.float64:
                    tile = sums.astype(np.float32)
                for step in self.to_dram((m, n)):
                    tile = step.evaluate(tile)
                if result is None:
                    result = np.empty(self.shape, tile.dtype)
                result[m : m + tile.shape[0], n : n + tile.shape[1]] = tile
        assert result is not None
        return result

    def __str__(self) -> str:
        name = self.hint.instruction.name
        lines = [
            str(self.hint),
            str(self.activation),
            str(self.weight),
            f"compute {name}",
            "store register -> dram",
            *(f"  {step}" for step in self.to_dram()),
        ]
        return "\n".join(lines)


def schedule_transform(
    activation: Tile,
    weight: Tile,
    out: DType,
    device: Device,
    *,
    convert: str = "shared",
    tiles: Mapping[str, tuple[int, int]] | None = None,
) -> Transforms:
    """Algorithm 1 for ``activation [M, K] x weight [N, K] -> [M, N]``: hint, tiles, transforms.

    Args:
        activation: the whole activation.
        weight: the whole weight; a grouped type counts by its element.
        out: type of the output.
        device: the device.
        convert: where the weight's type changes, ``shared`` or ``register``.
        tiles: extents of the tiles in shared memory by role; left out, the smallest that the hint allows.

    Raises:
        ScheduleError: the placement is unknown, or no instruction takes the types.
        ShapeError: the operands differ in K, or a tile is no multiple of the core's.
    """
    if convert not in CONVERT_AT:
        raise ScheduleError(
            f"no placement {convert!r}",
            at="schedule_transform",
            hint="one of " + ", ".join(CONVERT_AT),
        )
    if activation.shape[-1] != weight.shape[-1] or activation.ndim != 2 or weight.ndim != 2:
        raise ShapeError(
            f"{activation} and {weight} do not share K",
            at="schedule_transform",
            hint="activations are [M, K], weights [N, K]",
        )
    weight = weight.with_(dtype=element_of(weight.dtype))
    hint = device_hint(weight.dtype, activation.dtype, device)
    asked = dict(tiles or {})
    core = hint.instruction
    return Transforms(
        hint,
        _route(core.operand("weight"), weight, hint, device, asked, convert),
        _route(core.operand("activation"), activation, hint, device, asked, "shared"),
        out,
    )


def _route(
    operand: Operand,
    tensor: Tile,
    hint: Hint,
    device: Device,
    asked: Mapping[str, tuple[int, int]],
    convert: str,
) -> Route:
    rows, k = operand.tile.shape
    line = 8 * hint.line_bytes // type_bits(operand.tile.dtype)
    shared = asked.get(operand.role, (rows, math.lcm(k, line)))
    if shared[0] % rows or shared[1] % k:
        raise ShapeError(
            f"{list(shared)} is no multiple of {list(operand.tile.shape)}",
            at=f"shared tile of the {operand.role}",
        )
    load = _reader(operand.tile, device) if convert == "shared" else None
    # the core reads other lines than the hint's, and whole core tiles fill whole lines
    mapped = load is not None and operand.tile.inner_bits != 8 * hint.line_bytes
    fits = rows * k % line == 0
    return Route(
        operand.role,
        tensor,
        shared,
        operand.tile,
        convert,
        load,
        line if mapped and fits else None,
        hint.granularity,
    )


def _reader(core: Tile, device: Device) -> Instruction | None:
    """The load from shared memory to registers that brings exactly one core tile, if the device has one."""
    for load in device.instructions(kind="load"):
        source = load.operand("source")
        if source.level != "shared" or load.operand("target").level != "register":
            continue
        tile = source.tile
        if (
            core.inner_bits % tile.bits == 0
            and core.in_granules(tile.bits // 8).shape == tile.shape
        ):
            return load
    return None


def _edge(shape: tuple[int, ...], tile: tuple[int, int]) -> Start:
    rows, k = (
        size // extent * extent if size > extent and size % extent else 0
        for size, extent in zip(shape, tile, strict=True)
    )
    return rows, k


def _core_tiles(route: Route, array: NDArray[Any]) -> dict[Start, NDArray[Any]]:
    """Every core tile of an operand as the transforms deliver it, by its first element."""
    result: dict[Start, NDArray[Any]] = {}
    (rows, k), (height, width) = route.tensor.shape, route.shared
    for r in range(0, rows, height):
        for c in range(0, k, width):
            tile = array
            for step in route.to_shared((r, c)):
                tile = step.evaluate(tile)
            for i in range(0, height, route.core.shape[0]):
                for j in range(0, width, route.core.shape[1]):
                    part = tile
                    for step in route.to_register((i, j)):
                        part = step.evaluate(part)
                    result[r + i, c + j] = part
    return result


def _pad_value(dtype: DType) -> int:
    """The code of smallest magnitude, or the number zero."""
    return int(element_of(dtype).pad_code) if has_codes(dtype) else 0
