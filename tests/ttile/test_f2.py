from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ladder.ttile import f2


def span(vectors: list[int]) -> set[int]:
    """All sums, by trying every subset."""
    sums = {0}
    for vector in vectors:
        sums |= {vector ^ s for s in sums}
    return sums


@given(st.lists(st.integers(0, 63), max_size=8))
def test_rank_is_the_logarithm_of_the_span(vectors: list[int]) -> None:
    assert 2 ** f2.rank(vectors) == len(span(vectors))


@given(st.lists(st.integers(0, 31), min_size=1, max_size=5), st.data())
def test_apply_is_linear(basis: list[int], data: st.DataObject) -> None:
    top = 2 ** len(basis) - 1
    a, b = data.draw(st.integers(0, top)), data.draw(st.integers(0, top))
    assert f2.apply(basis, a) ^ f2.apply(basis, b) == f2.apply(basis, a ^ b)


def test_inverse_of_every_bijection_of_three_bits() -> None:
    found = 0
    for basis in itertools.product(range(8), repeat=3):
        if f2.rank(basis) < 3:
            continue
        found += 1
        back = f2.inverse(basis)
        assert [f2.apply(back, f2.apply(basis, v)) for v in range(8)] == list(range(8))
    assert found == 7 * 6 * 4  # order of GL(3, 2)
