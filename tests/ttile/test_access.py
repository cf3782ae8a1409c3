from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import LayoutError
from ladder.ttile import Layout, fragments
from ladder.ttile.access import (
    conflict_degree,
    count_sectors,
    count_wavefronts,
    global_sectors,
    shared_wavefronts,
    vector_bytes,
)

BYTES = (("byte", 12),)


def naive_wavefronts(addresses: list[int], width: int) -> int:
    """Word by word: the fullest bank of every phase, phases of 128 bytes at most."""
    lanes = 32 if width <= 4 else 128 // width
    total = 0
    for phase in range(0, 32, lanes):
        banks: dict[int, set[int]] = {}
        for address in addresses[phase : phase + lanes]:
            for byte in range(address, address + width):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(len(words) for words in banks.values())
    return total


def lanes_to(images: list[int]) -> Layout:
    return Layout((("lane", 5),), BYTES, tuple(images))


@given(st.sampled_from([1, 2, 4, 8, 16]), st.data())
def test_linear_algebra_agrees_with_counting(width: int, data: st.DataObject) -> None:
    step = st.integers(0, 4096 // width - 1).map(lambda i: i * width)
    layout = lanes_to(data.draw(st.lists(step, min_size=5, max_size=5)))
    addresses = layout.flat(np.arange(32))
    wavefronts = shared_wavefronts(layout, width)
    assert wavefronts == naive_wavefronts(addresses.tolist(), width)
    assert wavefronts == count_wavefronts(addresses, width)
    assert global_sectors(layout, width) == count_sectors(addresses, width)
    sectors = {b // 32 for a in addresses.tolist() for b in range(a, a + width)}
    assert count_sectors(addresses, width) == len(sectors)


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([4, 8, 16]))
def test_counting_takes_any_addresses(chunks: list[int], width: int) -> None:
    addresses = [chunk * width for chunk in chunks]
    assert count_wavefronts(addresses, width) == naive_wavefronts(addresses, width)


@pytest.mark.parametrize(
    "stride,width,degree",
    [
        (4, 4, 1),
        (8, 4, 2),
        (128, 4, 32),
        (0, 4, 1),
        (8, 8, 1),
        (16, 16, 1),
        (128, 16, 8),
        (64, 16, 4),
    ],
)
def test_known_strides(stride: int, width: int, degree: int) -> None:
    layout = lanes_to([(stride << i) % 4096 for i in range(5)])
    assert conflict_degree(layout, width) == degree


def ldmatrix_reads(tile: Layout) -> list[int]:
    """Wavefronts of each of the four 8x8 matrices, one per phase, of a 16x16 tile of 16-bit elements.

    ``tile`` maps (row, chunk of 16 bytes) to a byte address. Matrix i holds rows 8*(i&1).. and chunk i>>1.
    """
    counts = []
    for chunk, half in itertools.product(range(2), range(2)):
        address = tile.apply(row=np.arange(8) + 8 * half, chunk=np.full(8, chunk))["byte"]
        counts.append(count_wavefronts(address, 16))
    return counts


def test_lines_and_swizzles_against_bank_conflicts_of_ldmatrix() -> None:
    """Rows 128 bytes apart collide eightfold, the paper's lines of [4, 8] granules twofold, a swizzle not at all."""
    line = Layout.from_bits(
        (("row", 4), ("chunk", 1)),
        (("byte", 11),),
        {"byte": "0 0 0 0 chunk.0 0 0 row.0 row.1 row.2 row.3"},
    )
    flat = Layout.from_bits(
        (("row", 4), ("chunk", 1)),
        (("byte", 9),),
        {"byte": "0 0 0 0 chunk.0 row.0 row.1 row.2 row.3"},
    )
    swizzle = Layout.xor_swizzle("byte", 11, count=3, low=4, high=7)
    assert ldmatrix_reads(line) == [8] * 4
    assert ldmatrix_reads(flat) == [2] * 4
    assert ldmatrix_reads(line >> swizzle) == [1] * 4


def test_vector_width_of_a_row_major_fragment() -> None:
    """The A fragment reads pairs of a row-major matrix; with eight neighbours in a lane it would read 16 bytes."""
    layout = fragments.MMA_M16N8K16_A.layout
    store = Layout.from_bits(
        layout.outs, (("byte", 9),), {"byte": "0 k.0 k.1 k.2 k.3 row.0 row.1 row.2 row.3"}
    )
    assert vector_bytes(layout >> store, along="half", element_bytes=2) == 4
    lines = Layout.from_bits(
        (("lane", 5), ("i", 3)),
        (("byte", 9),),
        {"byte": "0 i.0 i.1 i.2 " + " ".join(f"lane.{b}" for b in range(5))},
    )
    assert vector_bytes(lines, along="i", element_bytes=2) == 16
    assert vector_bytes(lines, along="i", element_bytes=2, limit=8) == 8


@given(st.permutations(range(6)), st.integers(1, 4))
def test_vector_width_agrees_with_trying_all_lanes(order: list[int], run: int) -> None:
    """Bits of (lane:2^(6-run), i:2^run) scattered over an address of 2-byte elements."""
    images = tuple(2 << place for place in order)
    layout = Layout((("lane", 6 - run), ("i", run)), (("byte", 7),), images)
    best = vector_bytes(layout, along="i", element_bytes=2)
    table = layout.points().reshape(1 << (6 - run), 1 << run)

    def loads(width: int) -> bool:
        count = width // 2
        if count > 1 << run:
            return False
        parts = table.reshape(table.shape[0], -1, count)
        steps = parts == parts[:, :, :1] + 2 * np.arange(count)
        return bool(steps.all() and (parts[:, :, 0] % width == 0).all())

    assert best == max(width for width in (2, 4, 8, 16) if loads(width))


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: shared_wavefronts(lanes_to([4, 8, 16, 32, 64]), 8), "not 8 bytes apart"),
        (lambda: shared_wavefronts(lanes_to([4, 8, 16, 32, 64]), 3), "no access of 3 bytes"),
        (lambda: shared_wavefronts(Layout.identity((("lane", 5), ("x", 1))), 4), "one output"),
    ],
)
def test_impossible_accesses_are_refused(call: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        call()  # type: ignore[operator]
