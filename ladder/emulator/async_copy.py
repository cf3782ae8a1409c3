"""``cp.async``: copies of 4, 8 or 16 bytes a lane from global to shared memory (PTX ISA cp.async).

A copy may happen at any time between its issue and the wait for its group; the schedule chooses. To the race detector it is a
write by an agent of its own, which the issuing lane may read after the wait and others after a barrier too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ladder.emulator.memory import WIDE, global_bounds, shared_bounds, vector
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import LANES, Array, Copy, GlobalBuffer, Mask, Warp, active


def cp_async(
    warp: Warp,
    mask: Mask,
    site: Site,
    target: Any,
    buffer: GlobalBuffer,
    offset: Any,
    size: int,
    source_size: Any = None,
) -> None:
    """Issue one copy a lane; with ``source_size`` the bytes beyond it are zeroed and not read."""
    lanes, a = active(warp, mask, vector(warp, target, np.int64))
    if not len(a):
        return
    if len(warp.copy_lanes) < LANES:
        warp.copy_lanes.update(lanes.tolist())
    a = warp.block.absolute(a)
    o = vector(warp, offset, np.int64)[lanes].astype(np.int64)
    if size not in (4, 8, 16):
        raise Fault(f"unsupported: cp.async of {size} bytes", at=site, hint="4, 8 or 16")
    kept = None
    if source_size is not None:
        kept = vector(warp, source_size, np.int64)[lanes].astype(np.int64)
    _check(warp, lanes, site, a, buffer, o, size, kept)
    _count(warp, a, o, size)
    copy = Copy(_perform(warp, a, buffer, o, size, kept), warp.cluster)
    warp.open_copies.append(copy)
    warp.machine.launch(copy)


def _check(
    warp: Warp,
    lanes: Array,
    site: Site,
    a: Array,
    buffer: GlobalBuffer,
    o: Array,
    size: int,
    kept: Array | None,
) -> None:
    if np.count_nonzero(a & (size - 1)):
        at = int(np.flatnonzero(a & (size - 1))[0])
        raise Fault(
            f"misaligned: lane {int(lanes[at])} of warp {warp.index} copies {size} bytes to shared "
            f"address {int(a[at])}",
            at=site,
            hint=f"the address of a {size}-byte copy has to be a multiple of {size}",
        )
    if kept is None:
        global_bounds(warp, lanes, buffer, o, size, site)
    else:
        _check_partial(warp, lanes, site, buffer, o, size, kept)
    if buffer.shadow is not None:
        whole = np.full(len(o), True) if kept is None else kept == size
        buffer.shadow.read(warp.row, site, o[whole], lanes[whole], size)
    shadow = warp.cluster.shadow
    if shadow is None:
        shared_bounds(a, size, site, warp, lanes)
        return
    epoch = warp.copy_epochs.get(site.number)
    if epoch is None:
        epoch = shadow.order.new_epoch(f"cp.async of warp {warp.index}", warp.agent, site)
        warp.copy_epochs[site.number] = epoch
    shadow.write_as(epoch, warp.agent, site, a, lanes, size)


def _check_partial(
    warp: Warp,
    lanes: Array,
    site: Site,
    buffer: GlobalBuffer,
    o: Array,
    size: int,
    kept: Array,
) -> None:
    wrong = (kept < 0) | (kept > size)
    if wrong.any():
        raise Fault(
            f"bounds: cp.async reads {int(kept[wrong][0])} of {size} bytes",
            at=site,
            hint="the source size lies between 0 and the copy's size",
        )
    reading = kept > 0
    outside = reading & ((o < 0) | (o + kept > buffer.nbytes))
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise Fault(
            f"bounds: lane {int(lanes[at])} of warp {warp.index} copies {int(kept[at])} bytes from "
            f"byte {int(o[at])} of {buffer.name}, which has {buffer.nbytes}",
            at=site,
            hint="shorten the source size at the edge",
        )
    if np.count_nonzero(o[reading] & (size - 1)):
        raise Fault(
            f"misaligned: a {size}-byte copy from byte {int(o[reading][0])} of {buffer.name}",
            at=site,
            hint=f"the source has to be a multiple of {size}",
        )


def _count(warp: Warp, a: Array, o: Array, size: int) -> None:
    counters = warp.machine.counters
    if counters is not None:
        counters.shared("cp.async", a, size)
        counters.memory("cp.async", o, size)


def _perform(
    warp: Warp, a: Array, buffer: GlobalBuffer, o: Array, size: int, kept: Array | None
) -> Any:
    cluster, wide = warp.cluster, WIDE[size]

    def whole() -> None:
        cluster.view(wide)[a // size] = buffer.view(wide).take(o // size)

    def partial() -> None:
        assert kept is not None
        inside = np.arange(size) < kept[:, None]
        source = np.where(inside, o[:, None] + np.arange(size), 0)
        rows = np.where(inside, buffer.data.take(source), np.uint8(0))
        cluster.smem[a[:, None] + np.arange(size)] = rows

    return whole if kept is None else partial


def _lanes_agree(warp: Warp, mask: Mask, site: Site) -> None:
    """Groups are kept by warp here: lanes that issued copies have to commit and wait together."""
    if mask is None or mask is warp.start:
        return
    if not warp.copy_lanes <= set(np.flatnonzero(mask).tolist()):
        raise Fault(
            "unsupported: some lanes that issued copies do not commit or wait",
            at=site,
            hint="commit and wait outside the branch",
        )


def commit_group(warp: Warp, mask: Mask, site: Site) -> None:
    """Close the group of copies issued since the last commit."""
    _lanes_agree(warp, mask, site)
    warp.copy_groups.append((warp.open_copies, list(warp.copy_epochs.values())))
    warp.open_copies, warp.copy_epochs = [], {}


def wait_group(warp: Warp, mask: Mask, site: Site, pending: int) -> None:
    """Wait until at most ``pending`` groups are in flight."""
    _lanes_agree(warp, mask, site)
    while len(warp.copy_groups) > pending:
        copies, epochs = warp.copy_groups.pop(0)
        for copy in copies:
            copy.run()
        warp.cluster.order.adopt(warp.agent, epochs)


def wait_all(warp: Warp, mask: Mask, site: Site) -> None:
    """Commit what is open and wait for everything (PTX ISA cp.async.wait_all)."""
    commit_group(warp, mask, site)
    wait_group(warp, mask, site, 0)
