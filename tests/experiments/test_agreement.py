"""Kendall's tau against its definition, and the pairs that stand the other way round."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ladder.errors import ExperimentError
from ladder.experiments import Sweep, agreement, disagreements, kendall_tau, rows

NUMBERS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12)


def by_counting(a, b) -> float:
    """Tau-b from counts of concordant, discordant and tied pairs."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    concordant = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    discordant = sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in pairs)
    tied = [sum(x[i] == x[j] for i, j in pairs) for x in (a, b)]
    size = ((len(pairs) - tied[0]) * (len(pairs) - tied[1])) ** 0.5
    return (concordant - discordant) / size


@given(NUMBERS)
def test_it_is_tau_b(numbers) -> None:
    a, b = zip(*numbers, strict=True)
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert kendall_tau(a, b) == pytest.approx(by_counting(a, b))
    assert kendall_tau(b, a) == pytest.approx(kendall_tau(a, b))
    assert kendall_tau(a, [-x for x in b]) == pytest.approx(-kendall_tau(a, b))


def test_known_values() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    # Kendall 1945: ranks (1, 2.5, 2.5, 4) and (1, 2, 3, 4)
    assert kendall_tau([1, 2.5, 2.5, 4], [1, 2, 3, 4]) == pytest.approx(5 / 30**0.5)


@pytest.mark.parametrize("a, b", [([1], [1]), ([1, 2], [1]), ([1, 1], [1, 2]), ([1, 2], [3, 3])])
def test_what_has_no_order_is_refused(a, b) -> None:
    with pytest.raises(ExperimentError):
        kendall_tau(a, b)


def test_rows_are_compared_where_they_were_measured() -> None:
    found = list(rows(Sweep(shapes=[(4096, 4096)], weights=["int4"], ms=[1])))
    assert agreement(found) is None
    times = {"register": 1.0, "shared": 3.0, "offline": 2.0}
    measured = [replace(row, measured_us=times.get(row.placement)) for row in found]
    modelled = {row.placement: row.modelled_us for row in found}
    assert modelled["register"] < modelled["shared"]
    places = list(times)
    expected = kendall_tau([modelled[p] for p in places], [times[p] for p in places])
    assert agreement(measured) == pytest.approx(expected)
    for a, b in disagreements(measured):
        assert a.modelled_us < b.modelled_us
        assert a.measured_us > b.measured_us
    swapped = [replace(row, measured_us=-row.modelled_us) for row in found]
    pairs = disagreements(swapped)
    assert agreement(swapped) == pytest.approx(-1)
    assert len(pairs) == len({row.modelled_us for row in found}) * (len(found) - 1) // 2
