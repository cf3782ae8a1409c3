"""Warpgroup products: ``wgmma.mma_async`` with A in registers or in shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix").

Each of the four warps computes its 16 of the 64 rows. A product runs some time between its issue and the wait for its group, in order
with the warp's earlier ones; what it reads from shared memory is read then, by the async proxy. Registers of a fragment carry a
state, so that reading an accumulator in flight, changing a fragment in flight, and a missing ``wgmma.fence`` are found.

Operands in shared memory are K-major: rows of 32, 64 or 128 bytes in the matching swizzle, eight rows to a group, groups ``stride`` bytes
apart; without swizzle 16-byte chunks of eight rows, ``leading`` bytes from one chunk of k to the next.

Sums are float32 in one order of ours; the hardware's order differs, and for 8-bit floats it keeps fewer bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ladder.emulator.mma import ELEMENTS, a_matrices
from ladder.emulator.report import Fault, Site
from ladder.emulator.tma import swizzled
from ladder.emulator.warp import Array, Copy, Mask, Warp, one
from ladder.scheduler.single import dots

#: state of a register: free, changed since the last wgmma.fence; others are numbers of groups in flight
FREE, CHANGED = 0, -1
#: bit that marks a register read, not written, by a product in flight
SOURCE = 1 << 30

#: layout type of a descriptor (bits 62..63) -> bytes of a swizzled row, and the swizzle's mode
LAYOUTS = {0: (0, 0), 1: (128, 3), 2: (64, 2), 3: (32, 1)}
#: swizzle of cuTensorMapEncode -> layout type of a descriptor
LAYOUT_OF_SWIZZLE = {0: 0, 1: 3, 2: 2, 3: 1}

#: operand types of mma that no form of wgmma takes (PTX ISA, wgmma.mma_async)
NIBBLES = frozenset({"s4", "u4"})


@dataclass(frozen=True, slots=True)
class Shape:
    """A variant of wgmma: columns, types, extent of k."""

    n: int
    k: int
    d: str
    a: str
    b: str

    @classmethod
    def parse(cls, text: str, site: Site) -> Shape:
        """Read ``wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16``."""
        words = [w for w in text.split(".") if w not in ("satfinite", "and", "popc")]
        shape, d, a, b = words[-4:]
        n, k = (int(part) for part in shape.removeprefix("m64n").split("k"))
        if not {a, b} <= ELEMENTS.keys() - NIBBLES or d not in ("f32", "s32"):
            raise Fault(f"unsupported: {text}", at=site)
        if k != 8 * ELEMENTS[a].per_word:
            raise Fault(f"unsupported: {text}", at=site)
        return cls(n, k, d, a, b)

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a thread."""
        return self.n // 2


@dataclass(frozen=True, slots=True)
class Run:
    """Registers of a fragment that stand side by side: the lists of their buffer's values and states, and their place in them."""

    values: list[Any]
    states: list[int]
    place: slice

    @property
    def held(self) -> list[Any]:
        """Their values; None where one is not set."""
        return self.values[self.place]

    @property
    def state(self) -> list[int]:
        """Their states."""
        return self.states[self.place]

    def mark(self, state: int) -> None:
        """Give all of them one state."""
        self.states[self.place] = [state] * (self.place.stop - self.place.start)

    def release(self, group: int) -> None:
        """Free those that a group used, when it is over."""
        self.states[self.place] = [FREE if s % SOURCE == group else s for s in self.state]


def _unset(runs: Sequence[Run]) -> bool:
    return any(value is None for run in runs for value in run.held)


# ---- register states -----------------------------------------------------------------------------------------------


def fragile_read(warp: Warp, site: Site, states: list[int], index: int) -> None:
    """Refuse to read an accumulator while a product that writes it is in flight."""
    if 0 < states[index] < SOURCE:
        raise Fault(
            f"hazard: warp {warp.index} reads accumulator {site.buffer}[{index}] while group "
            f"{states[index]} of wgmma is in flight",
            at=site,
            hint="wgmma.wait_group before reading accumulators",
        )


def fragile_write(warp: Warp, site: Site, states: list[int], index: int) -> None:
    """Refuse to change a register while a product that uses it is in flight; note the change."""
    if states[index] > 0:
        raise Fault(
            f"hazard: warp {warp.index} changes register {site.buffer}[{index}] while group "
            f"{states[index] % SOURCE} of wgmma is in flight",
            at=site,
            hint="wgmma.wait_group before changing fragments, or use another buffer",
        )
    states[index] = CHANGED


def wgmma_fence(warp: Warp, mask: Mask, site: Site, fragments: Sequence[list[int]]) -> None:
    """Make register changes visible to the products that follow."""
    warp.meet(mask, site)
    for states in fragments:
        for index, state in enumerate(states):
            if state == CHANGED:
                states[index] = FREE


def _claim(warp: Warp, site: Site, runs: Sequence[Run], mark: int) -> None:
    for run in runs:
        if CHANGED in run.state:
            raise Fault(
                f"hazard: warp {warp.index} starts wgmma on a register that was changed after the last "
                "wgmma.fence",
                at=site,
                hint="wgmma.fence between changing registers and using them",
            )
        if mark >= SOURCE and _unset([run]):
            raise Fault("uninitialised: a fragment of A is not set", at=site)
        run.mark(mark)


# ---- shared memory operands ----------------------------------------------------------------------------------------


def encode_descriptor(
    warp: Warp, mask: Mask, site: Site, address: Any, leading: int, stride: int, swizzle: int
) -> Any:
    """TVM's ``encode_matrix_descriptor``: address, offsets in units of 16 bytes, swizzle as in cuTensorMapEncode."""
    place = one(address, mask, site) & 0x3FFFF
    word = place >> 4 | (leading & 0x3FFF) << 16 | (stride & 0x3FFF) << 32
    word |= LAYOUT_OF_SWIZZLE[swizzle] << 62
    return np.full(len(warp.lanes), word, np.uint64)


def operand_chunks(warp: Warp, descriptor: int, rows: int, nbytes: int, site: Site) -> Array:
    """Absolute addresses of the 16-byte chunks of a K-major operand: [rows, nbytes / 16]."""
    first = (descriptor & 0x3FFF) << 4
    leading, stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    row, mode = LAYOUTS[descriptor >> 62 & 3]
    if descriptor >> 49 & 7:
        raise Fault("unsupported: a matrix descriptor with a base offset", at=site)
    if row and (first % row) + nbytes > row:
        raise Fault(
            f"misaligned: an operand of {nbytes} bytes of k starts at byte {first % row} of a "
            f"{row}-byte row",
            at=site,
        )
    places = _places(first, leading, stride, row, mode, rows, nbytes)
    out: Array = places + np.uint32(warp.block.base)
    return out


@lru_cache(maxsize=1024)
def _places(
    first: int, leading: int, stride: int, row: int, mode: int, rows: int, nbytes: int
) -> Array:
    """The same in a CTA's own memory; the products of a ring name the same few again and again."""
    r, c = np.arange(rows)[:, None], np.arange(nbytes // 16)[None]
    if row == 0:
        places = first + r // 8 * stride + r % 8 * 16 + c * leading
    else:
        places = swizzled(first + r // 8 * stride + r % 8 * row + c * 16, mode)
    out: Array = places.astype(np.uint32)
    out.flags.writeable = False
    return out


def _operand(warp: Warp, chunks: Array, name: str) -> Array:
    """An operand's matrix in float32: [rows, k]."""
    element = ELEMENTS[name]
    raw = warp.cluster.view(np.complex128).take(chunks.reshape(-1) // 16)
    words = raw.view(np.uint32).reshape(len(chunks), -1, 1)
    return element.widen(words).reshape(len(chunks), -1)


# ---- products ------------------------------------------------------------------------------------------------------


def wgmma(
    warp: Warp,
    mask: Mask,
    site: Site,
    shape: Shape,
    d: Sequence[Run],
    a: tuple[Run, ...] | Any,
    b: Any,
    options: tuple[Any, ...] = (True,),
) -> None:
    """Start ``D = A*B + D`` (or ``A*B``) for the warp's 16 rows.

    ``a`` is four registers or a descriptor, ``b`` a descriptor; ``options`` are scale_d, scale_a, scale_b and the transpositions.
    """
    warp.meet(mask, site)
    scale_d, scale_a, scale_b, *transposed = (*options, 1, 1) if len(options) == 1 else options
    if any(transposed):
        raise Fault("unsupported: an MN-major operand of wgmma", at=site)
    keep, sign = bool(one(scale_d, mask, site)), int(scale_a) * int(scale_b)
    nbytes = shape.k * 4 // ELEMENTS[shape.a].per_word
    columns = operand_chunks(warp, one(b, mask, site), shape.n, nbytes, site)
    rows: Array | None = None
    if not isinstance(a, tuple):
        whole = operand_chunks(warp, one(a, mask, site), 64, nbytes, site)
        rows = whole[16 * (warp.index % 4) :][:16]
    left = _take(warp, site, shape, d, () if rows is not None else a, keep=keep)
    epochs = _note(warp, site, [columns] if rows is None else [columns, rows])
    warp.wgmma_log.append((site, one(b, mask, site)))

    def perform() -> None:
        matrix = left if rows is None else _operand(warp, rows, shape.a)
        right = _operand(warp, columns, shape.b)
        _accumulate(shape, d, sign * dots(matrix, right), keep=keep)

    previous = warp.wgmma_last if warp.wgmma_last is not None and not warp.wgmma_last.done else None
    copy = warp.wgmma_last = Copy(perform, warp.cluster, after=previous)
    warp.wgmma_open.append((copy, epochs, [*d, *(a if rows is None else ())]))
    warp.machine.launch(copy)


def _take(
    warp: Warp,
    site: Site,
    shape: Shape,
    d: Sequence[Run],
    a: Sequence[Run],
    *,
    keep: bool,
) -> Array:
    """Claim the registers of a product; returns the rows of A that they hold."""
    group = len(warp.wgmma_groups) + warp.wgmma_retired + 1
    flying = all(min(run.state) > 0 for run in d)
    if keep and not flying and _unset(d):
        raise Fault("uninitialised: an accumulator of wgmma is not set", at=site)
    _claim(warp, site, a, group | SOURCE)
    _claim(warp, site, d, group)
    if not a:
        return np.zeros(0)
    return a_matrices(ELEMENTS[shape.a], [[value for run in a for value in run.held]])[0]  # type: ignore[no-any-return]


def _note(warp: Warp, site: Site, operands: Sequence[Array]) -> list[int]:
    """Check and record the reads of shared memory."""
    shadow = warp.cluster.shadow
    if shadow is None:
        return []
    agent = f"wgmma of warp {warp.index}"
    epoch = warp.cluster.order.new_epoch(agent, warp.agent, site, reads=True, proxy=True)
    for chunks in operands:
        flat = chunks.reshape(-1)
        shadow.read_as(epoch, warp.agent, site, flat, np.full(len(flat), -2), 16)
    return [epoch]


def _accumulate(shape: Shape, d: Sequence[Run], product: Array, *, keep: bool) -> None:
    """Accumulator ``4*j + i`` of a lane: row g + 8*(i>>1), column 8*j + 2*t + (i&1)."""
    parts = product.reshape(2, 8, shape.n // 8, 4, 2).transpose(2, 0, 4, 1, 3).reshape(-1, 32)
    dtype = np.float32 if shape.d == "f32" else np.int32
    parts = parts.astype(dtype)
    first = 0
    for run in d:
        old = run.held
        new = parts[first : first + len(old)]
        if keep:
            before = np.concatenate(old)
            new = (new + before.view(dtype).reshape(new.shape)).view(before.dtype)
        elif shape.d != "f32":
            new = new.view(np.uint32)
        run.values[run.place] = list(new)
        first += len(old)


def wgmma_commit(warp: Warp, mask: Mask, site: Site) -> None:
    """Close the group of products."""
    warp.meet(mask, site)
    warp.wgmma_groups.append(warp.wgmma_open)
    warp.wgmma_open = []


def wgmma_wait(warp: Warp, mask: Mask, site: Site, pending: int) -> None:
    """Wait until at most ``pending`` groups are in flight."""
    warp.meet(mask, site)
    while len(warp.wgmma_groups) > pending:
        warp.wgmma_retired += 1
        for copy, epochs, runs in warp.wgmma_groups.pop(0):
            copy.run()
            warp.cluster.order.learn(warp.agent, epochs)
            for run in runs:
                run.release(warp.wgmma_retired)


def finish(warps: Sequence[Warp]) -> None:
    """At the end of a CTA: nothing in flight, and each warpgroup did the same in all its warps."""
    for warp in warps:
        if warp.wgmma_open or warp.wgmma_groups:
            raise Fault(
                f"hazard: warp {warp.index} ends with wgmma in flight",
                at="end of the kernel",
                hint="wgmma.commit_group and wgmma.wait_group 0 before the end",
            )
    for first in range(0, len(warps), 4):
        logs = [warp.wgmma_log for warp in warps[first : first + 4]]
        if any(log != logs[0] for log in logs) or (logs[0] and len(logs) < 4):
            raise Fault(
                f"divergence: the warps of warpgroup {first // 4} do not execute the same wgmma",
                at="end of the kernel",
                hint="all four warps of a warpgroup execute each wgmma with equal descriptors",
            )
