"""Happens-before detection on shared memory, in the manner of FastTrack, with asynchronous copies as agents.

Every access belongs to an **epoch**: one site, one agent, one interval between two synchronisations. The shadow holds
for each granule of shared memory the epoch of its last write and, for each agent, of its last read. For each warp a row
of truth values says which epochs happen before what the warp does now; a barrier unites rows. So a race is reported in
any schedule that runs, whether or not a value went wrong.

Inside one warp the unit is the lane: what a lane wrote itself it may read; another lane's write needs a warp-level
synchronisation. A ``.sync`` instruction orders earlier reads of the warp before later writes (its lanes have met), but
makes no write visible.

A granule is as wide as the kernel's narrowest access to shared memory, so that no access covers part of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ladder.emulator.report import Fault, Site

Ints = npt.NDArray[np.integer]
Truths = npt.NDArray[np.bool_]

#: epochs that are no access: never read, outside every allocation, never written
NEVER_READ, OUTSIDE, NEVER_WRITTEN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Epoch:
    """Accesses of one site by one agent between two synchronisations."""

    agent: str
    warp: int
    site: Site
    reads: bool = False


class Shadow:
    """Shadow of the shared memory of one CTA (or of several that run in step).

    Args:
        granules: number of granules.
        shift: log2 of the bytes of a granule.
        warps: warps of a CTA.
        agents: rows of readers: the warps, then asynchronous agents that read shared memory.
    """

    def __init__(self, granules: int, shift: int, warps: int, agents: int) -> None:
        self.shift = shift
        self.warps = warps
        self.writer = np.full(granules, OUTSIDE, np.int32)
        self.writer_lane = np.full(granules, -1, np.int16)
        self.reader = np.zeros((agents, granules), np.int32)
        self.reader_lane = np.full(granules, -1, np.int16)
        nobody = Epoch("nobody", -1, Site(-1, "nothing"))
        self.epochs: list[Epoch] = [nobody, nobody, nobody]
        self.ordered = np.zeros((warps, 1024), np.bool_)
        self.ordered[:, NEVER_READ] = True
        self.own = np.zeros((warps, 1024), np.bool_)
        self.mine: list[set[int]] = [set() for _ in range(warps)]
        self.flying: set[int] = set()
        self.floor = 3
        self._writes: list[dict[int, int]] = [{} for _ in range(warps)]
        self._reads: list[dict[int, int]] = [{} for _ in range(warps)]
        self.place: Callable[[int], str] = str

    # ---- epochs and order ---------------------------------------------------------------------------------------

    def new_epoch(self, agent: str, warp: int, site: Site, *, reads: bool = False) -> int:
        """Number a fresh epoch, which nobody is ordered after yet."""
        number = len(self.epochs)
        self.epochs.append(Epoch(agent, warp, site, reads))
        if number >= self.ordered.shape[1]:
            self.ordered = _widened(self.ordered)
            self.own = _widened(self.own)
        return number

    def adopt(self, warp: int, epochs: Iterable[int]) -> None:
        """Let lanes of a warp see what they did themselves in these epochs."""
        for number in epochs:
            self.mine[warp].add(number)
            self.own[warp, number] = True

    def _open(self, table: dict[int, int], warp: int, site: Site, *, reads: bool) -> int:
        number = table.get(site.number)
        if number is None:
            number = self.new_epoch(f"warp {warp}", warp, site, reads=reads)
            table[site.number] = number
            self.mine[warp].add(number)
            self.own[warp, number] = True
        return number

    def converge(self, warp: int) -> None:
        """The lanes of the warp met: its earlier reads come before its later writes."""
        reads = self._reads[warp]
        if reads:
            self.ordered[warp, list(reads.values())] = True
            reads.clear()

    def warp_sync(self, warp: int) -> None:
        """The lanes of the warp met and see each other's writes."""
        mine = self.mine[warp]
        if mine:
            self.ordered[warp, list(mine)] = True
            mine.clear()
        self._writes[warp].clear()
        self._reads[warp].clear()

    def release(self, warp: int) -> tuple[int, Truths]:
        """Return what the warp knows, its own accesses included, to be handed to others."""
        self.warp_sync(warp)
        return self.floor, self.ordered[warp, self.floor : len(self.epochs)].copy()

    def acquire(self, warp: int, knowledge: tuple[int, Truths]) -> None:
        """Order what the warp does from now on after what ``knowledge`` holds."""
        first, row = knowledge
        known = self.ordered[warp, first : first + len(row)]
        np.logical_or(known, row, out=known)

    def everyone_met(self) -> None:
        """All warps met at one barrier: older epochs need no more joining, except copies in flight."""
        self.floor = min(self.flying, default=len(self.epochs))

    # ---- accesses -----------------------------------------------------------------------------------------------

    def granules(self, address: Ints, width: int) -> Ints:
        """Granules of accesses of ``width`` bytes at byte addresses: [n] -> [n] or [n, width / granule]."""
        first: Ints = address >> self.shift
        count = width >> self.shift
        return first if count <= 1 else first[:, None] + np.arange(count)

    def read(self, warp: int, site: Site, address: Ints, lanes: Ints, width: int) -> None:
        """Check and record a read of ``width`` bytes at ``address`` by ``lanes`` of a warp."""
        g = self.granules(address, width)
        where = lanes[:, None] if g.ndim == 2 else lanes
        try:
            ok = self.ordered[warp].take(self.writer.take(g))
        except IndexError:
            raise self._outside(site, warp, g, where) from None
        if np.count_nonzero(ok) != ok.size:
            self._judge_read(warp, site, g, np.broadcast_to(where, g.shape), ok)
        self.reader[warp][g] = self._open(self._reads[warp], warp, site, reads=True)
        self.reader_lane[g] = where

    def write(self, warp: int, site: Site, address: Ints, lanes: Ints, width: int) -> None:
        """Check and record a write of ``width`` bytes at ``address`` by ``lanes`` of a warp."""
        epoch = self._open(self._writes[warp], warp, site, reads=False)
        self.write_as(epoch, warp, site, address, lanes, width)

    def write_as(
        self, epoch: int, warp: int, site: Site, address: Ints, lanes: Ints, width: int
    ) -> None:
        """Check a write issued by a warp and record it as ``epoch``, which may be a copy in flight."""
        g = self.granules(address, width)
        where = lanes[:, None] if g.ndim == 2 else lanes
        row = self.ordered[warp]
        try:
            ok = row.take(self.writer.take(g))
            read = row.take(self.reader.take(g, axis=1))
        except IndexError:
            raise self._outside(site, warp, g, where) from None
        if np.count_nonzero(ok) != ok.size or np.count_nonzero(read) != read.size:
            self._judge_write(warp, site, g, np.broadcast_to(where, g.shape), ok, read)
        self.writer[g] = epoch
        self.writer_lane[g] = where

    # ---- verdicts -----------------------------------------------------------------------------------------------

    def _judge_read(self, warp: int, site: Site, g: Ints, lanes: Ints, ok: Truths) -> None:
        g, lanes = g[~ok], lanes[~ok]
        epochs = self.writer[g]
        good = self.own[warp].take(epochs) & (self.writer_lane[g] == lanes)
        if not good.all():
            at = int(np.argmin(good))
            self._settle(site, warp, int(g[at]), int(lanes[at]), int(epochs[at]), reading=True)

    def _judge_write(
        self, warp: int, site: Site, g: Ints, lanes: Ints, ok: Truths, read: Truths
    ) -> None:
        flat, by, own = g.ravel(), lanes.ravel(), self.own[warp]
        epochs = self.writer.take(flat)
        good = ok.ravel() | (epochs == NEVER_WRITTEN)
        if not good.all():
            good |= own.take(epochs) & (self.writer_lane.take(flat) == by)
        if not good.all():
            at = int(np.argmin(good))
            self._settle(site, warp, int(flat[at]), int(by[at]), int(epochs[at]))
        if np.count_nonzero(read) == read.size:
            return
        for agent, row in enumerate(read.reshape(len(self.reader), -1)):
            if row.all():
                continue
            epochs = self.reader[agent].take(flat)
            good = row | (own.take(epochs) & (self.reader_lane.take(flat) == by))
            if not good.all():
                at = int(np.argmin(good))
                self._settle(site, warp, int(flat[at]), int(by[at]), int(epochs[at]))

    def _settle(
        self,
        site: Site,
        warp: int,
        granule: int,
        lane: int,
        epoch: int,
        *,
        reading: bool = False,
    ) -> None:
        place = self.place(granule << self.shift)
        who = f"lane {lane} of warp {warp}" if lane >= 0 else f"warp {warp}"
        if epoch == OUTSIDE:
            raise Fault(
                f"bounds: {who} touches shared memory outside every allocation, at {place}",
                at=site,
                hint="check the index against the allocation's size",
            )
        if epoch == NEVER_WRITTEN and reading:
            raise Fault(
                f"uninitialised: {who} reads {place}, which nobody has written",
                at=site,
                hint="a wait or a barrier is missing, or the copy does not cover it",
            )
        other = self.epochs[epoch]
        earlier = "read" if other.reads else "write"
        verb = "reads" if reading else "writes"
        inside = "another lane" if other.warp == warp and epoch not in self.flying else other.agent
        raise Fault(
            f"race: {who} {verb} {place} without being ordered after a {earlier} by {inside}",
            at=f"{site}; the {earlier} was {other.site}",
            hint=_advice(other.agent, inside),
        )

    def _outside(self, site: Site, warp: int, g: Ints, lanes: Ints) -> Fault:
        bad = (g < 0) | (g >= len(self.writer))
        at = int(np.argmax(bad.ravel()))
        lane = int(np.broadcast_to(lanes, g.shape).ravel()[at])
        address = int(g.ravel()[at]) << self.shift
        return Fault(
            f"bounds: lane {lane} of warp {warp} touches shared byte {address}, "
            f"beyond {len(self.writer) << self.shift}",
            at=site,
            hint="check the index against the allocation's size",
        )


def _widened(table: Truths) -> Truths:
    return np.pad(table, ((0, 0), (0, table.shape[1])))


def _advice(agent: str, inside: str) -> str:
    if inside == "another lane":
        return "lanes of one warp meet at __syncwarp before they read each other's data"
    if agent.startswith("cp.async"):
        return "wait for the copy's group, then meet at a barrier"
    return "a barrier between the two accesses is missing"


def knowledge_of(parts: Sequence[tuple[int, Truths]]) -> tuple[int, Truths]:
    """Unite what several warps released."""
    first = min(lo for lo, _ in parts)
    size = max(lo + len(row) for lo, row in parts) - first
    union = np.zeros(size, np.bool_)
    for lo, row in parts:
        part = union[lo - first : lo - first + len(row)]
        np.logical_or(part, row, out=part)
    return first, union
