"""What propagation decided: how each value is stored and read, which conversions are left, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ladder.graph.layouts.arrangement import Arrangement


@dataclass(frozen=True, slots=True)
class Conversion:
    """A kernel that only moves a value to another layout.

    Attributes:
        value: what is moved.
        stored: how it lies before.
        wanted: how it lies after.
        readers: nodes that read it so; "output" for the caller.
        us: microseconds that it takes.
        why: what asks for it.
    """

    value: str
    stored: Arrangement
    wanted: Arrangement
    readers: tuple[str, ...]
    us: float
    why: str

    def __str__(self) -> str:
        return (
            f"{self.value}: {self.stored} -> {self.wanted} for {', '.join(self.readers)},"
            f" {self.us:.2f} us ({self.why})"
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where numbers are converted to another type.

    Attributes:
        node: the layer or quantisation.
        place: offline, source, global, shared or register.
        why: the reason.
    """

    node: str
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.node}: convert in {self.place} ({self.why})"


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that propagation did or did not do.

    Attributes:
        kind: propagated, cancelled, stopped, offline.
        at: the value or node.
        text: what, and why.
    """

    kind: str
    at: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind:<10} {self.at}: {self.text}"


@dataclass(frozen=True)
class Layouts:
    """The layouts of a graph on a device.

    Attributes:
        device: its name.
        stored: of every value that is no constant, how its source writes it.
        read: of every operand that is no constant, how its reader reads it, as ``(node, operand, arrangement)``.
        conversions: kernels that only move.
        placements: where types are converted.
        notes: what was propagated, cancelled, stopped and worked out offline.
        before: kernels that only move if every value were row-major, and their microseconds.
        us: microseconds that layouts cost now, scattered reads and writes included.
    """

    device: str
    stored: tuple[tuple[str, Arrangement], ...]
    read: tuple[tuple[str, int, Arrangement], ...]
    conversions: tuple[Conversion, ...]
    placements: tuple[Placement, ...]
    notes: tuple[Note, ...] = field(default=())
    before: tuple[int, float] = (0, 0.0)
    us: float = 0.0

    @cached_property
    def of(self) -> Mapping[str, Arrangement]:
        """How a value is stored."""
        return dict(self.stored)

    @cached_property
    def operands(self) -> Mapping[tuple[str, int], Arrangement]:
        """How an operand is read."""
        return {(node, place): arrangement for node, place, arrangement in self.read}

    def __str__(self) -> str:
        kernels, us = self.before
        lines = [
            (
                f"layouts on {self.device}: {len(self.conversions)} conversions, {self.us:.2f} us"
                f" (row-major everywhere: {kernels}, {us:.2f} us)"
            )
        ]
        lines += [f"convert    {one}" for one in self.conversions]
        lines += [f"type       {one}" for one in self.placements]
        lines += [str(one) for one in self.notes]
        return "\n".join(lines)
