from __future__ import annotations

import numpy as np
import pytest

from ladder.decode.assemble import Target
from ladder.decode.derive import derive
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.machine import fragments
from ladder.decode.prove import prove
from ladder.decode.reference import decode_atom, pack_atom
from ladder.decode.special import CVT_E4M3, special_programs
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def rules(element, fmt, *features):
    return list(special_programs(Target(ValueSet.of(element), fmt), frozenset(features)))


def test_cvt_carries_every_code(catalog):
    (program,) = rules(catalog["fp8_e4m3fn"], FLOAT16, CVT_E4M3)
    assert program.undefined == ()
    assert prove(program, catalog["fp8_e4m3fn"]) == 16 * 256
    assert program.pipes() == {"alu": 4, "fma": 0, "lsu": 0}


@pytest.mark.parametrize("name", ["fp8_e5m2", "int8"])
def test_cvt_is_for_e4m3_only(catalog, name):
    assert rules(catalog[name], FLOAT16, CVT_E4M3) == []
    assert rules(catalog["fp8_e4m3fn"], FLOAT16) == []
    assert rules(catalog["fp8_e4m3fn"], BFLOAT16, CVT_E4M3) == []


def test_cvt_may_leave_codes_out(catalog):
    values = [None if c in (5, 127) else v for c, v in enumerate(catalog["fp8_e4m3fn"].values)]
    element = TType("fewer", 8, values=values)
    (program,) = rules(element, FLOAT16, CVT_E4M3)
    assert program.undefined == (5, 127)
    assert prove(program, element)


def test_exponents_keep_the_subnormal_and_nan(catalog):
    """C21: the scale 2^-127 is the pattern 0x0040 of bfloat16, neither 0 nor an infinity; 255 is NaN."""
    program = derive(catalog["e8m0"], "bfloat16")
    assert program.undefined == ()
    assert prove(program, catalog["e8m0"]) == 16 * 256
    for code, pattern in [(0, 0x0040), (1, 0x0080), (127, 0x3F80), (254, 0x7F00)]:
        words = pack_atom(program, np.full((16, 32), code, np.uint8))
        assert np.unique(fragments(program, words)).tolist() == [pattern * 0x10001]


def test_exponents_in_another_order(catalog):
    order = np.random.default_rng(0).permutation(256)
    element = TType("mixed", 8, values=catalog["e8m0"].values[order])
    (program,) = rules(element, BFLOAT16)
    assert prove(program, element) == 16 * 256


@pytest.mark.parametrize(
    "compute, features", [("float16", ()), ("float16", (CVT_E4M3,)), ("bfloat16", ())]
)
def test_e4m3_subnormals_are_right_in_both_compute_types(catalog, compute, features):
    """C22: bytes 0x01, 0x07, 0x38, 0x40, 0x7E after the deferred factor."""
    program = derive(catalog["fp8_e4m3fn"], compute, features=frozenset(features))
    codes = np.resize(np.array([0x01, 0x07, 0x38, 0x40, 0x7E], np.uint8), (16, 32))
    want = np.resize([0.001953125, 0.013671875, 1, 2, 448], (16, 32))
    np.testing.assert_array_equal(decode_atom(program, pack_atom(program, codes)), want)
