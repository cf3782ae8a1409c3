from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ladder.decode.assemble import Target
from ladder.decode.cost import cycles
from ladder.decode.derive import derive
from ladder.decode.geometry import WORDS
from ladder.decode.lanes import BFLOAT16, FLOAT16
from ladder.decode.prove import prove
from ladder.decode.tables import (
    BYTE_TABLE_BITS,
    WIDE_STRIDE,
    byte_tables,
    in_registers,
    nibble_fields,
    patterns,
    shared_table,
    table_programs,
    window_fields,
)
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def rounded_codebook(bits, fmt, seed=0):
    values = fmt.round(np.random.default_rng(seed).normal(size=1 << bits))
    return TType(f"codebook{bits}", bits, values=values)


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_byte_tables_take_any_values(bits, fmt):
    element = rounded_codebook(bits, fmt)
    program = byte_tables(Target(ValueSet.of(element), fmt), Fraction(1))
    assert prove(program, element) == program.steps * 8 << bits
    assert program.table is None
    assert program.pipes()["lsu"] == 0


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_any_share_of_loads_decodes_the_same_words(bits, fmt):
    element = rounded_codebook(bits, fmt)
    target = Target(ValueSet.of(element), fmt)
    permuted, *shared = table_programs(target, frozenset())
    assert len(shared) == permuted.steps
    for loads, program in enumerate(shared, 1):
        assert prove(program, element) == program.steps * 8 << bits
        assert (program.slots, program.relabels) == (permuted.slots, permuted.relabels)
        assert program.pipes()["lsu"] == 4 * loads / program.steps
        assert program.table == shared[0].table
        assert in_registers(element, program) == permuted
    assert [p.form for p in (permuted, *shared)] == [
        "byte tables",
        *["pair + byte tables"] * (len(shared) - 1),
        "pair table",
    ]


def test_three_quarters_of_the_codes_of_3_bits_are_loaded():
    """Per 8 codes: a mask, four addresses and loads of three registers; two joined words, one lookup of the fourth."""
    element = rounded_codebook(3, FLOAT16)
    programs = table_programs(Target(ValueSet.of(element), FLOAT16), frozenset())
    best = min(programs, key=cycles)
    assert best.pipes() == {"alu": 7.5, "fma": 0, "lsu": 3}
    assert best.table.nbytes == 32 * 1024


def test_no_byte_tables_hold_16_entries():
    element = rounded_codebook(BYTE_TABLE_BITS + 1, FLOAT16)
    program = shared_table(Target(ValueSet.of(element), FLOAT16), Fraction(1))
    assert in_registers(element, program) is None


def test_a_program_without_a_table_has_no_other_in_registers(catalog):
    assert in_registers(catalog["int3"], derive(catalog["int3"], "float16")) is None


def test_rounded_and_scaled_values_are_looked_up_alike_in_registers():
    element = TType("wide", 3, values=[2.0**30 * v for v in (0.1, 1, 2.3, 3, -1, -2, -5, 8)])
    program = derive(element, "bfloat16")
    assert program.table is not None
    assert not program.lossless
    assert prove(in_registers(element, program), element)


@pytest.mark.parametrize("stride", [128, 256])
@pytest.mark.parametrize("bits", [4, 5, 6, 7, 8])
def test_shared_tables_take_any_values(bits, stride):
    element = rounded_codebook(bits, FLOAT16)
    program = shared_table(Target(ValueSet.of(element), FLOAT16), Fraction(1), stride)
    assert prove(program, element) == program.steps * 8 << bits
    assert len(program.table.entries) == (256 if bits == 4 else 1 << bits)
    assert program.table.nbytes == len(program.table.entries) * stride
    assert program.pipes()["lsu"] == (4 if bits == 4 else 8)


def test_wide_strides_need_no_shifts():
    element = rounded_codebook(4, FLOAT16)
    target = Target(ValueSet.of(element), FLOAT16)
    narrow, wide = table_programs(target, frozenset({WIDE_STRIDE}))
    assert (narrow.pipes()["alu"], wide.pipes()["alu"]) == (7, 4)
    assert (narrow.table.nbytes, wide.table.nbytes) == (32 * 1024, 64 * 1024)
    assert {op.kind for op in wide.ops} == {"lop3", "prmt", "lds"}


def test_equal_low_bytes_need_no_look_up():
    element = TType(
        "short", 3, values=[0, 0.5, 1, 1.5, 2, -1, -2, 4]
    )  # one mantissa bit, so the low bytes are 0
    program = byte_tables(Target(ValueSet.of(element), FLOAT16), Fraction(1))
    full = byte_tables(Target(ValueSet.of(rounded_codebook(3, FLOAT16)), FLOAT16), Fraction(1))
    assert prove(program, element)
    assert full.pipes()["alu"] - program.pipes()["alu"] == 2


def test_tables_carry_nan_and_infinity():
    element = TType("special", 4, values=[np.nan, np.inf, -np.inf, None, *range(12)])
    for fmt in (FLOAT16, BFLOAT16):
        target = Target(ValueSet.of(element), fmt)
        entries, carried = patterns(target, Fraction(1))
        assert carried == {0, 1, 2}
        assert np.isnan(fmt.table[entries[0]])
        program = shared_table(target, Fraction(1))
        assert program.undefined == (3,)
        assert prove(program, element)


def test_a_power_of_two_makes_large_values_fit():
    element = TType("large", 4, values=[2.0**30 * v for v in range(-3, 13)])
    (program,) = table_programs(Target(ValueSet.of(element), FLOAT16), frozenset())
    assert program.affine[0][0].alpha == 2**18
    assert prove(program, element)


def test_values_that_do_not_fit_have_no_table():
    element = TType("t", 4, values=[0.1, *range(15)])
    assert list(table_programs(Target(ValueSet.of(element), FLOAT16), frozenset())) == []


def sources(fields, ring):
    out = []
    for field in fields:
        assert sum(piece.mask for piece in field.pieces) == field.form.mask
        for piece in field.pieces:
            out += [
                (piece.word, (p - piece.rotation) % ring)
                for p in range(ring)
                if piece.mask >> p & 1
            ]
    return sorted(out)


@pytest.mark.parametrize("base", [7, 8])
@pytest.mark.parametrize("width, words", [(8, 4), (5, 5), (6, 3), (7, 7), (6, 9)])
def test_windows_cover_the_words(width, words, base):
    fields = window_fields(width, base, words)
    assert sources(fields, 32) == [(w, p) for w in range(words) for p in range(32)]
    assert len(fields) == 32 * words // width


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_nibbles_cover_the_words(bits):
    assert sources(nibble_fields(bits), 32) == [
        (w, p) for w in range(WORDS[bits]) for p in range(32)
    ]
