"""Race detection on global memory, between the CTAs of a grid and inside them.

Only buffers that the kernel writes have a shadow. A granule holds two **groups** of epochs: the writes since the last plain write
(that one, or atomics), and the reads since then. Groups are interned, so that a granule is two numbers. Atomics do not race with
each other; they race with plain accesses that nothing orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.order import Order
from ladder.emulator.report import Fault, Site

Ints = npt.NDArray[Any]


class Groups:
    """Sets of epochs by number; 0 is the empty set."""

    def __init__(self) -> None:
        self.sets: list[frozenset[int]] = [frozenset()]
        self._numbers: dict[frozenset[int], int] = {frozenset(): 0}

    def number(self, epochs: frozenset[int]) -> int:
        """The number of a set."""
        found = self._numbers.get(epochs)
        if found is None:
            found = self._numbers[epochs] = len(self.sets)
            self.sets.append(epochs)
        return found

    def extended(self, numbers: Ints, epoch: int) -> Ints:
        """Numbers of the sets with an epoch added."""
        unique, inverse = np.unique(numbers, return_inverse=True)
        new = [self.number(self.sets[n] | {epoch}) for n in unique.tolist()]
        return np.array(new, np.int32)[inverse].reshape(numbers.shape)


class GlobalShadow:
    """Shadow of one global buffer.

    Args:
        name: of the buffer.
        nbytes: its size.
        granule: bytes of the narrowest access to it.
        order: of the warps of the grid that run.
    """

    def __init__(self, name: str, nbytes: int, granule: int, order: Order) -> None:
        self.name, self.order = name, order
        self.shift = granule.bit_length() - 1
        count = (nbytes >> self.shift) + 1
        self.writers = np.zeros(count, np.int32)
        self.readers = np.zeros(count, np.int32)
        self.lane = np.full(count, -1, np.int16)
        self.groups = Groups()
        self._plain: set[int] = set()

    def _granules(self, offset: Ints, width: int) -> Ints:
        first: Ints = offset >> self.shift
        count = width >> self.shift
        return first if count <= 1 else first[:, None] + np.arange(count)

    def read(self, row: int, site: Site, offset: Ints, lanes: Ints, width: int) -> None:
        """Check and record a plain read."""
        g = self._granules(offset, width)
        where = np.broadcast_to(lanes[:, None] if g.ndim == 2 else lanes, g.shape)
        self._check(row, site, g, where, self.writers, "reads")
        epoch = self.order.reading(row, site)
        self.readers[g] = self.groups.extended(self.readers[g], epoch)
        self.lane[g] = where

    def write(self, row: int, site: Site, offset: Ints, lanes: Ints, width: int) -> None:
        """Check and record a plain write."""
        g = self._granules(offset, width)
        where = np.broadcast_to(lanes[:, None] if g.ndim == 2 else lanes, g.shape)
        self._record(self.order.writing(row, site), row, site, g, where)

    def write_as(
        self, epoch: int, row: int, site: Site, offset: Ints, lanes: Ints, width: int
    ) -> None:
        """Check a write issued by a warp and record it as ``epoch``, a copy in flight."""
        g = self._granules(offset, width)
        where = np.broadcast_to(lanes[:, None] if g.ndim == 2 else lanes, g.shape)
        self._record(epoch, row, site, g, where)

    def _record(self, epoch: int, row: int, site: Site, g: Ints, where: Ints) -> None:
        self._check(row, site, g, where, self.writers, "writes")
        self._check(row, site, g, where, self.readers, "writes")
        self._plain.add(epoch)
        self.writers[g] = self.groups.number(frozenset({epoch}))
        self.readers[g] = 0
        self.lane[g] = where

    def atomic(
        self, row: int, site: Site, offset: Ints, lanes: Ints, width: int, *, reads: bool = False
    ) -> None:
        """Check and record an atomic access (or a load with memory order): ordered against plain ones only."""
        g = self._granules(offset, width)
        where = np.broadcast_to(lanes[:, None] if g.ndim == 2 else lanes, g.shape)
        self._check(row, site, g, where, self.writers, "updates", plain_only=True)
        if reads:
            return
        self._check(row, site, g, where, self.readers, "updates")
        epoch = self.order.writing(row, site)
        self.writers[g] = self.groups.extended(self.writers[g], epoch)
        self.lane[g] = where

    def _check(
        self,
        row: int,
        site: Site,
        g: Ints,
        lanes: Ints,
        table: Ints,
        verb: str,
        *,
        plain_only: bool = False,
    ) -> None:
        numbers = table.take(g)
        if not np.count_nonzero(numbers):
            return
        known = self.order.known[0, row]
        for number in np.unique(numbers).tolist():
            for epoch in self.groups.sets[number]:
                if known[epoch] or (plain_only and epoch not in self._plain):
                    continue
                self._settle(row, site, g, lanes, numbers == number, epoch, verb)

    def _settle(
        self, row: int, site: Site, g: Ints, lanes: Ints, here: Ints, epoch: int, verb: str
    ) -> None:
        """A race, unless every lane meets only what it did itself."""
        own = epoch in self.order.mine[row]
        bad = here & ~((self.lane[g] == lanes) & own)
        if not bad.any():
            return
        at = int(np.argmax(bad.ravel()))
        lane = int(lanes.ravel()[at])
        byte = int(g.ravel()[at]) << self.shift
        other = self.order.epochs[epoch]
        earlier = "read" if other.reads else "write"
        who = "another lane" if own else other.agent
        raise Fault(
            f"race: lane {lane} {verb} byte {byte} of {self.name} without being ordered after a "
            f"{earlier} by {who}",
            at=f"{site}; the {earlier} was {other.site}",
            hint="publish with a fence and an atomic, and look at the atomic before reading",
        )
