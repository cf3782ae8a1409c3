"""Programs without the fma that finishes a register: proven for every code, over the same words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from ladder.decode.bare import bare, spared
from ladder.decode.derive import derive
from ladder.decode.program import Affine, Const
from ladder.decode.prove import prove
from ladder.decode.single import reads_alike
from ladder.errors import LosslessError
from ladder.registry import types
from ladder.ttype import TType

ELEMENTS = [name for name, value in types.items() if isinstance(value, TType)]


def closing(program):
    """The fmas that finish an output."""
    outputs = {register for step in program.outputs for register in step}
    return [op for op in program.ops if op.kind == "fma" and op.dst in outputs]


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("compute", ["float16", "bfloat16"])
def test_bare_and_spared_programs_are_proven_for_every_code(name, compute):
    element = types[name]
    try:
        program = derive(element, compute)
    except LosslessError:
        return
    without, fewer = bare(program), spared(program)
    for found in (without, fewer):
        if found is None or found is program:
            continue
        assert prove(found, element)
        assert reads_alike(found, program)
        assert len(closing(found)) < len(closing(program))
        assert found.pipes()["alu"] == program.pipes()["alu"]
    if without is not None:
        assert not closing(without)
        assert without.form == program.form.removesuffix("+fma")


@pytest.mark.parametrize("name, zero", [("int4", 8), ("uint4", 0)])
def test_rows_of_four_bits_are_made_alike(name, zero):
    program = derive(types[name], "bfloat16")
    low, high = Affine(beta=Fraction(-128 - zero)), Affine(Fraction(2) ** 129, Fraction(-zero))
    assert bare(program).affine == ((low, high),)
    # lanes of the high nibbles would be lost in float32, those of the low ones need nothing but the sums
    assert spared(program).affine == ((low, Affine(Fraction(32))),)
    assert spared(program).pipes() == {"alu": 5, "fma": 2, "lsu": 0}


@pytest.mark.parametrize("name", ["fp4_e2m1", "fp6_e3m2", "fp8_e4m3fn", "signmag8"])
def test_small_floats_differ_by_a_factor_alone(name):
    (pair,) = bare(derive(types[name], "bfloat16")).affine
    assert all(affine.beta == 0 for affine in pair)


def test_programs_without_an_fma_or_with_a_table_have_no_other(catalog):
    for name, compute in (("int4", "float16"), ("nf4", "bfloat16"), ("int4", "int8")):
        program = derive(catalog[name], compute)
        assert bare(program) is None
        assert spared(program) is program


def test_large_zeros_of_float16_keep_their_fma(catalog):
    program = derive(catalog["int3"], "float16")
    assert closing(program)
    assert spared(program) is program


def test_a_row_half_of_two_kinds_keeps_its_fmas(catalog):
    program = derive(catalog["int4"], "bfloat16")
    (a0, a1, a2, a3), *others = program.outputs
    turned = replace(program, outputs=((a1, a0, a2, a3), *others))
    assert bare(turned) is None
    assert spared(turned) is turned


def test_an_fma_of_two_different_lanes_stays(catalog):
    program = derive(catalog["int8"], "bfloat16")
    op = closing(program)[0]
    lopsided = replace(op, args=(op.args[0], op.args[1], Const(0x0000C000)))
    ops = tuple(lopsided if other is op else other for other in program.ops)
    assert bare(replace(program, ops=ops)) is None
