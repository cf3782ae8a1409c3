from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladder.decode.forms import CONSTANTS, search
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def lanes_of(form, fmt):
    """The lane value of each pattern of stored bits."""
    size = 1 << len(form.positions)
    put = [sum(1 << p for i, p in enumerate(form.positions) if s >> i & 1) for s in range(size)]
    return [float(fmt.table[form.constant | x]) for x in put]


def check(form, values, fmt):
    lanes = lanes_of(form, fmt)
    assert sorted(form.stored) == list(range(values.size))
    assert not form.constant & form.mask
    for code, value in values.by_code().items():
        lane = Fraction(lanes[form.stored[code]])
        assert form.deferred.alpha * lane + form.deferred.beta == value
    for code, value in values.special:
        if code in form.carried:
            lane = lanes[form.stored[code]]
            assert lane == value or (np.isnan(lane) and np.isnan(value))


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    "name", ["int4", "signmag3", "bipolar2", "ternary", "fp4_e2m1", "fp8_e4m3fn", "fp8_e5m2"]
)
def test_every_form_is_right(catalog, name, fmt):
    values = ValueSet.of(catalog[name])
    forms = search(values, fmt)
    assert forms
    for form in forms:
        check(form, values, fmt)


def affine_image(lanes, goal):
    """Whether sorted lanes are an affine image, up or down, of sorted values; in rational numbers."""
    if not np.isfinite(lanes).all() or lanes[0] == lanes[-1]:
        return False
    x = [Fraction(float(v)) for v in lanes]
    for y in (goal, [-v for v in reversed(goal)]):
        alpha = (y[-1] - y[0]) / (x[-1] - x[0])
        if all(alpha * (a - x[0]) + y[0] == b for a, b in zip(x, y, strict=True)):
            return True
    return False


@pytest.mark.parametrize(
    "levels", [(0, 1, 2, 3), (-3, -1, 1, 5), (-5, -1, 1, 3), (0, 1, 4, 16), (0, 1, 2, 4)]
)
@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_the_search_misses_no_set_of_positions(levels, fmt):
    """All constants of all sets of two positions, one by one and in rational numbers, for every third set."""
    goal = [Fraction(v) for v in levels]
    found = {form.positions for form in search(ValueSet.of(TType("t", 2, values=levels)), fmt)}
    for low, high in list(combinations(range(16), 2))[::3]:
        put = np.array([0, 1 << low, 1 << high, 1 << low | 1 << high])
        constants = np.arange(1 << 16)
        constants = constants[constants & int(put[3]) == 0]
        lanes = np.sort(fmt.table[constants[:, None] | put], axis=1)
        with np.errstate(all="ignore"):
            shape = (lanes - lanes[:, :1]) / (lanes[:, -1:] - lanes[:, :1])
        near = np.zeros(len(lanes), bool)
        for y in (goal, [-v for v in reversed(goal)]):
            want = np.array([float((v - y[0]) / (y[-1] - y[0])) for v in y])
            near |= np.abs(shape - want).max(axis=1) < 1e-6
        exists = any(affine_image(row, goal) for row in lanes[near])
        assert ((low, high) in found) == exists, (low, high)


def test_known_forms_are_among_them(catalog):
    def places(name, fmt):
        return {form.positions: form for form in reversed(search(ValueSet.of(catalog[name]), fmt))}

    assert places("fp4_e2m1", FLOAT16)[9, 10, 11, 15].deferred.alpha == 2**14
    assert places("fp4_e2m1", BFLOAT16)[6, 7, 8, 15].deferred.alpha == 2**126
    assert places("fp8_e4m3fn", FLOAT16)[7, 8, 9, 10, 11, 12, 13, 15].deferred.alpha == 2**8
    assert places("fp8_e5m2", FLOAT16)[8, 9, 10, 11, 12, 13, 14, 15].carried == (
        124,
        125,
        126,
        127,
        252,
        253,
        254,
        255,
    )
    assert places("uint4", FLOAT16)[3, 4, 5, 6].deferred.alpha == 2**21
    magic = [f for f in search(ValueSet.of(catalog["uint4"]), FLOAT16) if f.constant == 0x6400]
    assert ((0, 1, 2, 3), 1, -1024) in {
        (f.positions, f.deferred.alpha, f.deferred.beta) for f in magic
    }


def test_few_constants_are_kept_for_each_set_of_positions(catalog):
    forms = search(ValueSet.of(catalog["uint2"]), FLOAT16)
    counts = [sum(f.positions == p for f in forms) for p in {f.positions for f in forms}]
    assert max(counts) == 2 * CONSTANTS


@settings(max_examples=5)
@given(data=st.data())
def test_forms_are_right_with_holes(data):
    bits = data.draw(st.integers(2, 3))
    size = 1 << bits
    holes = data.draw(st.sets(st.integers(0, size - 1), max_size=size - 2))
    step, start = data.draw(st.sampled_from([1, 2, 3, 0.5])), data.draw(st.integers(-20, 20))
    table = [None if c in holes else start + step * c for c in range(size)]
    values = ValueSet.of(TType("t", bits, values=table))
    fmt = data.draw(st.sampled_from([FLOAT16, BFLOAT16]))
    forms = search(values, fmt)
    for form in forms:
        check(form, values, fmt)
    if len(holes) <= 3:  # a step at most, so the plain integer serves
        assert any(form.positions == tuple(range(bits)) for form in forms)


def test_a_constant_has_no_form():
    assert search(ValueSet.of(TType("t", 1, values=[3, 3])), FLOAT16) == []


def test_values_that_repeat_have_no_form_but_one_at_both_zeros(monkeypatch):
    twice = ValueSet.of(TType("t", 2, values=[0.0, -0.0, 1, -1]))
    forms = search(twice, FLOAT16)
    assert forms
    for form in forms:
        check(form, twice, FLOAT16)
    monkeypatch.setattr("ladder.decode.forms.grids", lambda *_: pytest.fail("searched"))
    for levels in ([0, 0, 1, 1], [0, 0, 0, 1]):
        assert search(ValueSet.of(TType("t", 2, values=levels)), FLOAT16) == []
