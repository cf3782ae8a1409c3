"""What a warp's access costs: shared-memory wavefronts, dram sectors, vector width; computed from layouts.

Each question has two forms: over F2 for a layout, and by counting for arbitrary byte addresses.

Shared memory has 32 banks of 4 bytes. An access of 4 bytes or fewer per lane serves all 32 lanes at once, one of 8
bytes a half warp, one of 16 bytes a quarter warp (CUDA programming guide, shared memory); inside such a phase, lanes
that read different 4-byte words of one bank are served one after the other, equal words together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.errors import LayoutError
from ladder.ttile import f2
from ladder.ttile.layout import Layout

BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
WIDTHS = (1, 2, 4, 8, 16)


def lanes_per_phase(width: int) -> int:
    """Lanes that shared memory serves together at ``width`` bytes per lane.

    Raises:
        LayoutError: no access has that width.
    """
    if width not in WIDTHS:
        raise LayoutError(
            f"no access of {width} bytes per lane", at="access", hint=f"one of {WIDTHS}"
        )
    return 32 * BANK_BYTES // max(width, BANK_BYTES)


def shared_wavefronts(address: Layout, width: int, *, lane: str = "lane") -> int:
    """Wavefronts of one warp's shared access; as many as there are phases when it is free of conflicts.

    Args:
        address: layout from lanes (and other coordinates, which do not matter) to one byte address.
        width: bytes per lane.
        lane: name of the lane coordinate.
    """
    images = _lane_images(address, width, lane)
    in_phase = lanes_per_phase(width).bit_length() - 1
    inside = [1 << i for i in range(width.bit_length() - 1)]
    words = [image // BANK_BYTES for image in images[:in_phase] + inside]
    # a linear map reaches each bank that it reaches equally often
    degree: int = 2 ** (f2.rank(words) - f2.rank(word % BANKS for word in words))
    return degree * (1 << (len(images) - in_phase) if len(images) > in_phase else 1)


def conflict_degree(address: Layout, width: int, *, lane: str = "lane") -> int:
    """How many times longer a shared access takes than one without bank conflicts."""
    phases = max(1, (1 << len(_lane_images(address, width, lane))) // lanes_per_phase(width))
    return shared_wavefronts(address, width, lane=lane) // phases


def global_sectors(address: Layout, width: int, *, lane: str = "lane") -> int:
    """Sectors of 32 bytes that one warp's global access touches."""
    images = _lane_images(address, width, lane)
    inside = [1 << i for i in range(width.bit_length() - 1)]
    sectors: int = 2 ** f2.rank(image // SECTOR_BYTES for image in images + inside)
    return sectors


def vector_bytes(address: Layout, *, along: str, element_bytes: int, limit: int = 16) -> int:
    """Widest aligned access in bytes that takes consecutive ``along`` at once.

    Args:
        address: layout to one byte address.
        along: coordinate that one lane walks, for example ``register``.
        element_bytes: bytes of one step of ``along``, a power of two.
        limit: widest access of the hardware, bytes.
    """
    _address_bits(address)
    bits = dict(address.ins)[along]
    steps = [address.image(along, i) for i in range(bits)]
    (name,) = (out for out, _ in address.outs)
    others = [
        address.image(other, i)[name]
        for other, width in address.ins
        if other != along
        for i in range(width)
    ]
    best, run = element_bytes, 0
    while True:
        rest = [step[name] for step in steps[run:]] + others
        if any(image % (element_bytes << run) for image in rest):
            break
        best = element_bytes << run
        if run == bits or best >= limit or steps[run][name] != best:
            break
        run += 1
    return min(best, limit)


def count_wavefronts(addresses: ArrayLike, width: int) -> int:
    """The same as :func:`shared_wavefronts` by counting, for the byte address of each lane, int[lanes]."""
    lanes = np.asarray(addresses, dtype=np.int64)
    step = lanes_per_phase(width)
    return sum(
        _worst_bank(_words(lanes[i : i + step], width, BANK_BYTES))
        for i in range(0, len(lanes), step)
    )


def count_sectors(addresses: ArrayLike, width: int) -> int:
    """The same as :func:`global_sectors` by counting, for the byte address of each lane, int[lanes]."""
    return len(np.unique(_words(np.asarray(addresses, dtype=np.int64), width, SECTOR_BYTES)))


def _words(addresses: NDArray[np.int64], width: int, size: int) -> NDArray[np.int64]:
    touched: NDArray[np.int64] = (addresses[:, None] + np.arange(width)) // size
    return np.unique(touched)


def _worst_bank(words: NDArray[np.int64]) -> int:
    return int(np.bincount(words % BANKS).max())


def _address_bits(address: Layout) -> int:
    if len(address.outs) != 1:
        raise LayoutError("an address layout has one output, the byte", at=address)
    return address.outs[0][1]


def _lane_images(address: Layout, width: int, lane: str) -> list[int]:
    """Byte address of each lane bit, lowest first, checked for alignment."""
    _address_bits(address)
    lanes_per_phase(width)
    (name,) = (out for out, _ in address.outs)
    images = [address.image(lane, i)[name] for i in range(dict(address.ins)[lane])]
    if any(image % width for image in images):
        raise LayoutError(
            f"lanes are not {width} bytes apart", at=address, hint="use a narrower access"
        )
    return images
