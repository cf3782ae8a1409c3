"""What a run reports: the faults that stop it, and the record of a run that went through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ladder.errors import EmulationError

#: kinds of fault, as the first word of the message
KINDS = (
    "race",
    "uninitialised",
    "bounds",
    "misaligned",
    "deadlock",
    "livelock",
    "barrier",
    "divergence",
    "uniform",
    "proxy",
    "hazard",
    "arguments",
    "unsupported",
)


class Fault(EmulationError):  # noqa: N818  a fault of the kernel, not of the emulator
    """A fault of the kernel or of its launch; the message starts with its kind, one of ``KINDS``."""

    @property
    def kind(self) -> str:
        """The first word of the message."""
        return self.what.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction that touches memory or synchronises: where it stands in the kernel.

    Args:
        number: position among the sites of the listing.
        text: the instruction, as PTX writes it, or ``load``/``store``.
        buffer: the buffer that it names, or ``""``.
        stage: the plan's stage that it belongs to, or ``""``.
    """

    number: int
    text: str
    buffer: str = ""
    stage: str = ""

    def __str__(self) -> str:
        place = f" in stage {self.stage}" if self.stage else ""
        name = f" of {self.buffer}" if self.buffer else ""
        return f"{self.text}{name}{place} (site {self.number})"


@dataclass(frozen=True)
class Report:
    """Record of a run without a fault.

    Args:
        kernel: name of the kernel.
        grid: CTAs along x, y, z.
        block: threads of a CTA.
        schedule: ``random``, ``eager`` or ``lazy``.
        seed: of the random choices.
        shared_bytes: shared memory that the kernel's allocations take, in bytes.
        steps: scheduling decisions taken.
        counters: counts by name when asked for, see :mod:`ladder.emulator.counters`.
        dropped: how often a warp came to where an instruction was left out.
        notes: things worth knowing that are no fault.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: int
    schedule: str
    seed: int
    shared_bytes: int
    steps: int
    counters: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = (
            f"{self.kernel}: grid {self.grid}, {self.block} threads, {self.shared_bytes} B shared, "
            f"schedule {self.schedule} (seed {self.seed}), {self.steps} steps"
        )
        lines = [f"  {name}: {count}" for name, count in sorted(self.counters.items())]
        return "\n".join([head, *lines, *(f"  note: {note}" for note in self.notes)])
