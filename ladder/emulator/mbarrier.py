"""mbarrier objects: arrivals, expected bytes, phases (PTX ISA, "Parallel Synchronization: mbarrier").

A phase ends when all expected arrivals have come and all announced bytes have been written; who waits for it is then ordered
after the arrivals and the copies that counted for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ladder.emulator import sync
from ladder.emulator.memory import shared_write, vector
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, Cluster, Copy, Mask, Steps, Warp, active

#: largest count of an mbarrier (PTX ISA, "Contents of the mbarrier object")
MOST = (1 << 20) - 1


@dataclass
class MBarrier:
    """One mbarrier object.

    Attributes:
        place: its address, in words.
        count: arrivals of a phase.
        pending: arrivals that this phase still waits for.
        bytes: announced bytes that have not come yet; may be negative for a while.
        phase: number of the phase.
        arrivals: what the arriving warps of this phase knew.
        copies: epochs of the copies that counted for this phase.
        done: what the last phases published.
    """

    place: str
    cluster: Cluster
    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    arrivals: list[sync.Known] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    done: sync.Known | None = None

    def __post_init__(self) -> None:
        """Start the first phase."""
        self.pending = self.count

    def arrive(self, count: int, known: sync.Known | None, site: Site) -> None:
        """Take ``count`` arrivals."""
        if count > self.pending:
            raise Fault(
                f"barrier: {count} arrivals at {self.place}, which waits for {self.pending}",
                at=site,
                hint="the count of mbarrier.init is too small, or somebody arrives twice",
            )
        if known is not None:
            self.arrivals.append(known)
        self.pending -= count
        self.settle()

    def complete(self, nbytes: int, epochs: Sequence[int]) -> None:
        """Take bytes that a copy wrote."""
        self.bytes -= nbytes
        self.copies += epochs
        self.settle()

    def settle(self) -> None:
        """End the phase if nothing is missing."""
        self.cluster.machine.progress += 1
        if self.pending or self.bytes:
            return
        self.phase += 1
        self.pending = self.count
        parts = [*self.arrivals, *([self.done] if self.done is not None else [])]
        if parts:
            self.done = sync.with_copies(sync.unite(parts), self.copies)
        self.arrivals, self.copies = [], []

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity has ended."""
        return (self.phase & 1) != parity

    def __str__(self) -> str:
        return (
            f"mbarrier {self.place}: phase {self.phase}, {self.pending} of {self.count} arrivals and "
            f"{self.bytes} bytes missing"
        )


# ---- finding -------------------------------------------------------------------------------------------------------


def find(warp: Warp, address: int, site: Site, *, proxy: bool = False) -> MBarrier:
    """The mbarrier at an absolute shared address; its initialisation has to be ordered before this use."""
    cluster = warp.cluster
    barrier: MBarrier | None = cluster.mbarriers.get(address)
    if address % 8 or barrier is None:
        raise Fault(
            f"barrier: {cluster.place(address)} is no initialised mbarrier",
            at=site,
            hint="initialise it, and meet at a barrier before its first use",
        )
    shadow = cluster.shadow
    if shadow is None:
        return barrier
    epoch = int(shadow.writer[address >> shadow.shift])
    order = cluster.order
    if not (order.known[0, warp.agent, epoch] or order.own[warp.agent, epoch]):
        raise Fault(
            f"race: warp {warp.index} uses mbarrier {barrier.place} without being ordered after its "
            "initialisation",
            at=f"{site}; the initialisation was {order.epochs[epoch].site}",
            hint="a barrier between mbarrier.init and the first use is missing",
        )
    if proxy and not order.known[1, warp.agent, epoch]:
        raise Fault(
            f"proxy: an asynchronous copy signals mbarrier {barrier.place}, whose initialisation it "
            "does not see",
            at=f"{site}; the initialisation was {order.epochs[epoch].site}",
            hint="fence.mbarrier_init or fence.proxy.async after mbarrier.init",
        )
    return barrier


def _each(warp: Warp, mask: Mask, address: Any) -> tuple[Array, Array]:
    lanes, a = active(warp, mask, vector(warp, address, np.int64))
    return lanes, warp.block.absolute(a, window=True)


# ---- instructions --------------------------------------------------------------------------------------------------


def mbarrier_init(warp: Warp, mask: Mask, site: Site, address: Any, count: Any) -> None:
    """Make an mbarrier object."""
    lanes, a = _each(warp, mask, address)
    counts = vector(warp, count, np.int64)[lanes]
    for lane, place, number in zip(lanes.tolist(), a.tolist(), counts.tolist(), strict=True):
        shared_write(warp, np.array([lane]), np.array([place], np.uint32), 8, site)
        if not 0 < number <= MOST:
            raise Fault(f"barrier: an mbarrier of {number} arrivals", at=site)
        if place in warp.cluster.mbarriers:
            raise Fault(
                f"barrier: {warp.cluster.place(place)} is initialised twice",
                at=site,
                hint="one thread initialises it, once, or mbarrier.inval comes between",
            )
        warp.cluster.mbarriers[place] = MBarrier(warp.cluster.place(place), warp.cluster, number)


def mbarrier_inval(warp: Warp, mask: Mask, site: Site, address: Any) -> None:
    """End an mbarrier object."""
    for place in set(_each(warp, mask, address)[1].tolist()):
        find(warp, place, site)
        del warp.cluster.mbarriers[place]


def mbarrier_arrive(
    warp: Warp,
    mask: Mask,
    site: Site,
    address: Any,
    count: Any = 1,
    nbytes: Any = None,
    *,
    drop: bool = False,
    relaxed: bool = False,
) -> Array:
    """Arrive, one thread after another, and announce bytes; returns the state token, the number of the phase."""
    lanes, a = _each(warp, mask, address)
    counts = vector(warp, count, np.int64)[lanes]
    announced = np.zeros(len(lanes), np.int64)
    if nbytes is not None:
        announced = vector(warp, nbytes, np.int64)[lanes]
    state = np.zeros(len(warp.lanes), np.uint64)
    known = None if relaxed or not len(lanes) else sync.release(warp)
    for place in dict.fromkeys(a.tolist()):
        here = a == place
        barrier = find(warp, place, site)
        state[lanes[here]] = barrier.phase
        barrier.bytes += int(announced[here].sum())
        if drop:
            barrier.count -= int(counts[here].sum())
        barrier.arrive(int(counts[here].sum()), known, site)
    return state


def mbarrier_transaction(
    warp: Warp, mask: Mask, site: Site, address: Any, nbytes: Any, *, expect: bool
) -> None:
    """``mbarrier.expect_tx`` and ``mbarrier.complete_tx``."""
    lanes, a = _each(warp, mask, address)
    amounts = vector(warp, nbytes, np.int64)[lanes]
    for place, amount in zip(a.tolist(), amounts.tolist(), strict=True):
        barrier = find(warp, place, site)
        if expect:
            barrier.bytes += amount
        else:
            barrier.complete(amount, ())


def mbarrier_wait(
    warp: Warp, mask: Mask, site: Site, address: Any, parity: Any, *, state: bool = False
) -> Steps:
    """Wait for the end of the phase of a parity, or of a state token; ``try_wait`` in a loop comes to the same."""
    lanes, a = _each(warp, mask, address)
    values = vector(warp, parity, np.int64)[lanes]
    for place, value in dict.fromkeys(zip(a.tolist(), values.tolist(), strict=True)):
        barrier = find(warp, place, site)
        if not state and value not in (0, 1):
            raise Fault(f"barrier: a wait for parity {value}", at=site)

        def ready(barrier: MBarrier = barrier, value: int = value) -> bool:
            return barrier.phase > value if state else barrier.passed(value)

        yield f"{site}: waits for mbarrier {barrier.place}", ready
        if barrier.done is not None:
            sync.acquire(warp, barrier.done)


def mbarrier_test(
    warp: Warp, mask: Mask, site: Site, address: Any, parity: Any, *, state: bool = False
) -> Array:
    """``mbarrier.test_wait``: whether the phase has ended, now."""
    lanes, a = _each(warp, mask, address)
    values = vector(warp, parity, np.int64)[lanes]
    out = np.zeros(len(warp.lanes), np.uint32)
    for lane, place, value in zip(lanes.tolist(), a.tolist(), values.tolist(), strict=True):
        barrier = find(warp, place, site)
        over = barrier.phase > value if state else barrier.passed(value)
        out[lane] = over
        if over and barrier.done is not None:
            sync.acquire(warp, barrier.done)
    return out


def cp_async_arrive(
    warp: Warp, mask: Mask, site: Site, address: Any, *, counted: bool = False
) -> None:
    """``cp.async.mbarrier.arrive``: arrive when the copies issued so far are done; without ``.noinc`` it adds to the count."""
    _, a = _each(warp, mask, address)
    before = [c for group, _ in warp.copy_groups for c in group] + list(warp.open_copies)
    epochs = [e for _, group in warp.copy_groups for e in group]
    epochs += list(warp.copy_epochs.values())
    for place in dict.fromkeys(a.tolist()):
        barrier = find(warp, place, site)
        count = int(np.count_nonzero(a == place))
        if not counted:
            barrier.pending += count

        def perform(barrier: MBarrier = barrier, count: int = count) -> None:
            for copy in before:
                copy.run()
            barrier.copies += epochs
            barrier.arrive(count, None, site)

        warp.machine.launch(Copy(perform, warp.cluster))
