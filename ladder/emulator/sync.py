"""What synchronisation does to knowledge: one place for the shared memory of a cluster and for global memory.

A warp has a row in its cluster's order and one in the grid's ("world"), where that exists; whatever synchronises acts on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ladder.emulator.order import Knowledge, including, united
from ladder.emulator.warp import Warp


@dataclass(frozen=True, slots=True)
class Known:
    """What one warp hands to another: about shared memory (of one cluster), and about global memory."""

    cluster: int
    shared: Knowledge
    world: Knowledge | None


def release(warp: Warp) -> Known:
    """What the warp knows and did, to be handed on."""
    world = warp.machine.world
    return Known(
        id(warp.cluster),
        warp.cluster.order.release(warp.agent),
        None if world is None else world.release(warp.row),
    )


def acquire(warp: Warp, known: Known) -> None:
    """Order what the warp does from now on after what it is handed."""
    if known.cluster == id(warp.cluster):
        warp.cluster.order.acquire(warp.agent, known.shared)
    world = warp.machine.world
    if world is not None and known.world is not None:
        world.acquire(warp.row, known.world)


def unite(parts: Sequence[Known]) -> Known:
    """Unite what several warps released; about shared memory, what those of the first one's cluster did."""
    head = parts[0]
    worlds = [part.world for part in parts if part.world is not None]
    return Known(
        head.cluster,
        united([part.shared for part in parts if part.cluster == head.cluster]),
        united(worlds) if worlds else None,
    )


def with_copies(known: Known, epochs: Iterable[int]) -> Known:
    """Knowledge that includes asynchronous writes to shared memory."""
    return Known(known.cluster, including(known.shared, epochs), known.world)


def warp_sync(warp: Warp) -> None:
    """The lanes of the warp meet and see each other's writes."""
    warp.cluster.order.warp_sync(warp.agent)
    if warp.machine.world is not None:
        warp.machine.world.warp_sync(warp.row)
