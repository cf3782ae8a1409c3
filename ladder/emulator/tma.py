"""Tensor copies by the async proxy: tensor maps, boxes, swizzles, multicast (PTX ISA cp.async.bulk.tensor; cuTensorMapEncodeTiled).

A box lies in shared memory row after row, innermost coordinate first. A swizzle exchanges 16-byte chunks: with a span of S bytes (32, 64,
128), address bits 4 .. log2(S)-1 are XORed with the bits three places above. Coordinates outside the tensor read as zeros and are not
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ladder.emulator import bulk, mbarrier
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, GlobalBuffer, Mask, Warp

#: swizzle of a tensor map (CUtensorMapSwizzle) -> span in bytes
SPANS = {0: 0, 1: 32, 2: 64, 3: 128}
NAMES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


@dataclass(frozen=True)
class TensorMap:
    """What ``cuTensorMapEncodeTiled`` was given; extents innermost first.

    Args:
        array: the tensor's memory.
        shape: extents in elements.
        strides: bytes from one index to the next, of all dimensions but the innermost.
        box: extents of a box in elements.
        swizzle: ``none``, ``32B``, ``64B`` or ``128B``.
        nan_fill: whether elements outside the tensor read as NaN instead of zero.
    """

    array: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    nan_fill: bool = False

    def __post_init__(self) -> None:
        """Refuse what the driver refuses (CUDA driver API, cuTensorMapEncodeTiled)."""
        itemsize = self.array.itemsize
        rank = len(self.shape)
        inner = self.box[0] * itemsize
        span = SPANS[NAMES[self.swizzle]]
        problems = [
            (not 1 <= rank <= 5 or len(self.box) != rank or len(self.strides) != rank - 1, "rank"),
            (any(not 1 <= extent <= 256 for extent in self.box), "box"),
            (any(s % 16 for s in self.strides), "strides, which are multiples of 16 bytes"),
            (bool(inner % 16), "box, whose rows are multiples of 16 bytes"),
            (bool(span) and inner > span, f"box, whose rows fit the swizzle's {span} bytes"),
        ]
        for wrong, what in problems:
            if wrong:
                raise Fault(f"arguments: a tensor map with a wrong {what}", at=self)

    def __str__(self) -> str:
        return (
            f"TensorMap(shape {self.shape}, strides {self.strides}, box {self.box}, {self.swizzle})"
        )


@dataclass(frozen=True)
class BoundMap:
    """A tensor map whose memory is a buffer of the launch."""

    map: TensorMap
    buffer: GlobalBuffer

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.map.array.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of a box."""
        return int(np.prod(self.map.box)) * self.itemsize

    def places(self, first: tuple[int, ...]) -> tuple[Array, Array]:
        """Byte offsets of a box's elements, outermost first, and which exist: [..., box1, box0]."""
        steps = (self.itemsize, *self.map.strides)
        offset: Array = np.zeros((), np.int64)
        inside: Array = np.ones((), np.bool_)
        axes = zip(first, self.map.box, self.map.shape, steps, strict=True)
        for start, extent, limit, step in axes:
            index = start + np.arange(extent)
            shape = (extent,) + (1,) * offset.ndim
            offset = index.reshape(shape) * step + offset
            inside = ((index >= 0) & (index < limit)).reshape(shape) & inside
        return offset, inside

    def read(self, first: tuple[int, ...]) -> Array:
        """A box as 16-byte chunks."""
        offset, inside = self.places(first)
        dtype = np.dtype(f"uint{8 * self.itemsize}")
        fill = {2: 0x7FFF, 4: 0x7FFFFFFF}.get(self.itemsize, 0) if self.map.nan_fill else 0
        values = self.buffer.view(dtype).take(np.where(inside, offset, 0) // self.itemsize)
        rows = np.where(inside, values, dtype.type(fill))
        return np.ascontiguousarray(rows).reshape(-1).view(np.complex128)

    def write(self, first: tuple[int, ...], rows: Array, update: Any = None) -> None:
        """Store a box given as 16-byte chunks, or combine it into what is there."""
        offset, inside = self.places(first)
        dtype = np.dtype(f"uint{8 * self.itemsize}") if update is None else np.dtype(update.dtype)
        index = (offset[inside] // self.itemsize).reshape(-1)
        values = rows.view(dtype).reshape(offset.shape)[inside]
        view = self.buffer.view(dtype)
        if update is not None:
            values = np.array(
                [update.function(a, b) for a, b in zip(view[index], values, strict=True)]
            )
        view[index] = values


def swizzled(address: Array, mode: int) -> Array:
    """Byte addresses after the swizzle of a mode (0 none, 1: 32 B, 2: 64 B, 3: 128 B)."""
    if mode == 0:
        return address
    out: Array = address ^ (((address >> 7) & ((1 << mode) - 1)) << 4)
    return out


def _box_places(warp: Warp, map_: BoundMap, target: int, site: Site) -> Array:
    """Absolute addresses of the chunks of a box at an absolute address."""
    mode = NAMES[map_.map.swizzle]
    inside = target % warp.cluster.stride
    align = {0: 128, 1: 256, 2: 512, 3: 1024}[mode]
    if inside % align:
        raise Fault(
            f"misaligned: a box with swizzle {map_.map.swizzle} at shared address {inside}",
            at=site,
            hint=f"align it to {align} bytes, the period of the swizzle",
        )
    places = swizzled(bulk.chunks(inside, map_.nbytes), mode)
    out: Array = places + np.uint32(target - inside)
    return out


def tensor_load(
    warp: Warp,
    mask: Mask,
    site: Site,
    target: Any,
    map_: BoundMap,
    first: tuple[Any, ...],
    barrier: Any,
    *ranks: Any,
) -> None:
    """Copy a box from global memory to shared memory, of each rank of a mask if there is one."""
    rank = len(first)
    for dst, bar, *rest in bulk.lanes_of(warp, mask, target, barrier, *first, *ranks):
        coordinates = tuple(rest[:rank])
        _read_world(warp, site, map_, coordinates)
        if warp.machine.counters is not None:
            warp.machine.counters.add("global.tma.bytes", map_.nbytes)
        for place, signal in bulk.destinations(warp.block, dst, bar, *rest[rank:]):
            found = mbarrier.find(warp, signal, site, proxy=True)

            def data(coordinates: tuple[int, ...] = coordinates) -> Array:
                return map_.read(coordinates)

            bulk.fill(warp, site, _box_places(warp, map_, place, site), data, found)


def tensor_store(
    warp: Warp,
    mask: Mask,
    site: Site,
    map_: BoundMap,
    first: tuple[Any, ...],
    source: Any,
    update: Any = None,
) -> None:
    """Copy a box from shared memory to global memory, or combine it into what is there."""
    for src, *start in bulk.lanes_of(warp, mask, source, *first):
        coordinates = tuple(start)
        place = int(warp.block.absolute(np.array([src]))[0])
        world = _write_world(warp, site, map_, coordinates, atomic=update is not None)

        def perform(rows: Array, coordinates: tuple[int, ...] = coordinates) -> None:
            map_.write(coordinates, rows, update)

        map_.buffer.written = True
        if warp.machine.counters is not None:
            warp.machine.counters.add("global.tma.bytes", map_.nbytes)
        bulk.drain(warp, site, _box_places(warp, map_, place, site), perform, world)


def _elements(map_: BoundMap, first: tuple[int, ...]) -> Array:
    offset, inside = map_.places(first)
    return np.asarray(offset)[inside].reshape(-1)


def _read_world(warp: Warp, site: Site, map_: BoundMap, first: tuple[int, ...]) -> None:
    if map_.buffer.shadow is not None:
        offset = _elements(map_, first)
        map_.buffer.shadow.read(warp.row, site, offset, np.zeros(len(offset)), map_.itemsize)


def _write_world(
    warp: Warp, site: Site, map_: BoundMap, first: tuple[int, ...], *, atomic: bool
) -> list[int]:
    shadow, world = map_.buffer.shadow, warp.machine.world
    if shadow is None or world is None:
        return []
    offset = _elements(map_, first)
    lanes = np.zeros(len(offset), np.int64)
    if atomic:
        shadow.atomic(warp.row, site, offset, lanes, map_.itemsize)
        return []
    epoch = world.new_epoch(f"a bulk copy of warp {warp.index}", warp.row, site, proxy=True)
    shadow.write_as(epoch, warp.row, site, offset, lanes, map_.itemsize)
    return [epoch]
