from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ladder.decode import scaled as module
from ladder.decode.derive import derive
from ladder.decode.program import Affine
from ladder.decode.prove import prove
from ladder.decode.reference import decode_atom, pack_atom
from ladder.decode.same_words import reads_alike
from ladder.decode.scaled import MOST_LANE, scaled, search_scaled
from ladder.decode.serial import dump, load
from ladder.decode.text import listing
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError
from ladder.ttype import TType

#: types whose float16 program finishes lanes by an fma and has another without: ALU operations per 8 codes of either
WITHOUT_FMA = {"int3": 5.25, "offset3": 5.25, "bipolar3": 5.25, "int5": 6.25, "offset5": 6.25}
#: masks of single bits leave factors from 2^24 to 2^-1: the small ones would scale by subnormals
TOO_FAR_APART = ("int1", "offset1", "bipolar1")


@pytest.mark.parametrize("name", WITHOUT_FMA)
def test_shipped_programs_read_the_same_words_without_an_fma_and_are_proven(catalog, name):
    element = catalog[name]
    program = derive(element, "float16")
    other = scaled(element, program)
    assert (other.element, other.form, other.is_scaled) == (name, "mask", True)
    assert reads_alike(other, program)
    assert prove(other, element) == prove(program, element)
    assert other.pipes() == {"alu": WITHOUT_FMA[name], "fma": 0, "lsu": 0}
    assert program.pipes() == {"alu": WITHOUT_FMA[name], "fma": 4, "lsu": 0}
    assert not program.is_scaled


def test_those_are_all_of_the_catalogue(catalog):
    for name, element in catalog.items():
        for compute in ("float16", "bfloat16") if name != "e8m0" else ("bfloat16",):
            found = scaled(element, derive(element, compute))
            assert (found is not None) == (compute == "float16" and name in WITHOUT_FMA)


@pytest.mark.parametrize("name", TOO_FAR_APART)
def test_factors_far_apart_are_left_alone(catalog, name):
    element = catalog[name]
    program = derive(element, "float16")
    assert program.pipes()["fma"]
    assert search_scaled(ValueSet.of(element), program) is None


def test_every_lane_is_small_enough_to_vanish_with_a_subnormal_scale(catalog):
    for name in WITHOUT_FMA:
        program = scaled(catalog[name], derive(catalog[name], "float16"))
        for affine in {a for row in program.affine for a in row}:
            lanes = [
                abs(Fraction(v) - affine.beta) / affine.alpha for v in catalog[name].values.tolist()
            ]
            assert max(lanes) <= MOST_LANE


def test_both_programs_decode_the_same_words(catalog):
    element = catalog["int3"]
    program = derive(element, "float16")
    other = scaled(element, program)
    codes = np.random.default_rng(0).integers(0, 8, (3, 16, program.atom_k))
    words = pack_atom(program, codes)
    assert np.array_equal(words, pack_atom(other, codes))
    assert np.array_equal(decode_atom(other, words), element.values[codes])
    assert np.array_equal(decode_atom(program, words), element.values[codes])


def test_a_type_never_seen_has_one_on_demand():
    element = TType("thirds", 3, values=[-3, -2, -1, 0, 1, 2, 3, 4])
    program = derive(element, "float16")
    other = scaled(element, program)
    assert other is not None
    assert reads_alike(other, program)
    assert prove(other, element)


def test_what_is_shipped_is_what_the_search_finds(catalog):
    for name in ("int3", "int5"):
        program = derive(catalog[name], "float16")
        found = search_scaled(ValueSet.of(catalog[name]), program)
        assert replace(found, element=name) == scaled(catalog[name], program)


def test_shipped_ones_are_for_the_shipped_words_alone(catalog, monkeypatch):
    element = catalog["int3"]
    program = replace(derive(element, "float16"), element="")
    monkeypatch.setattr(module, "search_scaled", lambda *_: "searched")
    module._scaled.cache_clear()
    values = ValueSet.of(element)
    assert module._scaled(values, program).is_scaled
    assert module._scaled(values, replace(program, slots=program.slots[::-1])) == "searched"
    module._scaled.cache_clear()


def test_a_wrong_map_of_one_register_is_found(catalog):
    element = catalog["int3"]
    program = scaled(element, derive(element, "float16"))
    first = program.affine[0]
    wrong = replace(program, affine=((*first[:3], Affine(Fraction(1))), *program.affine[1:]))
    assert program.deferred(0, 3) == first[3]
    with pytest.raises(DecodeError, match="gives lane"):
        prove(wrong, element)


def test_maps_of_registers_are_written_read_and_shown(catalog):
    program = scaled(catalog["int3"], derive(catalog["int3"], "float16"))
    assert load(json.loads(json.dumps(dump(program)))) == program
    assert "class 0: value = 2^24*lane - 4 (a0), 2^18*lane - 4 (a1)" in listing(program)
