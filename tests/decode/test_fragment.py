from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.fragment import Decoded, arrange, classes, pairing
from ladder.decode.program import Affine, Slot


def fewest_by_trial(pairs):
    """Fewest kinds of (pair, pair) steps that use the pairs up, by trying every number of every kind."""
    steps = sum(pairs) // 2
    kinds = list(combinations_with_replacement(range(len(pairs)), 2))
    best = None
    for counts in product(range(steps + 1), repeat=len(kinds)):
        if sum(counts) != steps:
            continue
        used = [0] * len(pairs)
        for (i, j), n in zip(kinds, counts, strict=True):
            used[i] += n
            used[j] += n
        if used == list(pairs):
            need = sum(n > 0 for n in counts)
            best = need if best is None else min(best, need)
    return best


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(
        lambda p: sum(p) % 2 == 0 and sum(p) <= 8
    )
)
def test_the_fewest_classes_are_found(pairs):
    assert classes([2 * n for n in pairs]) == fewest_by_trial(pairs)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_pairings_use_every_register_once(counts):
    plan = pairing(tuple(counts))
    if plan is None:
        assert any(n % 2 for n in counts) or sum(counts) % 4
        return
    used = [0] * len(counts)
    for i, j, steps in plan:
        used[i] += 2 * steps
        used[j] += 2 * steps
    assert used == counts


def test_an_odd_count_fits_no_fragment():
    assert classes([3, 5]) is None


def decoded(factors):
    return [
        Decoded(10 + i, (Slot((2 * i,)), Slot((2 * i + 1,))), Affine(Fraction(f)))
        for i, f in enumerate(factors)
    ]


def test_row_halves_share_their_factors():
    registers = decoded([1, 2, 1, 2, 2, 1, 1, 2])
    fragment = arrange(registers)
    by_register = {r.register: r for r in registers}
    assert sorted(r for step in fragment.outputs for r in step) == sorted(by_register)
    assert len(fragment.affine) == 1
    for outputs, slots, cls in zip(
        fragment.outputs, fragment.slots, fragment.step_class, strict=True
    ):
        for i, register in enumerate(outputs):
            assert by_register[register].deferred == fragment.affine[cls][i & 1]
            assert slots[i] == by_register[register].slots


def test_registers_that_fit_no_fragment_are_refused():
    assert arrange(decoded([1, 1, 1, 2])) is None


def test_rows_are_made_alike_where_registers_have_two_maps_before_their_fma():
    registers = [
        replace(register, bare=Affine(Fraction(16 if i % 2 else 1)))
        for i, register in enumerate(decoded([4] * 8))
    ]
    before = {register.register: register.bare for register in registers}
    fragment = arrange(registers)
    assert fragment.affine == ((Affine(Fraction(4)),) * 2,)
    for outputs in fragment.outputs:
        assert [before[r].alpha for r in outputs] == [1, 16, 1, 16]


def test_registers_with_more_maps_before_their_fma_keep_their_order():
    registers = [
        replace(register, bare=Affine(Fraction(1 << i % 4)))
        for i, register in enumerate(decoded([4] * 8))
    ]
    assert arrange(registers) == arrange(decoded([4] * 8))
