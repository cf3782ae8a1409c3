"""Counts of one run: instructions, bank conflicts, sectors, bytes.

Shared memory has 32 banks of 4 bytes; a request of more than 4 bytes a lane is served in phases of 128 bytes; a phase takes
as many wavefronts as its busiest bank has different words (CUDA programming guide, "Shared Memory"). Global memory is
served in sectors of 32 bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Counters:
    """Counts by name: ``op.<text>``, ``pipe.<pipe>.<stage>``, ``shared.*`` and ``global.*``.

    Of the pipes, ``alu`` holds bit operations on 32-bit registers (three operands of logic are one instruction) and ``fma`` float
    arithmetic; addresses and loop control, which a compiler arranges as it likes, are left out.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count."""
        self.counts[name] += count

    def shared(self, kind: str, address: Array, width: int) -> None:
        """Count one shared-memory request of ``width`` bytes at each of ``address``."""
        counts = self.counts
        counts[f"shared.{kind}.requests"] += 1
        counts[f"shared.{kind}.bytes"] += len(address) * width
        taken = wavefronts(address, width)
        counts[f"shared.{kind}.wavefronts"] += taken
        counts[f"shared.{kind}.conflicts"] += taken - phases(len(address), width)
        ideal = -(-len(np.unique(address)) * width // 128)
        counts[f"shared.{kind}.ideal_wavefronts"] += max(1, ideal)

    def memory(self, kind: str, offset: Array, width: int) -> None:
        """Count one global request of ``width`` bytes at each byte offset of one buffer."""
        counts = self.counts
        counts[f"global.{kind}.requests"] += 1
        counts[f"global.{kind}.bytes"] += len(offset) * width
        last = (offset + (width - 1)) >> 5
        counts[f"global.{kind}.sectors"] += len(np.union1d(offset >> 5, last))


def phases(lanes: int, width: int) -> int:
    """Wavefronts of one shared request without a conflict: 128 bytes each."""
    return -(-lanes * max(4, width) // 128)


def wavefronts(address: Array, width: int) -> int:
    """Wavefronts of one shared request: for each phase, the most words that share a bank."""
    lanes = max(1, min(32, 128 // width))
    words = max(1, width // 4)
    total = 0
    for first in range(0, len(address), lanes):
        phase = address[first : first + lanes] >> 2
        unique = np.unique(phase[:, None] + np.arange(words))
        total += int(np.bincount(unique % 32).max())
    return total
