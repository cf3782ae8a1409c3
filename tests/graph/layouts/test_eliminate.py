"""The exact choice against trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ladder.graph.layouts import eliminate
from ladder.graph.layouts.eliminate import Factor, cheapest, total


@st.composite
def problems(draw):
    names = "abcde"[: draw(st.integers(1, 5))]
    domains = {name: draw(st.integers(1, 3)) for name in names}
    factors = []
    for _ in range(draw(st.integers(0, 6))):
        scope = tuple(draw(st.permutations(names))[: draw(st.integers(1, min(3, len(names))))])
        shape = tuple(domains[name] for name in scope)
        count = int(np.prod(shape))
        costs = draw(
            st.lists(st.sampled_from([0, 1, 2, 5, 7, np.inf]), min_size=count, max_size=count)
        )
        factors.append(Factor(scope, np.array(costs, float).reshape(shape)))
    return domains, factors


@given(problems())
def test_it_is_the_least_of_all_assignments(problem):
    domains, factors = problem
    names = list(domains)
    best = min(
        total(factors, dict(zip(names, picked, strict=True)))
        for picked in product(*(range(domains[name]) for name in names))
    )
    chosen, fixed = cheapest(domains, factors)
    assert set(chosen) == set(domains)
    assert not fixed
    assert total(factors, chosen) == best


def test_what_would_need_too_large_a_table_is_fixed_and_told(monkeypatch):
    monkeypatch.setattr(eliminate, "LARGEST", 8)
    rng = np.random.default_rng(0)
    names = [f"v{i}" for i in range(5)]
    factors = [Factor((a, b), rng.random((3, 3))) for a in names for b in names if a < b]
    chosen, fixed = cheapest(dict.fromkeys(names, 3), factors)
    assert fixed
    assert all(chosen[name] == 0 for name in fixed)
