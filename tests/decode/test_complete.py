from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ladder.decode.complete import (
    BFLOAT16_FLOOR,
    ZERO_LIMIT,
    families,
    is_float32,
    is_power_of_two,
    units,
)
from ladder.decode.forms import search
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.machine import fma_lane
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def lanes_of(form, fmt, size):
    put = [sum(1 << p for i, p in enumerate(form.positions) if s >> i & 1) for s in range(size)]
    return fmt.table[[form.constant | x for x in put]]


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    "name", ["int2", "int4", "uint8", "bipolar3", "signmag4", "ternary", "fp6_e3m2"]
)
def test_families_can_share_a_program(catalog, name, fmt):
    values = ValueSet.of(catalog[name])
    found = list(families(values, search(values, fmt), fmt))
    assert found
    for family in found:
        forms = family.forms
        assert len({form.positions for form in forms}) == len(forms)
        assert len({form.deferred.beta for form in forms}) == 1
        assert abs(forms[0].deferred.beta) <= ZERO_LIMIT * values.largest
        assert all(
            is_float32(form.deferred.alpha) and is_float32(form.deferred.beta) for form in forms
        )
        if family.name == "mask+fma":
            assert len({form.deferred for form in forms}) == 1


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", ["int4", "uint8", "int8", "fp8_e4m3fn"])
def test_finished_lanes_are_right_and_never_vanish(catalog, name, fmt):
    values = ValueSet.of(catalog[name])
    for family in families(values, search(values, fmt), fmt):
        for form in family.forms:
            lanes = lanes_of(form, fmt, values.size)
            if form.fma:
                factor, addend = (fmt.table[x] for x in form.fma)
                lanes = fma_lane(lanes, factor, addend, fmt)
            for code, value in values.by_code().items():
                lane = float(lanes[form.stored[code]])
                assert form.deferred.alpha * Fraction(lane) + form.deferred.beta == value
                if fmt is BFLOAT16 and lane and abs(lane) < BFLOAT16_FLOOR:
                    assert form.deferred.alpha <= 1


def test_magic_zeros_are_not_left_to_the_accumulators(catalog):
    values = ValueSet.of(catalog["uint4"])
    for family in families(values, search(values, FLOAT16), FLOAT16):
        if family.name == "mask":
            assert abs(family.forms[0].deferred.beta) <= 30


def test_units_bring_values_into_the_format():
    values = ValueSet.of(TType("t", 2, values=[0, 2.0**20, 3 * 2.0**20, -(2.0**21)]))
    assert next(units(values, FLOAT16)) == 2**6
    assert next(units(values, BFLOAT16)) == 1
    assert next(units(ValueSet.of(TType("t", 1, values=[0.1, 1])), FLOAT16), None) is None


def test_bfloat16_lanes_stay_above_the_floor():
    values = ValueSet.of(TType("t", 1, values=[2.0**50, 1]))
    assert max(units(values, BFLOAT16)) == 2**60
    small = ValueSet.of(TType("t", 1, values=[2.0**-100, 1]))
    assert (
        next(units(small, BFLOAT16)) == 1
    )  # as small as it was declared: nothing is lost that was asked for
    assert max(units(small, BFLOAT16)) == 1


def test_float32_is_recognised():
    good = [0, 1, Fraction(-3, 1 << 20), Fraction(1, 1 << 149), Fraction(2) ** 127]
    bad = [
        Fraction(1, 3),
        (1 << 25) + 1,
        Fraction(2) ** 128,
        Fraction(1, 1 << 150),
        Fraction(10) ** 400,
    ]
    assert all(is_float32(Fraction(x)) for x in good)
    assert not any(is_float32(Fraction(x)) for x in bad)


def test_powers_of_two_are_recognised():
    assert all(
        is_power_of_two(Fraction(2) ** k) and is_power_of_two(-(Fraction(2) ** k))
        for k in range(-9, 9)
    )
    assert not any(is_power_of_two(Fraction(x)) for x in (0, 3, -6, 0.75))
    assert np.isfinite(float(Fraction(2) ** 100))


def test_of_bfloat16_forms_those_without_a_sign_come_first(catalog):
    values = ValueSet.of(catalog["int4"])
    first, both, *_ = families(values, search(values, BFLOAT16), BFLOAT16)
    assert set(first.forms) < set(both.forms)
    assert len({form.stored for form in first.forms}) == 1
    assert len({form.stored for form in both.forms}) == 2
    for form in both.forms:
        factor, addend = (Fraction(float(BFLOAT16.table[bits])) for bits in form.fma)
        assert form.bare.alpha == form.deferred.alpha * factor
        assert form.bare.beta == form.deferred.alpha * addend + form.deferred.beta
