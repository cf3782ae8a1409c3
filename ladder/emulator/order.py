"""Happens-before between the warps of a cluster (or of a grid), with asynchronous copies as agents.

Every access belongs to an **epoch**: one site, one agent, one interval between two synchronisations. For each warp a row of
truth values says which epochs happen before what the warp does now; a barrier unites rows. A second row says which of them
the async proxy sees too: a generic write becomes visible to it by ``fence.proxy.async`` (PTX ISA, "Memory Consistency Model:
Proxies"), a write of the async proxy itself is.

Inside one warp the unit is the lane: what a lane did itself comes before what it does next; another lane's write needs a
warp-level synchronisation. A ``.sync`` instruction orders earlier reads of the warp before later writes (its lanes have met), but
makes no write visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ladder.emulator.report import Site

Truths = npt.NDArray[np.bool_]
#: first epoch, and for each epoch from there: happens before, visible to the async proxy: [2, epochs]
Knowledge = tuple[int, Truths]

#: epochs that are no access: never read, outside every allocation, never written
NEVER_READ, OUTSIDE, NEVER_WRITTEN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Epoch:
    """Accesses of one site by one agent between two synchronisations.

    Attributes:
        agent: who, in words.
        warp: the warp that issued them.
        site: where.
        reads: whether they read.
        proxy: whether the async proxy carries them out.
    """

    agent: str
    warp: int
    site: Site
    reads: bool = False
    proxy: bool = False


class Order:
    """What each warp knows of each epoch.

    Args:
        warps: how many.
    """

    def __init__(self, warps: int) -> None:
        self.warps = warps
        nobody = Epoch("nobody", -1, Site(-1, "nothing"))
        self.epochs: list[Epoch] = [nobody, nobody, nobody]
        self.known = np.zeros((2, warps, 1024), np.bool_)
        self.known[:, :, NEVER_READ] = True
        self.own = np.zeros((warps, 1024), np.bool_)
        self.mine: list[set[int]] = [set() for _ in range(warps)]
        self.floor = 3
        self._writes: list[dict[int, int]] = [{} for _ in range(warps)]
        self._reads: list[dict[int, int]] = [{} for _ in range(warps)]

    def forget(self, first: int = 0, count: int | None = None) -> None:
        """Give rows to fresh warps that know nothing; epochs keep their numbers."""
        rows = slice(first, self.warps if count is None else first + count)
        self.known[:, rows] = False
        self.known[:, rows, NEVER_READ] = True
        self.own[rows] = False
        self.floor = 3
        for table in (self.mine, self._writes, self._reads):
            for entry in table[rows]:
                entry.clear()

    # ---- epochs -------------------------------------------------------------------------------------------------

    def new_epoch(
        self, agent: str, warp: int, site: Site, *, reads: bool = False, proxy: bool = False
    ) -> int:
        """Number a fresh epoch, which nobody is ordered after yet."""
        number = len(self.epochs)
        self.epochs.append(Epoch(agent, warp, site, reads, proxy))
        if number >= self.own.shape[1]:
            self.known = np.pad(self.known, ((0, 0), (0, 0), (0, number)))
            self.own = np.pad(self.own, ((0, 0), (0, number)))
        return number

    def reading(self, warp: int, site: Site) -> int:
        """The epoch of a warp's reads at a site now."""
        number = self._reads[warp].get(site.number)
        if number is None:
            number = self.new_epoch(f"warp {warp}", warp, site, reads=True)
            self._reads[warp][site.number] = number
            self.adopt(warp, (number,))
        return number

    def writing(self, warp: int, site: Site) -> int:
        """The epoch of a warp's writes at a site now."""
        number = self._writes[warp].get(site.number)
        if number is None:
            number = self.new_epoch(f"warp {warp}", warp, site)
            self._writes[warp][site.number] = number
            self.adopt(warp, (number,))
        return number

    def adopt(self, warp: int, epochs: Iterable[int]) -> None:
        """Let lanes of a warp see what they did themselves in these epochs."""
        for number in epochs:
            self.mine[warp].add(number)
            self.own[warp, number] = True

    def learn(self, warp: int, epochs: Iterable[int]) -> None:
        """Order a warp after these epochs."""
        numbers = list(epochs)
        self.known[0, warp, numbers] = True
        for number in numbers:
            self.known[1, warp, number] |= self.epochs[number].proxy

    # ---- synchronisation ----------------------------------------------------------------------------------------

    def converge(self, warp: int) -> None:
        """The lanes of the warp met: its earlier reads come before its later writes."""
        reads = self._reads[warp]
        if reads:
            self.known[0, warp, list(reads.values())] = True
            reads.clear()

    def warp_sync(self, warp: int) -> None:
        """The lanes of the warp met and see each other's writes."""
        mine = self.mine[warp]
        if mine:
            self.learn(warp, mine)
            mine.clear()
        self._writes[warp].clear()
        self._reads[warp].clear()

    def fence_proxy(self, warp: int) -> None:
        """What the warp did and knows becomes visible to the async proxy."""
        known = self.known[:, warp, : len(self.epochs)]
        np.logical_or(known[1], known[0], out=known[1])
        if self.mine[warp]:
            self.known[1, warp, list(self.mine[warp])] = True

    def release(self, warp: int) -> Knowledge:
        """Return what the warp knows, its own accesses included, to be handed to others."""
        self.warp_sync(warp)
        return self.floor, self.known[:, warp, self.floor : len(self.epochs)].copy()

    def acquire(self, warp: int, knowledge: Knowledge) -> None:
        """Order what the warp does from now on after what ``knowledge`` holds."""
        first, rows = knowledge
        known = self.known[:, warp, first : first + rows.shape[1]]
        np.logical_or(known, rows, out=known)

    def everyone_met(self) -> None:
        """All warps met at one barrier: what all know needs no more joining."""
        missing = ~self.known[0, :, self.floor : len(self.epochs)]
        columns = np.flatnonzero(missing.any(axis=0))
        self.floor = self.floor + int(columns[0]) if len(columns) else len(self.epochs)


def united(parts: Sequence[Knowledge]) -> Knowledge:
    """Unite what several warps released."""
    first = min(lo for lo, _ in parts)
    size = max(lo + rows.shape[1] for lo, rows in parts) - first
    union = np.zeros((2, size), np.bool_)
    for lo, rows in parts:
        part = union[:, lo - first : lo - first + rows.shape[1]]
        np.logical_or(part, rows, out=part)
    return first, union


def including(knowledge: Knowledge, epochs: Iterable[int]) -> Knowledge:
    """Knowledge with these epochs of the async proxy added."""
    numbers = list(epochs)
    if not numbers:
        return knowledge
    row = np.zeros((2, max(numbers) + 1 - min(numbers)), np.bool_)
    row[:, [n - min(numbers) for n in numbers]] = True
    return united([knowledge, (min(numbers), row)])
