"""How K is cut: groups start on mma steps, blocks hold whole atoms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.scheduler.geometry import STEP_K, KGeometry, counted, round_up


@given(
    k=st.integers(1, 5000),
    group=st.one_of(st.none(), st.integers(1, 700)),
    atom_k=st.sampled_from([32, 64, 128, 256]),
)
def test_cut_holds_what_the_kernel_relies_on(k, group, atom_k):
    cut = KGeometry.of(k, group, atom_k)
    assert cut.block_k % cut.atom_k == 0
    assert cut.padded_k % cut.block_k == 0
    assert cut.padded_k >= k
    assert cut.padded_group >= cut.group or cut.groups == 1
    assert cut.padded_group % STEP_K == 0
    assert cut.padded_k - cut.groups * cut.padded_group < cut.block_k
    assert cut.blocks * cut.block_k == cut.padded_k
    if cut.groups > 1:
        assert cut.padded_group % cut.block_k == 0 or cut.block_k % cut.padded_group == 0
        assert cut.padded_group % atom_k == 0 or atom_k % cut.padded_group == 0
        assert cut.padded_groups * cut.padded_group == cut.padded_k
    # every position of a group lies where (group index, place) says
    last = k - 1
    assert last // cut.group * cut.padded_group + last % cut.group < cut.padded_k


@pytest.mark.parametrize(
    "k, group, atom_k, padded_group, block_k, padded_k",
    [
        (8192, 128, 64, 128, 128, 8192),
        (4304, 32, 64, 32, 128, 4352),
        (200, 100, 64, 128, 128, 256),
        (1000, 20, 64, 32, 128, 1664),
        (768, 512, 64, 512, 128, 1024),
        (100, None, 256, 256, 256, 256),
        (1000, 192, 64, 192, 64, 1152),
        (64, 3, 256, 16, 256, 512),
    ],
)
def test_cuts_by_hand(k, group, atom_k, padded_group, block_k, padded_k):
    cut = KGeometry.of(k, group, atom_k)
    assert (cut.padded_group, cut.block_k, cut.padded_k) == (padded_group, block_k, padded_k)


def test_group_as_long_as_k_is_one_group():
    assert KGeometry.of(100, 100, 64).groups == 1
    assert KGeometry.of(100, 500, 64).groups == 1
    assert KGeometry.of(100, 99, 64).groups == 2


def test_contiguous_where_no_group_is_padded():
    assert KGeometry.of(1000, 128, 64).is_contiguous
    assert KGeometry.of(1001, None, 64).is_contiguous
    assert not KGeometry.of(1000, 100, 64).is_contiguous


def test_a_block_of_wide_codes_has_fewer_columns() -> None:
    assert [KGeometry.of(1000, None, 32, bits).block_k for bits in (1, 4, 8, 16)] == [
        128,
        128,
        128,
        64,
    ]
    assert KGeometry.of(1000, None, 32, 16).padded_k == 1024


def test_words():
    assert (round_up(17, 16), round_up(16, 16), round_up(0, 16)) == (32, 16, 0)
    assert [counted(n, w) for n, w in ((1, "block"), (2, "class"), (3, "flush"), (0, "wave"))] == [
        "1 block",
        "2 classes",
        "3 flushes",
        "0 waves",
    ]


@pytest.mark.parametrize("atom", [32, 64, 128, 256])
@pytest.mark.parametrize("group", [1, 16, 33, 64, 96, 100, 128, 129, 192, 256, 500])
def test_blocks_of_8_bit_activations_are_never_halved(group, atom):
    cut = KGeometry.of(4096, group, atom, step_k=32)
    assert cut.block_k == max(128, atom)
    assert cut.padded_group >= group
    assert cut.padded_group % 32 == 0
    assert cut.block_k % cut.padded_group == 0 or cut.padded_group % cut.block_k == 0
    assert cut.padded_k % cut.block_k == 0


@pytest.mark.parametrize(
    "group, atom, padded_group, block_k",
    [
        (None, 64, 4096, 256),
        (64, 64, 64, 128),
        (128, 64, 128, 256),
        (96, 64, 128, 256),
        (192, 64, 256, 256),
        (256, 64, 256, 256),
        (64, 256, 64, 256),
    ],
)
def test_blocks_of_4_bit_activations_have_four_steps_or_two_groups(
    group, atom, padded_group, block_k
) -> None:
    cut = KGeometry.of(4096, group, atom, 4, step_k=64)
    assert (cut.padded_group, cut.block_k) == (padded_group, block_k)
    assert cut.groups_per_block <= max(2, atom // padded_group)
