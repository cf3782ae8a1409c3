"""GetDeviceHint: compute type, granularity and line shape that a device suggests (Ladder, OSDI'24, Algorithm 1).

The paper takes the hardware type that is bit-nearest to the operand. Here it is the bit-nearest one *among those that
hold the weight and that the activation can meet*: a type that would overflow is refused, one that would round is taken
only where none is exact, and is marked. Every layer's tile is then written in one granularity, the LCM of all, and
the layers get one shape: the innermost extent is the LCM of the innermost extents, the number of granules the LCM of
the numbers of granules. (The paper leaves the rule for several axes open; this one gives its [4, 8] on A100.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ladder.errors import ScheduleError
from ladder.primitives import fidelity
from ladder.ttile import Device, Granule, Instruction, Tile, type_bits, type_name
from ladder.ttile.tile import DType


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was not taken, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LayerTile:
    """What one layer moves at once: as the device states it, and in granules of the hint."""

    layer: str
    tile: Tile
    granules: Tile

    def __str__(self) -> str:
        return f"{self.layer}: {self.tile} = {self.granules}"


@dataclass(frozen=True, slots=True)
class Hint:
    """What the device suggests for a pair of operand types.

    Attributes:
        weight: type of the weight.
        activation: type of the activation.
        instruction: the compute instruction whose operand types were chosen.
        rounds: whether that type holds the weight only rounded.
        layers: tiles of the layers, core first.
        granularity: bytes that move as one.
        shape: extents of every layer's tile in granules, outermost first.
        rejected: the other operand types.
    """

    weight: DType
    activation: DType
    instruction: Instruction
    rounds: bool
    layers: tuple[LayerTile, ...]
    granularity: int
    shape: tuple[int, ...]
    rejected: tuple[Rejected, ...]

    @property
    def tile(self) -> Tile:
        """The tile that every layer is given."""
        return Tile(self.shape, Granule(self.granularity))

    @property
    def line_bytes(self) -> int:
        """Bytes of one innermost line."""
        return self.granularity * self.shape[-1]

    def __str__(self) -> str:
        rounded = ", rounded" if self.rounds else ""
        types = f"{type_name(self.weight)} x {type_name(self.activation)}"
        lines = [
            f"compute: {self.instruction.name} for {types}{rounded}",
            *(f"  not {rejected}" for rejected in self.rejected),
            f"granularity: {self.granularity} B",
            *(f"  {layer}" for layer in self.layers),
            f"shape: {list(self.shape)} of {self.granularity} B ({self.line_bytes} B inner)",
        ]
        return "\n".join(lines)


def device_hint(weight: DType, activation: DType, device: Device) -> Hint:
    """The hint of a device for a weight and an activation type.

    Raises:
        ScheduleError: no operand types of the device hold both; the hint of the error lists the reasons.
    """
    instruction, rounds, rejected = _nearest(weight, activation, device)
    tiles = [
        *((f"core {o.role}", o.tile) for o in instruction.operands if o.role != "accumulator"),
        *((level.name, level.transaction) for level in reversed(device.levels)),
    ]
    granularity = math.lcm(*(max(1, tile.bits // 8) for _, tile in tiles))
    layers = tuple(LayerTile(name, tile, tile.in_granules(granularity)) for name, tile in tiles)
    inner = math.lcm(*(layer.granules.shape[-1] for layer in layers))
    size = math.lcm(inner, *(layer.granules.elements for layer in layers))
    return Hint(
        weight,
        activation,
        instruction,
        rounds,
        layers,
        granularity,
        (size // inner, inner),
        rejected,
    )


def _nearest(
    weight: DType, activation: DType, device: Device
) -> tuple[Instruction, bool, tuple[Rejected, ...]]:
    """First instruction of the bit-nearest operand types, whether it rounds the weight, the types refused."""
    first: dict[str, Instruction] = {}
    for instruction in device.instructions(kind="compute"):
        first.setdefault(_types(instruction), instruction)
    legal: list[tuple[bool, int, str]] = []
    rejected: list[Rejected] = []
    for name, instruction in first.items():
        reason, rounds = _refusal(weight, activation, instruction)
        if reason:
            rejected.append(Rejected(name, reason))
            continue
        distance = type_bits(instruction.operand("weight").tile.dtype) - type_bits(weight)
        legal.append((rounds, abs(distance), name))
    if not legal:
        raise ScheduleError(
            f"no instruction takes {type_name(weight)} weights with {type_name(activation)} "
            "activations",
            at=f"device {device.name}",
            hint="; ".join(str(r) for r in rejected) or "the device lists no compute instruction",
        )
    legal.sort(key=lambda candidate: candidate[:2])
    (rounds, best_distance, best), *others = legal
    rejected += [
        Rejected(name, "rounds the weight, another type holds it")
        if worse and not rounds
        else Rejected(name, f"{distance} bits away, not {best_distance}")
        if distance != best_distance
        else Rejected(name, f"as near as {best}, which the device lists first")
        for worse, distance, name in others
    ]
    return first[best], rounds, tuple(rejected)


def _types(instruction: Instruction) -> str:
    return f"{instruction.type_of('weight')} x {instruction.type_of('activation')}"


def _refusal(weight: DType, activation: DType, instruction: Instruction) -> tuple[str, bool]:
    """Why the operand types do not do (empty if they do), and whether they round the weight."""
    takes = instruction.operand("activation").tile.dtype
    held = instruction.operand("weight").tile.dtype
    met = fidelity(activation, takes)
    if met != "exact":
        return f"{type_name(activation)} activations {_becomes(met)} in {type_name(takes)}", False
    kept = fidelity(weight, held)
    if kept == "may overflow":
        return f"{type_name(weight)} may overflow in {type_name(held)}", False
    return "", kept == "rounds"


def _becomes(verdict: str) -> str:
    return "are rounded" if verdict == "rounds" else verdict
