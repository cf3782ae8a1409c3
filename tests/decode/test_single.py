from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ladder.decode import single as module
from ladder.decode.derive import derive
from ladder.decode.exact import Exact
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.program import Affine
from ladder.decode.prove import prove
from ladder.decode.reference import decode_atom, pack_atom
from ladder.decode.same_words import reads_alike
from ladder.decode.single import brought, one_class, search_one_class
from ladder.decode.values import ValueSet
from ladder.ttype import TType

#: types whose cheapest float16 program has two classes, and operations of the other per 8 codes: ALU, FMA
SEVERAL = {
    "int2": (4.5, 4),
    "offset2": (4.5, 4),
    "ternary": (4.5, 4),
    "bipolar2": (5, 4),
    "uint1": (4.25, 3),
    "uint2": (4.5, 2),
    "uint3": (5.5, 1.5),
    "signmag3": (7.75, 1),
    "signmag5": (8, 2),
    "signmag6": (8, 2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_shipped_programs_have_one_class_read_the_same_words_and_are_proven(catalog, name):
    element = catalog[name]
    program = derive(element, "float16")
    one = one_class(element, program)
    assert (program.classes, one.classes, one.element) == (2, 1, name)
    assert reads_alike(one, program)
    assert prove(one, element)
    pipes = one.pipes()
    assert (pipes["alu"], pipes["fma"]) <= SEVERAL[name]
    assert not one.defers_zero


def test_every_type_of_the_catalogue_has_one(catalog):
    for name, element in catalog.items():
        for compute in ("float16", "bfloat16") if name != "e8m0" else ("bfloat16",):
            program = derive(element, compute)
            assert (program.classes > 1) == (compute == "float16" and name in SEVERAL)
            one = one_class(element, program)
            assert one.classes == 1
            assert program.classes > 1 or one is program


def test_both_programs_decode_the_same_words(catalog):
    element = catalog["int2"]
    program = derive(element, "float16")
    codes = np.random.default_rng(0).integers(0, 4, (3, 16, program.atom_k))
    words = pack_atom(program, codes)
    one = one_class(element, program)
    assert np.array_equal(words, pack_atom(one, codes))
    assert np.array_equal(decode_atom(program, words), decode_atom(one, words))
    assert np.array_equal(decode_atom(one, words), element.values[codes])


@pytest.mark.parametrize("values", [[0, 1, 4, 16], [-3, 0, 1, 3], [None, 0, 1, np.nan]], ids=str)
def test_a_type_never_seen_has_one_on_demand(values):
    element = TType("fresh", 2, values=values)
    program = derive(element, "float16")
    one = one_class(element, program)
    assert one is not None
    assert one.classes == 1
    assert reads_alike(one, program)
    assert prove(one, element)


def test_shipped_ones_are_not_searched_but_only_for_the_shipped_words(catalog, monkeypatch):
    element = catalog["uint2"]
    program = derive(element, "float16")
    monkeypatch.setattr(module, "search_one_class", lambda *_: "searched")
    module._one_class.cache_clear()
    values = ValueSet.of(element)
    assert module._one_class(values, replace(program, element="")).classes == 1
    turned = replace(program, slots=program.slots[::-1], element="")
    assert module._one_class(values, turned) == "searched"
    module._one_class.cache_clear()


def test_a_program_of_no_masks_has_none(catalog):
    element = catalog["nf4"]
    program = derive(element, "float16")
    assert one_class(element, program) is program  # it has one class itself
    assert search_one_class(ValueSet.of(element), program) is None


def test_one_fma_brings_a_form_to_another_map():
    exact = Exact.of(ValueSet.of(TType("t", 2, values=[0, 1, 2, 3])), FLOAT16)
    form = exact.form((0, 1), 0, (0, 0), mirrored=False)
    assert form.deferred == Affine(Fraction(2**24))
    assert brought(form, form.deferred, FLOAT16) is form
    found = brought(form, Affine(Fraction(2**20)), FLOAT16)
    assert (found.fma, found.deferred.alpha) == ((FLOAT16.pattern(Fraction(16)), 0x8000), 2**20)
    assert brought(form, Affine(), FLOAT16) is None  # 2^24 is no float16
    magic = exact.form((0, 1), 0x6400, (0, 0), mirrored=False)
    assert brought(magic, Affine(), FLOAT16).fma == (0x3C00, FLOAT16.pattern(Fraction(-1024)))
    assert brought(magic, Affine(Fraction(3)), BFLOAT16) is None
