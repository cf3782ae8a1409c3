"""Race detection on shared memory, in the manner of FastTrack.

The shadow holds for each granule of shared memory the epoch of its last write and, for each agent, of its last read; an
access is checked against what its warp knows (:mod:`ladder.emulator.order`). So a race is reported in any schedule that runs,
whether or not a value went wrong. A granule is as wide as the kernel's narrowest access to shared memory, so that no access covers part
of one. Addresses are unsigned, so that a negative one lies far outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.order import NEVER_READ, NEVER_WRITTEN, OUTSIDE, Order, Truths
from ladder.emulator.report import Fault, Site

Ints = npt.NDArray[Any]


class Shadow:
    """Shadow of the shared memory of the CTAs of a cluster.

    Args:
        order: of the cluster's warps.
        granules: number of granules.
        shift: log2 of the bytes of a granule.
    """

    def __init__(self, order: Order, granules: int, shift: int) -> None:
        self.order = order
        self.shift = shift
        self.writer = np.full(granules, OUTSIDE, np.int32)
        self.writer_lane = np.full(granules, -1, np.int16)
        #: one row for each warp, and one for each warp's asynchronous reads
        self.reader = np.zeros((2 * order.warps, granules), np.int32)
        self.reader_lane = np.full(granules, -1, np.int16)
        #: epochs of atomic updates
        self.atomics: set[int] = set()
        self.place: Callable[[int], str] = str

    def allocate(self, first: int, nbytes: int) -> None:
        """Mark bytes as allocated and never written."""
        self.writer[first >> self.shift : (first + nbytes) >> self.shift] = NEVER_WRITTEN

    def forget(self) -> None:
        """Mark everything as outside and never read."""
        self.writer.fill(OUTSIDE)
        self.reader.fill(NEVER_READ)

    def granules(self, address: Ints, width: int) -> Ints:
        """Granules of accesses of ``width`` bytes at byte addresses: [n] -> [n] or [n, width / granule]."""
        first: Ints = address >> self.shift
        count = width >> self.shift
        return first if count <= 1 else first[:, None] + np.arange(count)

    # ---- accesses -----------------------------------------------------------------------------------------------

    def read(self, warp: int, site: Site, address: Ints, lanes: Ints, width: int) -> None:
        """Check and record a read of ``width`` bytes at ``address`` by ``lanes`` of a warp."""
        self._read(self.order.reading(warp, site), warp, warp, site, address, lanes, width)

    def read_as(
        self, epoch: int, warp: int, site: Site, address: Ints, lanes: Ints, width: int
    ) -> None:
        """Check a read that a warp leaves to the async proxy, and record it as ``epoch``."""
        row = self.order.warps + warp
        g = self._read(epoch, row, warp, site, address, lanes, width)
        self._judge_proxy(warp, site, g)

    def _read(
        self, epoch: int, row: int, warp: int, site: Site, address: Ints, lanes: Ints, width: int
    ) -> Ints:
        g = self.granules(address, width)
        where = lanes[:, None] if g.ndim == 2 else lanes
        try:
            ok = self.order.known[0, warp].take(self.writer.take(g))
        except IndexError:
            raise self._outside(site, warp, g, where) from None
        if np.count_nonzero(ok) != ok.size:
            self._judge_read(warp, site, g, np.broadcast_to(where, g.shape), ok)
        self.reader[row][g] = epoch
        self.reader_lane[g] = where
        return g

    def write(self, warp: int, site: Site, address: Ints, lanes: Ints, width: int) -> None:
        """Check and record a write of ``width`` bytes at ``address`` by ``lanes`` of a warp."""
        self.write_as(self.order.writing(warp, site), warp, site, address, lanes, width)

    def write_as(
        self, epoch: int, warp: int, site: Site, address: Ints, lanes: Ints, width: int
    ) -> None:
        """Check a write issued by a warp and record it as ``epoch``, which may be a copy in flight."""
        g = self.granules(address, width)
        where = lanes[:, None] if g.ndim == 2 else lanes
        row = self.order.known[0, warp]
        try:
            ok = row.take(self.writer.take(g))
            read = row.take(self.reader.take(g, axis=1))
        except IndexError:
            raise self._outside(site, warp, g, where) from None
        if np.count_nonzero(ok) != ok.size or np.count_nonzero(read) != read.size:
            self._judge_write(warp, site, g, np.broadcast_to(where, g.shape), ok, read)
        if self.order.epochs[epoch].proxy:
            self._judge_proxy(warp, site, g)
        self.writer[g] = epoch
        self.writer_lane[g] = where

    def atomic(self, warp: int, site: Site, address: Ints, lanes: Ints, width: int) -> None:
        """Check and record an atomic update of ``width`` bytes: it does not race with other atomics."""
        self.atomic_as(self.order.writing(warp, site), warp, site, address, lanes, width)

    def atomic_as(
        self, epoch: int, warp: int, site: Site, address: Ints, lanes: Ints, width: int
    ) -> None:
        """Check an atomic update issued by a warp and record it as ``epoch``."""
        self.atomics.add(epoch)
        g = self.granules(address, width)
        where = np.broadcast_to(lanes[:, None] if g.ndim == 2 else lanes, g.shape)
        row = self.order.known[0, warp]
        try:
            epochs = self.writer.take(g)
            read = row.take(self.reader.take(g, axis=1))
        except IndexError:
            raise self._outside(site, warp, g, where) from None
        if (epochs == NEVER_WRITTEN).any():
            self._judge_read(warp, site, g, where, epochs != NEVER_WRITTEN)
        ok = row.take(epochs) | np.isin(epochs, list(self.atomics))
        if not ok.all() or np.count_nonzero(read) != read.size:
            self._judge_write(warp, site, g, where, ok, read)
        self.writer[g] = epoch
        self.writer_lane[g] = -1

    def close(self, warps: Sequence[int], first: int, nbytes: int) -> None:
        """A CTA ends: nobody may touch its memory any more, so accesses by others have to be ordered before the end."""
        rows = list(warps)
        known: Truths = np.vstack([self.order.known[0, rows], self.order.own[rows]]).max(axis=0)
        known[[OUTSIDE, NEVER_WRITTEN]] = True
        part = slice(first >> self.shift, (first + nbytes) >> self.shift)
        for table in (self.writer[part][None], self.reader[:, part]):
            ok = known.take(table)
            if ok.all():
                continue
            row, at = np.unravel_index(int(np.argmin(ok)), ok.shape)
            other = self.order.epochs[int(table[row, at])]
            place = self.place(int(at << self.shift) + first)
            raise Fault(
                f"race: a CTA ends while {other.agent} may still {'read' if other.reads else 'write'} {place}",
                at=f"end of the kernel; the access was {other.site}",
                hint="a cluster barrier at the end keeps CTAs until their peers are done",
            )

    # ---- verdicts -----------------------------------------------------------------------------------------------

    def _judge_read(self, warp: int, site: Site, g: Ints, lanes: Ints, ok: Truths) -> None:
        g, lanes = g[~ok], lanes[~ok]
        epochs = self.writer[g]
        good = self.order.own[warp].take(epochs) & (self.writer_lane[g] == lanes)
        if not good.all():
            at = int(np.argmin(good))
            self._settle(site, warp, int(g[at]), int(lanes[at]), int(epochs[at]), reading=True)

    def _judge_write(
        self, warp: int, site: Site, g: Ints, lanes: Ints, ok: Truths, read: Truths
    ) -> None:
        flat, by, own = g.ravel(), lanes.ravel(), self.order.own[warp]
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

    def _judge_proxy(self, warp: int, site: Site, g: Ints) -> None:
        """The async proxy sees a generic write only after a proxy fence."""
        epochs = self.writer.take(g)
        seen = self.order.known[1, warp].take(epochs) | (epochs == NEVER_WRITTEN)
        if seen.all():
            return
        at = int(np.argmin(seen.ravel()))
        other = self.order.epochs[int(epochs.ravel()[at])]
        place = self.place(int(g.ravel()[at]) << self.shift)
        raise Fault(
            f"proxy: an asynchronous access to {place} does not see the generic write by {other.agent}",
            at=f"{site}; the write was {other.site}",
            hint="fence.proxy.async between the write and the barrier before the access",
        )

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
        other = self.order.epochs[epoch]
        earlier = "read" if other.reads else "write"
        verb = "reads" if reading else "writes"
        same = other.warp == warp and epoch in self.order.mine[warp]
        inside = "another lane" if same else other.agent
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


def _advice(agent: str, inside: str) -> str:
    if inside == "another lane":
        return "lanes of one warp meet at __syncwarp before they read each other's data"
    if agent.startswith("cp.async"):
        return "wait for the copy's group, then meet at a barrier"
    if not agent.startswith("warp"):
        return "wait for the asynchronous access to complete"
    return "a barrier between the two accesses is missing"
