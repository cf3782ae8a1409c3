"""Exchange between lanes: ldmatrix, stmatrix, shuffles, votes, reductions, elect (PTX ISA ldmatrix, shfl.sync, vote.sync, redux.sync).

An 8x8 matrix of 16-bit elements lies in shared memory as 8 rows of 16 bytes, each at the address that one lane gives. Lane
``l`` gets elements ``2*(l%4)`` and ``+1`` of row ``l//4``, which in memory order is word ``l``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.emulator.memory import shared_read, shared_write, vector
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import LANES, Array, Mask, Warp, one

_U32 = np.uint32


def ldmatrix(
    warp: Warp, mask: Mask, site: Site, addresses: Sequence[Any], matrices: int, transpose: bool
) -> list[Array]:
    """Load ``matrices`` 8x8 matrices for each of ``addresses``; one register each, in order."""
    warp.meet(mask, site)
    rows = 8 * matrices
    parts = [vector(warp, a, np.int64)[:rows] for a in addresses]
    a = warp.block.absolute(parts[0] if len(parts) == 1 else np.concatenate(parts))
    lanes = np.full(len(a), -2)  # whichever lane: the instruction is the warp's
    shared_read(warp, lanes, a, 16, site)
    if warp.machine.counters is not None:
        for part in parts:
            warp.machine.counters.shared("ldmatrix", part.astype(np.uint32), 16)
    words = warp.cluster.view(np.complex128).take(a >> 4)
    if transpose:
        halves = words.view(np.uint16).reshape(-1, 8, 8)
        words = np.ascontiguousarray(halves.transpose(0, 2, 1))
    return list(words.view(_U32).reshape(-1, LANES))


def stmatrix(
    warp: Warp, mask: Mask, site: Site, address: Any, registers: Sequence[Any], transpose: bool
) -> None:
    """Store one 8x8 matrix from each register."""
    warp.meet(mask, site)
    count = len(registers)
    a = warp.block.absolute(vector(warp, address, np.int64)[: 8 * count])
    shared_write(warp, np.full(len(a), -2), a, 16, site)
    if warp.machine.counters is not None:
        warp.machine.counters.shared("stmatrix", a, 16)
    words = np.stack([vector(warp, r, _U32).view(_U32) for r in registers])
    if transpose:
        halves = words.view(np.uint16).reshape(count, 8, 8)
        words = np.ascontiguousarray(halves.transpose(0, 2, 1)).view(_U32)
    rows = np.ascontiguousarray(words).view(np.complex128).reshape(-1)
    warp.cluster.view(np.complex128)[a >> 4] = rows


def shuffle(
    warp: Warp, mask: Mask, site: Site, mode: str, value: Any, lane: Any, control: Any, members: Any
) -> tuple[Array, Array]:
    """PTX ISA shfl.sync: the value of another lane, and whether there was one."""
    warp.meet(mask, site)
    _members(warp, mask, members, site)
    own = warp.lanes
    b = vector(warp, lane, np.int64).astype(np.int64) & 31
    c = vector(warp, control, np.int64).astype(np.int64)
    segment, clamp = c >> 8 & 31, c & 31
    top = (own & segment) | (clamp & ~segment & 31)
    bottom = own & segment
    if mode == "up":
        source = own - b
        inside = source >= top
    elif mode == "down":
        source = own + b
        inside = source <= top
    elif mode == "bfly":
        source = own ^ b
        inside = source <= top
    else:
        source = bottom | (b & ~segment & 31)
        inside = source <= top
    source = np.where(inside, source, own)
    return vector(warp, value, _U32)[source], inside


def cuda_shuffle(
    warp: Warp, mask: Mask, site: Site, mode: str, value: Any, lane: Any, width: Any, members: Any
) -> Array:
    """CUDA's ``__shfl_*_sync(members, value, lane, width)``."""
    span = one(width, mask, site)
    clamp = 0 if mode == "up" else 31
    return shuffle(warp, mask, site, mode, value, lane, (32 - span) << 8 | clamp, members)[0]


def _members(_warp: Warp, mask: Mask, members: Any, site: Site) -> None:
    if members is None:
        return
    given = one(members, mask, site) & 0xFFFFFFFF
    present = 0xFFFFFFFF
    if mask is not None:
        present = int(np.packbits(mask, bitorder="little").view("<u4")[0])
    if given != present:
        raise Fault(
            f"divergence: member mask 0x{given:08x}, lanes present 0x{present:08x}",
            at=site,
            hint="every lane of the mask has to execute the instruction",
        )


def vote(warp: Warp, mask: Mask, site: Site, mode: str, value: Any, members: Any = None) -> Array:
    """PTX ISA vote.sync: all, any, uni, or the ballot."""
    warp.meet(mask, site)
    _members(warp, mask, members, site)
    bits = vector(warp, value, np.uint32) != 0
    if mode == "ballot":
        word = np.packbits(bits, bitorder="little").view("<u4")[0]
        return np.full(LANES, word, _U32)
    if mode == "uni":
        answer = bits.all() or not bits.any()
    else:
        answer = bits.all() if mode == "all" else bits.any()
    return np.full(LANES, int(answer), _U32)


def redux(warp: Warp, mask: Mask, site: Site, mode: str, value: Any, members: Any = None) -> Array:
    """PTX ISA redux.sync: the sum, minimum or maximum of a word over the lanes, in each of them."""
    warp.meet(mask, site)
    _members(warp, mask, members, site)
    return np.full(LANES, _REDUCTIONS[mode](vector(warp, value, _U32)), _U32)


_REDUCTIONS: dict[str, Any] = {"add": np.sum, "min": np.min, "max": np.max}


def elect(warp: Warp, mask: Mask, site: Site, members: Any = None) -> tuple[Array, Array]:
    """PTX ISA elect.sync: the leader's number, and a truth value that holds for one lane."""
    warp.meet(mask, site)
    _members(warp, mask, members, site)
    leader = 0
    chosen = (warp.lanes == leader).astype(_U32)
    return np.full(LANES, leader, _U32), chosen


def movmatrix(warp: Warp, mask: Mask, site: Site, value: Any) -> Array:
    """Transpose an 8x8 matrix of 16-bit elements held by the warp (PTX ISA movmatrix)."""
    warp.meet(mask, site)
    halves = np.ascontiguousarray(vector(warp, value, _U32).view(_U32)).view(np.uint16)
    return np.ascontiguousarray(halves.reshape(8, 8).T).reshape(-1).view(_U32)
