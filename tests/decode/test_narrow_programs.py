"""Decoding to lanes of 8 and 4 bits: every type of the catalogue is proven or refused, and the cheap forms are found."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladder
from ladder.decode.derive import derive
from ladder.decode.lanes import E4M3, E5M2, INT4, INT8, NARROW_FORMATS, UINT4
from ladder.decode.prove import prove
from ladder.decode.reference import decode_atom, pack_atom, unpack_atom
from ladder.errors import LosslessError
from ladder.ttype import TType

#: operations per 8 codes, and the factor that is left
COSTS = {
    ("int4", "int8"): (3.0, 1 / 16),
    ("uint4", "int8"): (3.0, 1.0),
    ("offset4", "int8"): (3.0, 1 / 16),
    ("bipolar4", "int8"): (3.0, 1 / 8),
    ("int8", "int8"): (0.0, 1.0),
    ("offset8", "int8"): (0.0, 1.0),
    ("ternary", "int8"): (3.5, 1 / 64),
    ("fp4_e2m1", "fp8_e4m3fn"): (5.0, 64.0),
    ("int4", "fp8_e4m3fn"): (9.0, 1.0),
    ("uint4", "fp8_e4m3fn"): (3.0, 512.0),
    ("fp8_e4m3fn", "fp8_e4m3fn"): (0.0, 1.0),
    ("fp8_e5m2", "fp8_e5m2"): (0.0, 1.0),
    ("int4", "int4"): (0.0, 1.0),
    ("offset4", "int4"): (0.0, 1.0),
    ("uint4", "uint4"): (0.0, 1.0),
    ("int3", "int4"): (2.25, 1 / 2),
    ("uint3", "int4"): (2.25, 1.0),
    ("int2", "int4"): (1.5, 1 / 4),
    ("ternary", "int4"): (1.5, 1 / 4),
    ("int1", "int4"): (1.75, 1 / 8),
}
#: types that int8 holds up to a factor, and decodes to
INTEGERS = tuple(
    f"{kind}{bits}" for kind in ("int", "uint", "offset", "bipolar") for bits in range(1, 8)
)


@pytest.mark.parametrize(
    "fmt, dtype",
    [(INT8, np.int8), (E4M3, ml_dtypes.float8_e4m3fn), (E5M2, ml_dtypes.float8_e5m2)],
)
def test_lanes_mean_what_their_dtype_says(fmt, dtype):
    expected = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    np.testing.assert_array_equal(fmt.table, expected)
    assert (fmt.bits, fmt.count) == (8, 4)


def test_lanes_of_4_bits_are_two_s_complement_or_counts():
    np.testing.assert_array_equal(INT4.table, [*range(8), *range(-8, 0)])
    np.testing.assert_array_equal(UINT4.table, range(16))
    assert (INT4.bits, INT4.count) == (4, 8)


@pytest.mark.parametrize("compute", NARROW_FORMATS)
def test_every_shipped_type_is_proven_or_refused(compute, catalog):
    proven = 0
    for element in catalog.values():
        try:
            program = derive(element, compute)
        except LosslessError:
            continue
        assert program.lossless
        assert program.classes == 1
        assert not program.defers_zero
        proven += prove(program, element)
    assert proven > (10_000 if NARROW_FORMATS[compute].bits == 8 else 1_000)


@pytest.mark.parametrize("name", [*INTEGERS, "int8", "offset8", "ternary"])
def test_integers_decode_to_int8(name, catalog):
    assert prove(derive(catalog[name], "int8"), catalog[name])


@pytest.mark.parametrize("name, compute", COSTS)
def test_the_cheap_forms_are_found(name, compute, catalog):
    program = derive(catalog[name], compute)
    ((g, h),) = program.affine
    assert (program.pipes()["alu"], float(g.alpha)) == COSTS[name, compute]
    assert g == h


@pytest.mark.parametrize(
    "name, compute",
    [
        *((name, "int8") for name in ("int4", "uint3", "bipolar5", "int8")),
        *((name, "int4") for name in ("int1", "int2", "uint3", "bipolar3", "int4")),
    ],
)
def test_atoms_are_packed_and_decoded(name, compute, catalog):
    element = catalog[name]
    program = derive(element, compute)
    codes = (
        np.random.default_rng(1)
        .integers(0, 1 << element.bits, (2, 16, program.atom_k))
        .astype(np.uint8)
    )
    words = pack_atom(program, codes)
    np.testing.assert_array_equal(unpack_atom(program, words), codes)
    np.testing.assert_array_equal(decode_atom(program, words), element.values[codes])


def test_what_a_byte_does_not_hold_is_refused_with_a_code():
    with pytest.raises(LosslessError) as error:
        derive(ladder.types["uint8"], "int8")
    assert str(error.value) == (
        "code 128 of uint8 means 128.0, which int8 does not hold\n"
        "  at: decode of uint8 to int8\n"
        "  hint: use float16 or bfloat16 activations, or a weight type whose values are exact in 8 bits"
    )


@pytest.mark.parametrize(
    "name, compute",
    [
        *(("nf4", "fp8_e4m3fn"), ("fp8_e4m3fn", "int8"), ("signmag4", "int8")),
        *(("int8", "fp8_e4m3fn"), ("uint4", "int4"), ("int5", "int4"), ("int4", "uint4")),
        *(("signmag3", "int4"), ("bipolar4", "int4"), ("fp4_e2m1", "int4")),
    ],
)
def test_others_are_refused(name, compute):
    with pytest.raises(LosslessError, match=f"{name} .*{compute}"):
        derive(ladder.types[name], compute)


@given(st.sampled_from(list(NARROW_FORMATS)), st.integers(1, 4), st.data())
def test_codebooks_of_lanes_decode_or_are_refused(compute, bits, data):
    """Any values of the format, in any order: those with an even number of negative ones have a table."""
    table = NARROW_FORMATS[compute].table
    finite = sorted({x for x in table.tolist() if math.isfinite(x)})
    values = data.draw(
        st.lists(st.sampled_from(finite), min_size=1 << bits, max_size=1 << bits, unique=True)
    )
    element = TType("book", bits, values)
    has_table = NARROW_FORMATS[compute].bits == 8
    if has_table and (bits < 4 or sum(v < 0 for v in values) % 2 == 0):
        assert prove(derive(element, compute), element)
        return
    try:
        program = derive(element, compute)
    except LosslessError:
        return
    prove(program, element)
