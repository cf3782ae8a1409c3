"""One arena for the outputs of kernels: each output has its place, and shares it with those that live at other times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: every output starts at a multiple of so many bytes: what torch's allocator gives, and more than kernels ask for
ALIGNMENT = 512


@dataclass(frozen=True)
class Lifetime:
    """When an output is needed.

    Attributes:
        nbytes: its size.
        first: number of the task that writes it.
        last: number of the last task that reads it, or anything that may be a view of it.
    """

    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are needed at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """Where outputs lie.

    Attributes:
        offsets: first byte of each output.
        nbytes: of the whole arena.
    """

    offsets: Mapping[str, int]
    nbytes: int


def arrange(outputs: Mapping[str, Lifetime]) -> Arena:
    """Places for outputs, the largest first, each as low as those that live at the same time allow."""
    placed: dict[str, int] = {}
    total = 0
    for name in sorted(outputs, key=lambda one: (-outputs[one].nbytes, outputs[one].first, one)):
        mine = outputs[name]
        taken = sorted(
            (placed[other], placed[other] + _rounded(outputs[other].nbytes))
            for other in placed
            if outputs[other].overlaps(mine)
        )
        placed[name] = _lowest(taken, _rounded(mine.nbytes))
        total = max(total, placed[name] + _rounded(mine.nbytes))
    return Arena(placed, total)


def _lowest(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset with so much room; ``taken`` is sorted."""
    place = 0
    for start, stop in taken:
        if start - place >= size:
            break
        place = max(place, stop)
    return place


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
