"""Atomic operations and reductions, fences, and loads and stores with memory order (PTX ISA atom, red, fence, ld, st).

An atomic with release semantics leaves at its address what its warp knows; one with acquire semantics takes it. A relaxed one does
so together with a fence: a fence before it publishes, a fence after it takes. Lanes of one instruction act one after another, in
an order that the schedule chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ladder.codegen import semantics as s
from ladder.emulator import sync
from ladder.emulator.memory import WIDE, global_bounds, nothing, shared_write, vector
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, GlobalBuffer, Mask, Warp, active

Place = tuple[int, int]


def _pairs(name: str) -> Callable[[Any, Any], Any]:
    function = s.MEANINGS[name]
    return lambda old, new: function(np.atleast_1d(old), np.atleast_1d(new))[0]


def _half(name: str) -> Callable[[Any, Any], Any]:
    pair = _pairs(name)
    return lambda old, new: np.uint16(pair(np.uint32(old), np.uint32(new)) & 0xFFFF)


#: operation and type -> new value of (old, operand); others work on any integer or float type
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "min": min,
    "max": max,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "exch": lambda _old, new: new,
    "inc": lambda old, new: type(old)(0) if old >= new else old + type(old)(1),
    "dec": lambda old, new: new if old == 0 or old > new else old - type(old)(1),
    "add.f16x2": _pairs("add_f16x2"),
    "add.bf16x2": _pairs("add_bf16x2"),
    "add.f16": _half("add_f16x2"),
    "add.bf16": _half("add_bf16x2"),
}


@dataclass(frozen=True, slots=True)
class Update:
    """What an atomic does to consecutive elements: one operand each; no function is compare-and-swap of (compare, new)."""

    function: Callable[[Any, Any], Any] | None
    operands: Sequence[Any]
    dtype: Any

    @property
    def width(self) -> int:
        """Bytes that one lane updates."""
        count = 1 if self.function is None else len(self.operands)
        return int(np.dtype(self.dtype).itemsize) * count


def operation(text: str) -> Callable[[Any, Any], Any]:
    """The update function of an ``atom`` or ``red`` instruction.

    Raises:
        Fault: ``unsupported`` for an operation or a type that has none.
    """
    words = text.split(".")
    name = next((w for w in words if w in OPERATIONS), "")
    packed = f"{name}.{words[-1]}"
    found = OPERATIONS.get(packed if words[-1] in ("f16x2", "bf16x2", "f16", "bf16") else name)
    if found is None:
        raise Fault(f"unsupported: {text}", at="ladder.emulator.atomics")
    return found


def atomic_global(
    warp: Warp,
    mask: Mask,
    site: Site,
    order: str,
    buffer: GlobalBuffer,
    offset: Any,
    update: Update,
) -> Any:
    """Update global memory; returns the old value of each lane's first element."""
    lanes, o = active(warp, mask, vector(warp, offset, np.int64))
    if not len(o):
        return nothing(warp, update.dtype, 1)
    o = o.astype(np.int64)
    width = update.width
    global_bounds(warp, lanes, buffer, o, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.memory("atomic", o, width)
    if buffer.shadow is not None:
        buffer.shadow.atomic(warp.row, site, o, lanes, width)
    places = [(buffer.number, int(x)) for x in o]
    _before(warp, order, places)
    buffer.written = True
    old = _apply(warp, lanes, buffer.view(update.dtype), o, update)
    _after(warp, order, places)
    warp.machine.progress += 1
    return old


def atomic_shared(
    warp: Warp,
    mask: Mask,
    site: Site,
    address: Any,
    update: Update,
) -> Any:
    """Update one element of shared memory a lane. The race detector takes it for a write that does not race with its like."""
    lanes, a = active(warp, mask, vector(warp, address, np.int64))
    if not len(a):
        return nothing(warp, update.dtype, 1)
    a = warp.block.absolute(a, window=True)
    shadow = warp.cluster.shadow
    width = update.width
    if shadow is None:
        shared_write(warp, lanes, a, width, site)
    else:
        shadow.atomic(warp.agent, site, a, lanes, width)
    warp.machine.progress += 1
    return _apply(warp, lanes, warp.cluster.view(update.dtype), a.astype(np.int64), update)


def _apply(warp: Warp, lanes: Array, view: Array, offset: Array, update: Update) -> Array:
    """Act lane by lane, in an order that the schedule draws."""
    old = np.zeros(len(warp.lanes), view.dtype)
    columns = [vector(warp, v, view.dtype) for v in update.operands]
    sequence = list(range(len(lanes)))
    if warp.machine.policy == "random":
        warp.machine.rng.shuffle(sequence)
    for i in sequence:
        lane, index = int(lanes[i]), int(offset[i]) // view.itemsize
        old[lane] = view[index]
        if update.function is None:
            if view[index] == columns[0][lane]:
                view[index] = columns[1][lane]
            continue
        for part, column in enumerate(columns):
            view[index + part] = update.function(view[index + part], column[lane])
    return old


# ---- order ---------------------------------------------------------------------------------------------------------


def _before(warp: Warp, order: str, places: Sequence[Place]) -> None:
    """Publish what a release, or a fence before a relaxed operation, covers."""
    known = sync.release(warp) if order in ("release", "acq_rel") else warp.published
    if known is None:
        return
    board = warp.machine.board
    for place in places:
        there = board.get(place)
        board[place] = known if there is None else sync.unite([known, there])


def _after(warp: Warp, order: str, places: Sequence[Place]) -> None:
    """Take what an acquire finds; a relaxed operation keeps it for a later fence."""
    for place in places:
        found = warp.machine.board.get(place)
        if found is None:
            continue
        if order in ("acquire", "acq_rel"):
            sync.acquire(warp, found)
        else:
            warp.seen.append(found)


def fence(warp: Warp, _mask: Mask, _site: Site) -> None:
    """A fence of the GPU's scope: what relaxed operations saw is taken, what was done is published by the next ones."""
    for known in warp.seen:
        sync.acquire(warp, known)
    warp.seen.clear()
    warp.published = sync.release(warp)


def ordered_load(
    warp: Warp, mask: Mask, site: Site, order: str, buffer: GlobalBuffer, offset: Any, dtype: Any
) -> Array:
    """``ld.acquire``, ``ld.relaxed`` and ``ld.volatile``: reads that do not race with atomics."""
    lanes, o = active(warp, mask, vector(warp, offset, np.int64))
    if not len(o):
        return np.zeros(len(warp.lanes), dtype)
    o = o.astype(np.int64)
    width = np.dtype(dtype).itemsize
    global_bounds(warp, lanes, buffer, o, width, site)
    if warp.machine.counters is not None:
        warp.machine.counters.memory("load", o, width)
    if buffer.shadow is not None:
        buffer.shadow.atomic(warp.row, site, o, lanes, width, reads=True)
    out = np.zeros(len(warp.lanes), dtype)
    out[lanes] = buffer.view(WIDE[width]).take(o // width).view(dtype)
    _after(warp, order, [(buffer.number, int(x)) for x in o])
    return out


def ordered_store(
    warp: Warp,
    mask: Mask,
    site: Site,
    order: str,
    buffer: GlobalBuffer,
    offset: Any,
    value: Any,
    dtype: Any,
) -> None:
    """``st.release``, ``st.relaxed`` and ``st.volatile``: writes that do not race with atomics."""
    update = Update(OPERATIONS["exch"], (value,), dtype)
    atomic_global(warp, mask, site, order, buffer, offset, update)
