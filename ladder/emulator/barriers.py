"""Barriers of a CTA: ``bar.sync``, ``bar.arrive``, ``__syncwarp`` (PTX ISA barrier, bar.warp.sync)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ladder.emulator import sync
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import LANES, Block, Mask, Steps, Warp, one

BARRIERS = 16


@dataclass
class NamedBarrier:
    """One of the 16 barriers of a CTA, between two completions."""

    threads: int = 0
    waiting: list[Warp] = field(default_factory=list)
    arrived: list[Warp] = field(default_factory=list)
    knowledge: list[sync.Known] = field(default_factory=list)
    open: bool = True

    def __str__(self) -> str:
        warps = sorted(w.index for w in [*self.waiting, *self.arrived])
        return f"{LANES * len(warps)} of {self.threads} threads came, warps {warps}"


def _join(warp: Warp, mask: Mask, site: Site, number: Any, threads: Any) -> NamedBarrier:
    block = warp.block
    warp.whole(mask, site)
    index = one(number, mask, site)
    if not 0 <= index < BARRIERS:
        raise Fault(f"barrier: number {index}", at=site, hint=f"a CTA has {BARRIERS} barriers")
    whole = (block.threads + LANES - 1) // LANES * LANES
    count = whole if threads is None else one(threads, mask, site)
    if count % LANES or not 0 < count <= whole:
        raise Fault(
            f"barrier: {count} threads of a CTA of {block.threads}",
            at=site,
            hint="a barrier takes a multiple of 32 threads, at most those of the CTA",
        )
    barrier = block.barriers.get(index)
    if barrier is None:
        barrier = block.barriers[index] = NamedBarrier(count)
    if barrier.threads != count:
        raise Fault(
            f"barrier: warp {warp.index} expects {count} threads at barrier {index}, others "
            f"{barrier.threads}",
            at=site,
            hint="all participants of a barrier name the same count",
        )
    if warp in barrier.waiting or warp in barrier.arrived:
        raise Fault(
            f"barrier: warp {warp.index} comes twice to barrier {index} before it completes",
            at=site,
        )
    barrier.knowledge.append(sync.release(warp))
    return barrier


def _complete(block: Block, number: int, barrier: NamedBarrier) -> bool:
    if LANES * (len(barrier.waiting) + len(barrier.arrived)) < barrier.threads:
        return False
    barrier.open = False
    block.machine.progress += 1
    del block.barriers[number]
    order = block.cluster.order
    union = sync.unite(barrier.knowledge)
    for warp in barrier.waiting:
        sync.acquire(warp, union)
    if len(barrier.waiting) == order.warps:
        order.everyone_met()
    return True


def bar_sync(warp: Warp, mask: Mask, site: Site, number: Any = 0, threads: Any = None) -> Steps:
    """Arrive and wait until all participants have arrived."""
    barrier = _join(warp, mask, site, number, threads)
    barrier.waiting.append(warp)
    index = one(number, mask, site)
    if _complete(warp.block, index, barrier):
        yield f"barrier {index} passed", None
    else:
        yield f"{site}: waits at barrier {index}", lambda: not barrier.open


def bar_arrive(warp: Warp, mask: Mask, site: Site, number: Any, threads: Any) -> Steps:
    """Arrive without waiting."""
    barrier = _join(warp, mask, site, number, threads)
    barrier.arrived.append(warp)
    _complete(warp.block, one(number, mask, site), barrier)
    yield "arrived", None


def warp_sync(warp: Warp, mask: Mask, site: Site, _members: Any = None) -> None:
    """``__syncwarp``: the lanes meet and see each other's writes."""
    warp.whole(mask, site)
    sync.warp_sync(warp)
