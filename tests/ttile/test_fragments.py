"""Fragments against the elementwise formulas of the PTX ISA, written here with lane arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from ladder.errors import LayoutError
from ladder.ttile import fragments
from ladder.ttile.fragments import FRAGMENTS, Fragment

Place = tuple[int, int]


def check(
    fragment: Fragment, elements: int, per_register: int, place: Callable[[int, int], Place]
) -> None:
    """Compare with ``place(lane, i)`` -> the two output coordinates of element i of a lane."""
    inner = {2: "half", 4: "byte", 8: "nibble"}.get(per_register)
    for lane, i in itertools.product(range(32), range(elements)):
        point = {"lane": lane, "register": i // per_register}
        if inner:
            point[inner] = i % per_register
        assert tuple(fragment.layout.apply(**point).values()) == place(lane, i)
    assert fragment.registers * per_register == elements


def test_mma_m16n8k16_a() -> None:
    """row = groupID for a0 a1 a4 a5, else groupID + 8; col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4."""

    def place(lane: int, i: int) -> Place:
        group, thread = lane >> 2, lane % 4
        row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
        return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)

    check(fragments.MMA_M16N8K16_A, 8, 2, place)


def test_mma_m16n8k16_a_is_the_order_that_weights_are_packed_in() -> None:
    """g = lane // 4, t = lane % 4; register i, half h holds row g + 8*(i & 1), k = 2*t + 8*(i >> 1) + h."""
    lane, i, h = np.ogrid[:32, :4, :2]
    got = fragments.MMA_M16N8K16_A.layout.apply(register=i, lane=lane, half=h)
    g, t = lane // 4, lane % 4
    assert np.array_equal(got["row"], np.broadcast_to(g + 8 * (i & 1), (32, 4, 2)))
    assert np.array_equal(got["k"], 2 * t + 8 * (i >> 1) + h)


def test_mma_m16n8k16_b() -> None:
    """row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col = groupID."""
    check(
        fragments.MMA_M16N8K16_B,
        4,
        2,
        lambda lane, i: (lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane >> 2),
    )


def test_mma_m16n8_accumulators() -> None:
    """row = groupID for c0 c1, groupID + 8 for c2 c3; col = threadID_in_group * 2 + (i & 1)."""
    check(
        fragments.MMA_M16N8_C,
        4,
        1,
        lambda lane, i: ((lane >> 2) + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)),
    )


def test_mma_m16n8k32_a() -> None:
    """row = groupID for 0 <= i < 4 or 8 <= i < 12, else + 8; col = threadID_in_group * 4 + (i & 3), + 16 for i >= 8."""

    def place(lane: int, i: int) -> Place:
        group, thread = lane >> 2, lane % 4
        row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
        return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)

    check(fragments.MMA_M16N8K32_A, 16, 4, place)


def test_mma_m16n8k32_b() -> None:
    """row = threadID_in_group * 4 + (i & 3), + 16 for i >= 4; col = groupID."""
    check(
        fragments.MMA_M16N8K32_B,
        8,
        4,
        lambda lane, i: (lane % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), lane >> 2),
    )


def test_mma_m16n8k64_a() -> None:
    """row = groupID for 0 <= i < 8 or 16 <= i < 24, else + 8; col = threadID_in_group * 8 + (i & 7), + 32 for i >= 16."""

    def place(lane: int, i: int) -> Place:
        group, thread = lane >> 2, lane % 4
        row = group if 0 <= i < 8 or 16 <= i < 24 else group + 8
        return row, thread * 8 + (i & 7) + (32 if i >= 16 else 0)

    check(fragments.MMA_M16N8K64_A, 32, 8, place)


def test_mma_m16n8k64_b() -> None:
    """row = threadID_in_group * 8 + (i & 7), + 32 for i >= 8; col = groupID."""
    check(
        fragments.MMA_M16N8K64_B,
        16,
        8,
        lambda lane, i: (lane % 4 * 8 + (i & 7) + (32 if i >= 8 else 0), lane >> 2),
    )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(count: int, trans: bool) -> None:
    """Thread t receives row t / 4, elements 2 * (t % 4) + {0, 1} of each matrix; .trans swaps row and column."""
    layout = fragments.ldmatrix(count, trans=trans).layout
    for matrix, lane, half in itertools.product(range(count), range(32), range(2)):
        row, column = lane // 4, lane % 4 * 2 + half
        expected = (matrix, column, row) if trans else (matrix, row, column)
        assert tuple(layout.apply(register=matrix, lane=lane, half=half).values()) == expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_takes_row_addresses_from_eight_lanes_a_matrix(count: int) -> None:
    layout = fragments.ldmatrix_address(count)
    for lane in range(8 * count):
        assert layout.apply(lane=lane) == {"matrix": lane // 8, "row": lane % 8}


def test_ldmatrix_x4_of_the_quarters_of_a_tile_gives_the_a_fragment() -> None:
    """Matrices in the order top left, bottom left, top right, bottom right: a0 .. a3 of mma.m16n8k16."""
    loaded = fragments.ldmatrix(4).layout
    lane, i, h = np.ogrid[:32, :4, :2]
    got = loaded.apply(register=i, lane=lane, half=h)
    want = fragments.MMA_M16N8K16_A.layout.apply(register=i, lane=lane, half=h)
    assert np.array_equal(got["row"] + 8 * (got["matrix"] & 1), want["row"])
    assert np.array_equal(got["column"] + 8 * (got["matrix"] >> 1), want["k"])


@pytest.mark.parametrize(
    "fragment,warp_fragment",
    [
        (fragments.WGMMA_M64K16_A, fragments.MMA_M16N8K16_A),
        (fragments.WGMMA_M64K32_A, fragments.MMA_M16N8K32_A),
    ],
    ids=["k16", "k32"],
)
def test_wgmma_a_is_the_warp_fragment_16_rows_further_down_for_each_warp(
    fragment: Fragment, warp_fragment: Fragment
) -> None:
    extents = dict(warp_fragment.layout.ins)
    grid = dict(zip(extents, np.ogrid[tuple(slice(1 << b) for b in extents.values())], strict=True))
    one = warp_fragment.layout.apply(**grid)
    for warp in range(4):
        got = fragment.layout.apply(warp=warp, **grid)
        assert np.array_equal(got["row"], one["row"] + 16 * warp)
        assert np.array_equal(got["k"], one["k"])


@pytest.mark.parametrize("n", [8, 16, 32, 64, 128, 256])
def test_wgmma_accumulators(n: int) -> None:
    """row = 16 * warp + lane / 4 + 8 * ((i / 2) & 1); col = 8 * (i / 4) + lane % 4 * 2 + (i & 1)."""
    fragment = fragments.wgmma_accumulator(n)
    warp, lane, i = np.ogrid[:4, :32, : n // 2]
    got = fragment.layout.apply(warp=warp, lane=lane, register=i)
    shape = (4, 32, n // 2)
    row = 16 * warp + lane // 4 + 8 * ((i // 2) & 1)
    column = 8 * (i // 4) + lane % 4 * 2 + (i & 1)
    assert np.array_equal(np.broadcast_to(got["row"], shape), np.broadcast_to(row, shape))
    assert np.array_equal(np.broadcast_to(got["column"], shape), np.broadcast_to(column, shape))


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda f: f.name)
def test_every_fragment_is_a_bijection_with_a_source(fragment: Fragment) -> None:
    assert fragment.layout.is_bijective
    assert fragment.source.startswith("PTX ISA")
    assert str(fragment).startswith(fragment.name)


def test_counts_that_no_instruction_has_are_refused() -> None:
    with pytest.raises(LayoutError, match="1, 2 or 4 matrices, not 3"):
        fragments.ldmatrix(3)
    with pytest.raises(LayoutError, match="n = 24 is no power of two"):
        fragments.wgmma_accumulator(24)
