"""Clusters: their barrier, addresses in each other's shared memory, asynchronous stores (PTX ISA barrier.cluster, mapa, st.async)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ladder.emulator import mbarrier, sync
from ladder.emulator.atomics import Update
from ladder.emulator.memory import WIDE, shared_bounds, vector, wide_rows
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import RANK_SHIFT, WINDOW, Array, Cluster, Copy, Mask, Steps, Warp, active


@dataclass
class ClusterBarrier:
    """The barrier of a cluster: phases of arrive and wait."""

    arrived: set[int] = field(default_factory=set)
    phase: int = 0
    parts: list[sync.Known] = field(default_factory=list)
    done: sync.Known | None = None

    def __str__(self) -> str:
        return f"barrier of the cluster: warps {sorted(self.arrived)} came"


def barrier_of(cluster: Cluster) -> ClusterBarrier:
    """The barrier of a cluster."""
    found: ClusterBarrier = cluster.barriers.setdefault(0, ClusterBarrier())
    return found


def cluster_arrive(warp: Warp, mask: Mask, site: Site, *, relaxed: bool = False) -> None:
    """``barrier.cluster.arrive``; relaxed it publishes nothing but mbarrier initialisations."""
    warp.whole(mask, site)
    barrier = barrier_of(warp.cluster)
    if warp.agent in barrier.arrived or warp.cluster_phase != barrier.phase:
        raise Fault(
            f"barrier: warp {warp.index} arrives twice at the barrier of its cluster", at=site
        )
    barrier.arrived.add(warp.agent)
    if not relaxed or warp.published_init:
        barrier.parts.append(sync.release(warp))
    warp.cluster_phase += 1
    warp.machine.progress += 1
    if len(barrier.arrived) == warp.cluster.order.warps:
        barrier.done = sync.unite(barrier.parts) if barrier.parts else None
        barrier.arrived, barrier.parts = set(), []
        barrier.phase += 1


def cluster_wait(warp: Warp, mask: Mask, site: Site) -> Steps:
    """``barrier.cluster.wait``."""
    warp.whole(mask, site)
    barrier = barrier_of(warp.cluster)
    if warp.cluster_waits >= warp.cluster_phase:
        raise Fault(f"barrier: warp {warp.index} waits without having arrived", at=site)
    warp.cluster_waits += 1
    wanted = warp.cluster_waits
    yield f"{site}: waits for its cluster", lambda: barrier.phase >= wanted
    if barrier.done is not None:
        sync.acquire(warp, barrier.done)


def cluster_sync(warp: Warp, mask: Mask, site: Site) -> Steps:
    """Arrive and wait."""
    cluster_arrive(warp, mask, site)
    yield from cluster_wait(warp, mask, site)


def fence_mbarrier_init(warp: Warp, _mask: Mask, _site: Site) -> None:
    """``fence.mbarrier_init``: initialisations so far are seen by the async proxy and by who meets this warp next."""
    warp.cluster.order.fence_proxy(warp.agent)
    warp.published_init = True


def fence_proxy(warp: Warp, _mask: Mask, _site: Site) -> None:
    """``fence.proxy.async``: what the warp did and knows is seen by the async proxy."""
    warp.cluster.order.fence_proxy(warp.agent)


def mapa(warp: Warp, _mask: Mask, site: Site, address: Any, rank: Any) -> Array:
    """The address of the same place in the shared memory of another CTA of the cluster."""
    a = vector(warp, address, np.int64).astype(np.int64)
    r = vector(warp, rank, np.int64).astype(np.int64)
    if ((r < 0) | (r >= len(warp.cluster.ranks))).any():
        raise Fault(
            f"bounds: rank {int(r.max())} of a cluster of {len(warp.cluster.ranks)}", at=site
        )
    return (WINDOW + (r << RANK_SHIFT) + (a & ((1 << RANK_SHIFT) - 1))).astype(np.uint32)


def store_async(
    warp: Warp,
    mask: Mask,
    site: Site,
    address: Any,
    values: Sequence[Any],
    dtype: Any,
    signal: Any,
    update: Update | None = None,
) -> None:
    """``st.async`` and ``red.async``: write to another CTA's shared memory and signal an mbarrier there."""
    lanes, a = active(warp, mask, vector(warp, address, np.int64))
    if not len(a):
        return
    cluster, block = warp.cluster, warp.block
    places = block.absolute(a, window=True)
    signals = block.absolute(vector(warp, signal, np.int64)[lanes], window=True)
    width = np.dtype(dtype).itemsize * len(values)
    rows = wide_rows(warp, lanes, values, dtype)
    epochs: list[int] = []
    if cluster.shadow is not None:
        agent = f"an asynchronous store of warp {warp.index}"
        epochs = [cluster.order.new_epoch(agent, warp.agent, site)]
        record = cluster.shadow.write_as if update is None else cluster.shadow.atomic_as
        record(epochs[0], warp.agent, site, places, lanes, width)
    else:
        shared_bounds(places, width, site, warp, lanes)
    found = [mbarrier.find(warp, s, site) for s in signals.tolist()]

    def perform() -> None:
        if update is None:
            cluster.view(WIDE[width])[places // width] = rows
        else:
            _update_each(cluster.view(dtype), places // width, rows.view(dtype), update)
        for barrier in found:
            barrier.complete(width, epochs)

    warp.machine.launch(Copy(perform, cluster))


def _update_each(view: Array, index: Array, operands: Array, update: Update) -> None:
    """Update elements one after another: several lanes may name one place."""
    assert update.function is not None
    for place, operand in zip(index.tolist(), operands, strict=True):
        view[place] = update.function(view[place], operand)
