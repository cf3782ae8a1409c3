"""State of a grid while a kernel runs: clusters of CTAs, their shared memory, their warps.

Registers hold arrays over 32 lanes that are never changed in place, so that a copy is a reference. Shared addresses are bytes of a
CTA's own memory; those of the cluster's window carry ``WINDOW`` and the rank of the CTA.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.counters import Counters
from ladder.emulator.global_race import GlobalShadow
from ladder.emulator.order import Order
from ladder.emulator.race import Shadow
from ladder.emulator.report import Fault, Site

LANES = 32
Array = npt.NDArray[Any]
Mask = Array | None
#: what a warp yields: why it stops, and what it waits for (None: nothing, let others run)
Wait = tuple[str, Callable[[], bool] | None]
Steps = Iterator[Wait]

#: a shared::cluster address is WINDOW + (rank << RANK_SHIFT) + the address in that CTA
WINDOW, RANK_SHIFT = 1 << 31, 20


@dataclass
class GlobalBuffer:
    """A kernel argument in global memory: padded bytes, of which the first ``nbytes`` exist."""

    name: str
    data: Array
    nbytes: int
    number: int
    written: bool = False
    shadow: GlobalShadow | None = None
    _views: dict[Any, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, array: Array, number: int) -> GlobalBuffer:
        """Copy a contiguous array."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        data = np.zeros((len(raw) + 31) // 16 * 16, np.uint8)
        data[: len(raw)] = raw
        return cls(name, data, len(raw), number)

    def view(self, dtype: Any) -> Array:
        """The padded bytes as elements."""
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.data.view(dtype)
        return found


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where a shared buffer lies: bytes from ``base``."""

    name: str
    base: int
    nbytes: int


@dataclass
class Copy:
    """An asynchronous operation that was issued and has not been carried out."""

    perform: Callable[[], None]
    cluster: Cluster
    done: bool = False
    after: Copy | None = None

    @property
    def ready(self) -> bool:
        """Whether the operation that it has to follow is done."""
        return self.after is None or self.after.done

    def run(self) -> None:
        """Carry it out once, after what it has to follow."""
        if not self.done:
            if self.after is not None:
                self.after.run()
            self.done = True
            self.perform()


@dataclass
class Machine:
    """What all CTAs of a launch share.

    Attributes:
        threads: of a CTA along x, y, z.
        allocations: shared buffers of a CTA.
        granule: bytes of the narrowest access to shared memory.
        detect: whether races are looked for.
        policy: of the schedule.
        rng: of the schedule.
        counters: counts, or None.
        copies: asynchronous operations in flight.
        progress: grows with every event that may wake somebody.
        steps: scheduling decisions.
        dropped: how often a warp came to where an instruction was left out.
        world: what warps know of each other's accesses to global memory, or None.
        board: what atomics left at global addresses: (buffer, byte) -> knowledge.
    """

    threads: tuple[int, int, int]
    allocations: tuple[Allocation, ...]
    granule: int
    detect: bool
    policy: str
    rng: random.Random
    counters: Counters | None
    copies: list[Copy] = field(default_factory=list)
    progress: int = 0
    steps: int = 0
    dropped: int = 0
    world: Order | None = None
    board: dict[tuple[int, int], Any] = field(default_factory=dict)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        x, y, z = self.threads
        return (x * y * z + LANES - 1) // LANES

    def launch(self, copy: Copy) -> None:
        """Put an asynchronous operation on its way; an eager schedule carries it out now."""
        if self.policy == "eager" and copy.ready:
            copy.run()
        else:
            self.copies.append(copy)


class Cluster:
    """CTAs that see each other's shared memory; most kernels have clusters of one.

    Args:
        machine: of the launch.
        size: CTAs.
        slot: place among the clusters that run at one time.
    """

    def __init__(self, machine: Machine, size: int = 1, slot: int = 0) -> None:
        self.machine = machine
        self.slot = slot
        self.end = max((a.base + a.nbytes for a in machine.allocations), default=0)
        self.first = min((a.base for a in machine.allocations), default=0)
        #: bytes between the memories of two ranks
        self.stride = (self.end + 1024) // 1024 * 1024
        self.smem = np.empty(self.stride * size, np.uint8)
        self._views: dict[Any, Array] = {}
        self.order = Order(size * machine.warps)
        self.shadow: Shadow | None = None
        if machine.detect:
            shift = machine.granule.bit_length() - 1
            self.shadow = Shadow(self.order, len(self.smem) >> shift, shift)
            self.shadow.place = self.place
        self.ranks = range(size)
        self.blocks = [Block(self, rank) for rank in self.ranks]
        self.barriers: dict[int, Any] = {}
        self.mbarriers: dict[int, Any] = {}
        self._fresh = True

    def renew(self) -> None:
        """Take the memory and the tables for the next CTAs of the grid; nothing of the last ones is left."""
        fresh, self._fresh = self._fresh, False
        self.smem.fill(0xBA)
        self.barriers.clear()
        self.mbarriers.clear()
        if not fresh:
            self.order.forget()
            if self.machine.world is not None:
                rows = len(self.blocks) * self.machine.warps
                self.machine.world.forget(self.slot * rows, rows)
            self.blocks = [Block(self, rank) for rank in self.ranks]
        if self.shadow is not None:
            if not fresh:
                self.shadow.forget()
            for block in self.blocks:
                for allocation in self.machine.allocations:
                    self.shadow.allocate(block.base + allocation.base, allocation.nbytes)

    def view(self, dtype: Any) -> Array:
        """Shared memory of all ranks as elements of a dtype."""
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.smem.view(dtype)
        return found

    def place(self, address: int) -> str:
        """Name a byte of the cluster's shared memory by its allocation."""
        rank, inside = divmod(address, self.stride)
        name = f"shared address {inside}"
        for allocation in self.machine.allocations:
            if allocation.base <= inside < allocation.base + allocation.nbytes:
                name = f"{allocation.name}+{inside - allocation.base} B"
        return name if len(self.blocks) == 1 else f"{name} of rank {rank}"


class Block:
    """A CTA of a cluster."""

    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.cluster, self.rank = cluster, rank
        self.machine = cluster.machine
        self.base = rank * cluster.stride
        x, y, z = self.machine.threads
        self.threads = x * y * z
        self.barriers: dict[int, Any] = {}
        self.name = str(rank)
        self.launch: Any = None
        self.ended = 0
        self.warps = [Warp(self, index) for index in range(self.machine.warps)]

    def absolute(self, address: Array, *, window: bool = False) -> Array:
        """Shared addresses of this CTA, or of the cluster's window, as bytes of the cluster's memory: uint32."""
        own: Array = address.astype(np.uint32)
        if self.base:
            own = own + np.uint32(self.base)
        if not window and len(self.cluster.ranks) == 1:
            return own
        remote = address >= WINDOW
        if not remote.any():
            return own
        offset = address.astype(np.uint32) - np.uint32(WINDOW)
        rank = offset >> np.uint32(RANK_SHIFT)
        inside = offset & np.uint32((1 << RANK_SHIFT) - 1)
        return np.where(remote, rank * np.uint32(self.cluster.stride) + inside, own)


class Warp:
    """Up to 32 threads that issue together."""

    def __init__(self, block: Block, index: int) -> None:
        self.block = block
        self.machine = block.machine
        self.cluster = block.cluster
        self.index = index
        #: row of the cluster's order
        self.agent = block.rank * block.machine.warps + index
        #: row of the grid's order
        self.row = block.cluster.slot * len(block.cluster.ranks) * block.machine.warps + self.agent
        self.lanes = np.arange(LANES)
        self.thread = (self.lanes + index * LANES).astype(np.int32)
        x, y, _ = block.machine.threads
        self.thread_x = self.thread % np.int32(x)
        self.thread_y = self.thread // np.int32(x) % np.int32(y)
        self.thread_z = self.thread // np.int32(x * y)
        #: lanes beyond the block's last thread never run
        self.start: Mask = None
        if (index + 1) * LANES > block.threads:
            self.start = self.thread < block.threads
        self.open_copies: list[Copy] = []
        self.copy_groups: list[tuple[list[Copy], list[int]]] = []
        self.copy_epochs: dict[int, int] = {}
        self.copy_lanes: set[int] = set()
        #: bulk copies out of shared memory: (copy, epochs of the reads, epochs of the global writes)
        self.bulk_open: list[tuple[Copy, list[int], list[int]]] = []
        self.bulk_groups: list[list[tuple[Copy, list[int], list[int]]]] = []
        #: wgmma: (product, epochs of its reads, registers that it uses), and what was executed
        self.wgmma_open: list[tuple[Copy, list[int], list[Any]]] = []
        self.wgmma_groups: list[list[tuple[Copy, list[int], list[Any]]]] = []
        self.wgmma_last: Copy | None = None
        self.wgmma_retired = 0
        self.wgmma_log: list[tuple[Site, int]] = []
        #: barrier of the cluster: arrivals and waits so far, and whether mbarrier initialisations were published
        self.cluster_phase = 0
        self.cluster_waits = 0
        self.published_init = False
        #: what the last fence published, and what relaxed operations saw since
        self.published: Any = None
        self.seen: list[Any] = []

    def whole(self, mask: Mask, what: Site | str) -> None:
        """Refuse a warp-collective instruction that some lanes do not execute."""
        if mask is None or mask is self.start:
            return
        if np.count_nonzero(mask) != len(mask):
            absent = np.flatnonzero(~mask)
            raise Fault(
                f"divergence: lanes {_ranges(absent)} of warp {self.index} do not take part",
                at=what,
                hint="a warp-collective instruction needs all lanes: move it out of the branch",
            )

    def meet(self, mask: Mask, what: Site | str) -> None:
        """A ``.sync`` instruction: all lanes execute it together."""
        self.whole(mask, what)
        self.cluster.order.converge(self.agent)
        if self.machine.world is not None:
            self.machine.world.converge(self.row)


def active(warp: Warp, mask: Mask, values: Array) -> tuple[Array, Array]:
    """Lanes under the mask and their part of a vector."""
    if mask is None:
        return warp.lanes, values
    lanes = np.flatnonzero(mask)
    return lanes, values[lanes]


def one(value: Any, mask: Mask, what: Site | str) -> int:
    """The single value of an operand that has to be the same in all active lanes."""
    if not isinstance(value, np.ndarray):
        return int(value)
    values = value if mask is None else value[mask]
    if len(values) and np.count_nonzero(values == values[0]) != len(values):
        raise Fault(
            f"uniform: lanes disagree about an operand: {sorted(set(values.tolist()))[:8]}",
            at=what,
            hint="the operand has to be the same in all lanes of the warp",
        )
    return int(values[0])


def _ranges(lanes: Array) -> str:
    numbers = lanes.tolist()
    return f"{numbers}" if len(numbers) <= 8 else f"{numbers[:4]}..{numbers[-1]}"
