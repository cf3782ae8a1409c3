"""Bulk copies by the async proxy: ``cp.async.bulk`` and ``cp.reduce.async.bulk`` in one dimension (PTX ISA).

Each lane that executes one issues one copy. A copy into shared memory signals an mbarrier; a copy out of it belongs to the issuing
thread's bulk group, whose wait says that the source may be reused (``.read``) or that the result is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ladder.emulator import mbarrier
from ladder.emulator.memory import global_bounds, shared_bounds, vector
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, Block, Copy, GlobalBuffer, Mask, Warp, active

CHUNK = 16


def chunks(first: int, nbytes: int) -> Array:
    """Addresses of the 16-byte chunks of a run: uint32."""
    return np.arange(first, first + nbytes, CHUNK, dtype=np.uint32)


def lanes_of(warp: Warp, mask: Mask, *values: Any) -> list[tuple[int, ...]]:
    """The operands of each active lane."""
    lanes, _ = active(warp, mask, warp.lanes)
    columns = [vector(warp, v, np.int64)[lanes].tolist() for v in values]
    return list(zip(*columns, strict=True))


def fill(
    warp: Warp,
    site: Site,
    places: Array,
    data: Callable[[], Array],
    barrier: mbarrier.MBarrier,
    reads: Sequence[int] = (),
) -> None:
    """Write 16-byte chunks to absolute shared addresses and signal an mbarrier, some time later.

    ``reads`` are epochs of the same copy's reads, over when it signals.
    """
    cluster = warp.cluster
    epochs = list(reads)
    marks = np.full(len(places), -2)
    if cluster.shadow is not None:
        agent = f"a bulk copy of warp {warp.index}"
        epochs.append(cluster.order.new_epoch(agent, warp.agent, site, proxy=True))
        cluster.shadow.write_as(epochs[-1], warp.agent, site, places, marks, CHUNK)
    else:
        shared_bounds(places, CHUNK, site, warp, marks)

    def perform() -> None:
        cluster.view(np.complex128)[places // CHUNK] = data()
        barrier.complete(CHUNK * len(places), epochs)

    if warp.machine.counters is not None:
        warp.machine.counters.add("shared.bulk.bytes", CHUNK * len(places))
    warp.machine.launch(Copy(perform, cluster))


def drain(
    warp: Warp, site: Site, places: Array, perform: Callable[[Array], None], world: list[int]
) -> None:
    """Read 16-byte chunks from absolute shared addresses, some time before the group's wait."""
    cluster = warp.cluster
    epochs: list[int] = []
    marks = np.full(len(places), -2)
    if cluster.shadow is not None:
        agent = f"a bulk copy of warp {warp.index}"
        epochs = [cluster.order.new_epoch(agent, warp.agent, site, reads=True, proxy=True)]
        cluster.shadow.read_as(epochs[0], warp.agent, site, places, marks, CHUNK)
    else:
        shared_bounds(places, CHUNK, site, warp, marks)
    copy = Copy(lambda: perform(cluster.view(np.complex128).take(places // CHUNK)), cluster)
    warp.bulk_open.append((copy, epochs, world))
    if warp.machine.counters is not None:
        warp.machine.counters.add("shared.bulk.bytes", CHUNK * len(places))
    warp.machine.launch(copy)


def _whole(value: int, what: str, site: Site) -> None:
    if value % CHUNK:
        raise Fault(
            f"misaligned: {what} of a bulk copy is {value}",
            at=site,
            hint="addresses and sizes of bulk copies are multiples of 16",
        )


def bulk_load(
    warp: Warp,
    mask: Mask,
    site: Site,
    target: Any,
    source: tuple[GlobalBuffer, Any],
    size: Any,
    barrier: Any,
    *ranks: Any,
) -> None:
    """Copy ``size`` bytes from global memory to shared memory, of each rank of a mask if there is one."""
    block, (buffer, offset) = warp.block, source
    for dst, src, nbytes, bar, *bits in lanes_of(warp, mask, target, offset, size, barrier, *ranks):
        for value, what in ((dst, "the target"), (src, "the source"), (nbytes, "the size")):
            _whole(value, what, site)
        global_bounds(warp, np.array([0]), buffer, np.array([src]), nbytes, site, align=CHUNK)
        if buffer.shadow is not None:
            buffer.shadow.read(warp.row, site, chunks(src, nbytes), np.zeros(1), CHUNK)
        data = buffer.view(np.complex128)[src // CHUNK : (src + nbytes) // CHUNK].copy
        for place, signal in destinations(block, dst, bar, *bits):
            found = mbarrier.find(warp, signal, site, proxy=True)
            fill(warp, site, chunks(place, nbytes), data, found)


def destinations(
    block: Block, target: int, barrier: int, bits: int | None = None
) -> list[tuple[int, int]]:
    """Absolute (target, mbarrier) addresses: one, or the same places in every CTA of a mask."""
    both = np.array([target, barrier], np.int64)
    place, signal = block.absolute(both, window=True).tolist()
    if bits is None:
        return [(place, signal)]
    stride = block.cluster.stride
    return [
        (rank * stride + place % stride, rank * stride + signal % stride)
        for rank in block.cluster.ranks
        if bits >> rank & 1
    ]


def bulk_store(
    warp: Warp, mask: Mask, site: Site, buffer: GlobalBuffer, offset: Any, source: Any, size: Any
) -> None:
    """Copy ``size`` bytes from shared memory to global memory."""
    for dst, src, nbytes in lanes_of(warp, mask, offset, source, size):
        for value, what in ((dst, "the target"), (src, "the source"), (nbytes, "the size")):
            _whole(value, what, site)
        global_bounds(warp, np.array([0]), buffer, np.array([dst]), nbytes, site, align=CHUNK)
        world = write_world(warp, site, buffer, chunks(dst, nbytes))

        def perform(rows: Array, dst: int = dst, nbytes: int = nbytes) -> None:
            buffer.view(np.complex128)[dst // CHUNK : (dst + nbytes) // CHUNK] = rows

        buffer.written = True
        place = int(warp.block.absolute(np.array([src]))[0])
        drain(warp, site, chunks(place, nbytes), perform, world)


def bulk_reduce(
    warp: Warp,
    mask: Mask,
    site: Site,
    buffer: GlobalBuffer,
    offset: Any,
    source: Any,
    size: Any,
    update: Any,
) -> None:
    """Combine ``size`` bytes of shared memory into global memory, element by element."""
    for dst, src, nbytes in lanes_of(warp, mask, offset, source, size):
        for value, what in ((dst, "the target"), (src, "the source"), (nbytes, "the size")):
            _whole(value, what, site)
        global_bounds(warp, np.array([0]), buffer, np.array([dst]), nbytes, site, align=CHUNK)
        if buffer.shadow is not None:
            buffer.shadow.atomic(warp.row, site, chunks(dst, nbytes), np.zeros(1), CHUNK)

        def perform(rows: Array, dst: int = dst, nbytes: int = nbytes) -> None:
            view = buffer.data[dst : dst + nbytes].view(update.dtype)
            view[:] = [
                update.function(a, b) for a, b in zip(view, rows.view(update.dtype), strict=True)
            ]

        buffer.written = True
        place = int(warp.block.absolute(np.array([src]))[0])
        drain(warp, site, chunks(place, nbytes), perform, [])


def write_world(warp: Warp, site: Site, buffer: GlobalBuffer, offset: Array) -> list[int]:
    """Record an asynchronous write to global memory; returns its epoch, to be learnt at the group's wait."""
    world = warp.machine.world
    if buffer.shadow is None or world is None:
        return []
    epoch = world.new_epoch(f"a bulk copy of warp {warp.index}", warp.row, site, proxy=True)
    buffer.shadow.write_as(epoch, warp.row, site, offset, np.zeros(1, np.int64), CHUNK)
    return [epoch]


def bulk_exchange(
    warp: Warp, mask: Mask, site: Site, target: Any, source: Any, size: Any, barrier: Any
) -> None:
    """Copy ``size`` bytes from this CTA's shared memory to that of a CTA of the cluster."""
    cluster = warp.cluster
    for dst, src, nbytes, bar in lanes_of(warp, mask, target, source, size, barrier):
        for value, what in ((dst, "the target"), (src, "the source"), (nbytes, "the size")):
            _whole(value, what, site)
        place = int(warp.block.absolute(np.array([src]))[0])
        rows = chunks(place, nbytes)
        reads: list[int] = []
        if cluster.shadow is not None:
            agent = f"a bulk copy of warp {warp.index}"
            reads = [cluster.order.new_epoch(agent, warp.agent, site, reads=True, proxy=True)]
            marks = np.full(len(rows), -2)
            cluster.shadow.read_as(reads[0], warp.agent, site, rows, marks, CHUNK)
        ((there, signal),) = destinations(warp.block, dst, bar)
        found = mbarrier.find(warp, signal, site, proxy=True)

        def data(rows: Array = rows) -> Array:
            taken: Array = cluster.view(np.complex128).take(rows // CHUNK)
            return taken

        fill(warp, site, chunks(there, nbytes), data, found, reads)


# ---- groups --------------------------------------------------------------------------------------------------------


def bulk_commit(warp: Warp, _mask: Mask, _site: Site) -> None:
    """Close the bulk group."""
    warp.bulk_groups.append(warp.bulk_open)
    warp.bulk_open = []


def bulk_wait(warp: Warp, _mask: Mask, _site: Site, pending: int, *, read: bool) -> None:
    """Wait until at most ``pending`` groups are in flight; with ``read`` only their sources are free again."""
    done = len(warp.bulk_groups) - pending
    for group in warp.bulk_groups[: max(0, done)]:
        for copy, epochs, world in group:
            copy.run()
            warp.cluster.order.learn(warp.agent, epochs)
            if not read and warp.machine.world is not None:
                warp.machine.world.learn(warp.row, world)
    if not read and done > 0:
        del warp.bulk_groups[:done]
