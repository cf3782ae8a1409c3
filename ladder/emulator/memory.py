"""Loads and stores of shared and global memory, with bounds, alignment and the race detector.

Addresses of shared memory are bytes from 0 as uint32, so that a negative one lies far outside; a global access names its buffer and an index in elements or an offset in
bytes. ``count`` consecutive elements of one lane are one access (a vector load), and give one array for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, GlobalBuffer, Mask, Warp, active

#: a dtype of each width in bytes, to move bits without reading them as numbers
WIDE: dict[int, Any] = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
    16: np.complex128,
}


def vector(warp: Warp, value: Any, dtype: Any) -> Array:
    """Broadcast a uniform value over the lanes; leave a vector as it is."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    return np.full(len(warp.lanes), value, dtype)


def _spread(warp: Warp, mask: Mask, lanes: Array, values: Array) -> Array:
    if mask is None:
        return values
    out = np.zeros(len(warp.lanes), values.dtype)
    out[lanes] = values
    return out


def _aligned(address: Array, width: int, site: Site, warp: Warp, lanes: Array) -> None:
    wrong = address & (width - 1)
    if np.count_nonzero(wrong):
        at = int(np.flatnonzero(wrong)[0])
        raise Fault(
            f"misaligned: lane {int(lanes[at])} of warp {warp.index} accesses {width} bytes "
            f"at {int(address[at])}",
            at=site,
            hint=f"the address of a {width}-byte access has to be a multiple of {width}",
        )


# ---- shared memory -------------------------------------------------------------------------------------------------


def shared_read(warp: Warp, lanes: Array, address: Array, width: int, site: Site) -> None:
    """Check and record a read of shared memory."""
    shadow = warp.cluster.shadow
    _aligned(address, width, site, warp, lanes)
    if shadow is not None:
        shadow.read(warp.agent, site, address, lanes, width)
    else:
        shared_bounds(address, width, site, warp, lanes)


def shared_write(warp: Warp, lanes: Array, address: Array, width: int, site: Site) -> None:
    """Check and record a write of shared memory."""
    shadow = warp.cluster.shadow
    _aligned(address, width, site, warp, lanes)
    if shadow is not None:
        shadow.write(warp.agent, site, address, lanes, width)
    else:
        shared_bounds(address, width, site, warp, lanes)


def shared_bounds(address: Array, width: int, site: Site, warp: Warp, lanes: Array) -> None:
    """Refuse addresses outside the allocations of every CTA of the cluster, where no shadow does it."""
    cluster = warp.cluster
    inside = address % np.uint32(cluster.stride)
    wrong = (inside < cluster.first) | (inside > cluster.end - width)
    wrong |= address >= len(cluster.smem)
    if np.count_nonzero(wrong):
        at = int(np.flatnonzero(wrong)[0])
        raise Fault(
            f"bounds: lane {int(lanes[at])} of warp {warp.index} touches shared byte "
            f"{int(address[at])} of {cluster.end}",
            at=site,
            hint="check the index against the allocation's size",
        )


def load_shared(
    warp: Warp, mask: Mask, site: Site, address: Any, dtype: Any, count: int = 1
) -> Any:
    """Load ``count`` elements a lane: an array, or a list of arrays when ``count`` is over 1."""
    lanes, a = active(warp, mask, vector(warp, address, np.int64))
    width = np.dtype(dtype).itemsize * count
    a = warp.block.absolute(a)
    if not len(a):
        return nothing(warp, dtype, count)
    shared_read(warp, lanes, a, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.shared("load", a, width)
    return _gather(warp, mask, lanes, warp.cluster.view(WIDE[width]), a, dtype, count)


def nothing(warp: Warp, dtype: Any, count: int) -> Any:
    """What a load gives when no lane takes part."""
    zero = np.zeros(len(warp.lanes), dtype)
    return zero if count == 1 else [zero] * count


def _gather(
    warp: Warp, mask: Mask, lanes: Array, view: Array, offset: Array, dtype: Any, count: int
) -> Any:
    raw = view.take(offset // view.itemsize)
    if count == 1:
        return _spread(warp, mask, lanes, raw.view(dtype))
    columns = np.ascontiguousarray(raw.view(dtype).reshape(-1, count).T)
    return [_spread(warp, mask, lanes, column) for column in columns]


def store_shared(
    warp: Warp, mask: Mask, site: Site, address: Any, values: Sequence[Any], dtype: Any
) -> None:
    """Store one element of each of ``values`` to consecutive places."""
    lanes, a = active(warp, mask, vector(warp, address, np.int64))
    if not len(a):
        return
    a = warp.block.absolute(a)
    count = len(values)
    width = np.dtype(dtype).itemsize * count
    shared_write(warp, lanes, a, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.shared("store", a, width)
    _scatter(
        warp, lanes, warp.cluster.view(WIDE[width]), a, wide_rows(warp, lanes, values, dtype), site
    )


def wide_rows(warp: Warp, lanes: Array, values: Sequence[Any], dtype: Any) -> Array:
    """Values of the active lanes as one array of wide elements."""
    columns = [vector(warp, value, dtype)[lanes] for value in values]
    if len(columns) == 1:
        return np.ascontiguousarray(columns[0]).view(WIDE[columns[0].itemsize])
    rows = np.ascontiguousarray(np.stack(columns, 1))
    out: Array = rows.view(WIDE[rows.itemsize * len(columns)])[:, 0]
    return out


def _scatter(warp: Warp, lanes: Array, view: Array, offset: Array, rows: Array, site: Site) -> None:
    index = offset // view.itemsize
    view[index] = rows
    kept = view.take(index).view(np.uint8) == rows.view(np.uint8)
    if np.count_nonzero(kept) != kept.size:
        at = int(np.flatnonzero(~kept)[0]) // view.itemsize
        raise Fault(
            f"race: two lanes of warp {warp.index} store different values to one place, one of "
            f"them lane {int(lanes[at])}",
            at=site,
            hint="lanes of one store have to write different places",
        )


# ---- global memory -------------------------------------------------------------------------------------------------


def global_bounds(
    warp: Warp,
    lanes: Array,
    buffer: GlobalBuffer,
    offset: Array,
    width: int,
    site: Site,
    align: int | None = None,
) -> None:
    """Refuse offsets in bytes that leave the buffer or are not aligned to the access, or to ``align``."""
    wrong = (offset < 0) | (offset > buffer.nbytes - width)
    if np.count_nonzero(wrong):
        at = int(np.flatnonzero(wrong)[0])
        raise Fault(
            f"bounds: lane {int(lanes[at])} of warp {warp.index} accesses {width} bytes at byte "
            f"{int(offset[at])} of {buffer.name}, which has {buffer.nbytes}",
            at=site,
            hint="predicate the access, or pad the buffer",
        )
    _aligned(offset, align or width, site, warp, lanes)


def load_global(
    warp: Warp,
    mask: Mask,
    site: Site,
    buffer: GlobalBuffer,
    offset: Any,
    dtype: Any,
    count: int = 1,
) -> Any:
    """Load ``count`` elements a lane from a byte offset."""
    lanes, o = active(warp, mask, vector(warp, offset, np.int64))
    if not len(o):
        return nothing(warp, dtype, count)
    o = o.astype(np.int64)
    width = np.dtype(dtype).itemsize * count
    if width > 16:
        raise Fault(f"unsupported: a load of {width} bytes a lane", at=site)
    global_bounds(warp, lanes, buffer, o, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.memory("load", o, width)
    if buffer.shadow is not None:
        buffer.shadow.read(warp.row, site, o, lanes, width)
    return _gather(warp, mask, lanes, buffer.view(WIDE[width]), o, dtype, count)


def store_global(
    warp: Warp,
    mask: Mask,
    site: Site,
    buffer: GlobalBuffer,
    offset: Any,
    values: Sequence[Any],
    dtype: Any,
) -> None:
    """Store one element of each of ``values`` to consecutive places from a byte offset."""
    lanes, o = active(warp, mask, vector(warp, offset, np.int64))
    if not len(o):
        return
    o = o.astype(np.int64)
    width = np.dtype(dtype).itemsize * len(values)
    if width > 16:
        raise Fault(f"unsupported: a store of {width} bytes a lane", at=site)
    global_bounds(warp, lanes, buffer, o, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.memory("store", o, width)
    if buffer.shadow is not None:
        buffer.shadow.write(warp.row, site, o, lanes, width)
    buffer.written = True
    _scatter(warp, lanes, buffer.view(WIDE[width]), o, wide_rows(warp, lanes, values, dtype), site)
