"""State of a CTA and of its warps while a kernel runs.

Lanes are vectors: a warp of one CTA has 32 lanes; a warp that runs for several CTAs in step has 32 for each of them, CTA
after CTA. Registers hold arrays that are never changed in place, so that a copy is a reference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.counters import Counters
from ladder.emulator.race import Shadow, Truths
from ladder.emulator.report import Fault, Site

LANES = 32
Array = npt.NDArray[Any]
Mask = Array | None
#: what a warp yields: why it stops, and what it waits for (None: nothing, let others run)
Wait = tuple[str, Callable[[], bool] | None]
Steps = Iterator[Wait]


@dataclass
class GlobalBuffer:
    """A kernel argument in global memory: padded bytes, of which the first ``nbytes`` exist."""

    name: str
    data: Array
    nbytes: int
    number: int
    written: bool = False
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
    """An asynchronous copy that was issued and has not been carried out."""

    perform: Callable[[], None]
    done: bool = False

    def run(self) -> None:
        """Carry it out, once."""
        if not self.done:
            self.done = True
            self.perform()


class Block:
    """A CTA: shared memory, its shadow, its warps and what is in flight."""

    def __init__(
        self,
        threads: tuple[int, int, int],
        allocations: tuple[Allocation, ...],
        *,
        granule: int,
        detect: bool,
        rng: random.Random,
        policy: str,
        counters: Counters | None,
    ) -> None:
        self.shape = threads
        self.threads = threads[0] * threads[1] * threads[2]
        self.allocations = allocations
        self.first = min((a.base for a in allocations), default=0)
        self.end = max((a.base + a.nbytes for a in allocations), default=0)
        size = (self.end + 1024) // 16 * 16
        self.smem = np.full(size, 0xBA, np.uint8)
        self._views: dict[Any, Array] = {}
        self.rng, self.policy, self.counters = rng, policy, counters
        self.copies: list[Copy] = []
        self.barriers: dict[int, Any] = {}
        self.mbarriers: dict[int, Any] = {}
        self.progress = 0
        self.steps = 0
        count = (self.threads + LANES - 1) // LANES
        self.shadow = self._shadow(granule, count) if detect else None
        self.warps = [Warp(self, index) for index in range(count)]

    def _shadow(self, granule: int, warps: int) -> Shadow:
        shift = granule.bit_length() - 1
        shadow = Shadow(len(self.smem) >> shift, shift, warps, warps)
        for allocation in self.allocations:
            first, last = allocation.base >> shift, (allocation.base + allocation.nbytes) >> shift
            shadow.writer[first:last] = 2
        shadow.place = self.place
        return shadow

    def view(self, dtype: Any) -> Array:
        """Shared memory as elements of a dtype."""
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.smem.view(dtype)
        return found

    def place(self, address: int) -> str:
        """Name a shared address by its allocation."""
        for allocation in self.allocations:
            if allocation.base <= address < allocation.base + allocation.nbytes:
                return f"{allocation.name}+{address - allocation.base} B"
        return f"shared address {address}"


class Warp:
    """Up to 32 threads that issue together."""

    def __init__(self, block: Block, index: int) -> None:
        self.block = block
        self.index = index
        self.lanes = np.arange(LANES)
        self.thread = (self.lanes + index * LANES).astype(np.int32)
        x, y, _ = block.shape
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
        self.registers: dict[str, Array] = {}

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
        if self.block.shadow is not None:
            self.block.shadow.converge(self.index)


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


__all__ = [
    "LANES",
    "Allocation",
    "Array",
    "Block",
    "Copy",
    "GlobalBuffer",
    "Mask",
    "Steps",
    "Truths",
    "Wait",
    "Warp",
    "active",
    "one",
]
