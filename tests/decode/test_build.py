from __future__ import annotations

from fractions import Fraction

from ladder.decode.assemble import Target
from ladder.decode.build import Builder
from ladder.decode.lanes import FLOAT16
from ladder.decode.program import Const
from ladder.decode.prove import prove
from ladder.decode.tables import byte_tables
from ladder.decode.values import ValueSet
from ladder.ttype import TType


def test_what_constants_make_is_made_once():
    builder = Builder(1)
    first = builder.emit("prmt", Const(1), Const(2), Const(0x5140))
    again = builder.emit("prmt", Const(1), Const(2), Const(0x5140))
    other = builder.emit("prmt", Const(1), Const(2), Const(0x7362))
    assert first == again != other
    assert [op.dst for op in builder.ops] == [first, other]


def test_what_codes_make_is_made_anew():
    builder = Builder(1)
    assert builder.emit("shr", 0, imm=4) != builder.emit("shr", 0, imm=4)


def test_a_type_with_one_value_decodes_without_reading_its_words():
    element = TType("zero", 1, values=[0, 0])
    program = byte_tables(Target(ValueSet.of(element), FLOAT16), Fraction(1))
    assert prove(program, element) > 0
    assert len(program.ops) == 2
    assert all(isinstance(arg, Const) for op in program.ops for arg in op.args)
