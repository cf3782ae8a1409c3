"""Decodes that no single mask gives: the hardware's own conversion, and exponents that begin with a subnormal.

Each rule looks at the values, never at a name, and yields nothing where they are not what it can make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from ladder.decode.assemble import Target, lane_slots, program_of
from ladder.decode.build import AND_OR, Builder
from ladder.decode.cover import place
from ladder.decode.form import Form
from ladder.decode.fragment import Decoded
from ladder.decode.geometry import WORDS
from ladder.decode.lanes import BFLOAT16, FLOAT16, LaneFormat, small_float_table
from ladder.decode.program import Affine, Const, DecodeProgram, Slot
from ladder.decode.values import ValueSet

#: the feature of devices with cvt.rn.f16x2.e4m3x2 (sm_89 and up)
CVT_E4M3 = "cvt.e4m3x2"


def special_programs(
    target: Target[LaneFormat], features: frozenset[str]
) -> Iterator[DecodeProgram]:
    """Every rule's program for the target."""
    if CVT_E4M3 in features:
        yield from converted(target)
    yield from exponents(target)


def converted(target: Target[LaneFormat]) -> Iterator[DecodeProgram]:
    """fp8_e4m3fn to float16 by cvt: exact, NaN included, one operation for two codes."""
    if target.fmt is not FLOAT16 or target.bits != 8 or not _is_e4m3(target.values):
        return
    builder = Builder(WORDS[8])
    registers = []
    for word in range(WORDS[8]):
        for pair in (0, 1):
            register = builder.emit("cvt", word, imm=pair, fmt="e4m3")
            first = 32 * word + 16 * pair
            slots = Slot(tuple(range(first, first + 8))), Slot(tuple(range(first + 8, first + 16)))
            registers.append(Decoded(register, slots, Affine()))
    carried = frozenset(code for code, _ in target.values.special)
    yield program_of(target, "cvt", builder, registers, (tuple(range(256)),), carried)


def _is_e4m3(values: ValueSet) -> bool:
    table = small_float_table(4, 3, finite=True)
    return all(table[c] == v for c, v in values.by_code().items()) and all(
        math.isnan(v) and math.isnan(table[c]) for c, v in values.special
    )


def exponents(target: Target[LaneFormat]) -> Iterator[DecodeProgram]:
    """All powers of two from 2^-127, the largest subnormal power of bfloat16, to 2^127 (e8m0), exactly.

    With E the code in the exponent field, ``(E | 0x0040) - E/2``: 1.5*2^e - 0.5*2^e for normal E, the subnormal 2^-127
    for E = 0, and NaN - inf for E = 255.
    """
    powers = tuple(Fraction(2) ** k for k in range(-127, 128))
    if target.fmt is not BFLOAT16 or target.values.values != powers:
        return
    stored = [255] * 256
    for rank, code in enumerate(target.values.codes):
        stored[code] = rank
    carried = frozenset(code for code, value in target.values.special if math.isnan(value))
    placed = place([Form(tuple(range(7, 15)), 0, tuple(stored), Affine())], 8)
    if placed is None:
        return
    builder = Builder(WORDS[8])
    builder.expect(placed.fields)
    registers = []
    for field in placed.fields:
        subnormal = Const(builder.spread(0x0040))
        exponent, places = builder.gather(field, Const(0))
        source, _ = builder.source(field.pieces[0])
        mask = Const(builder.spread(field.form.mask))
        above = builder.emit("lop3", source, mask, subnormal, imm=AND_OR)
        minus_half = Const(builder.spread(BFLOAT16.pattern(Fraction(-1, 2))))
        register = builder.emit("fma", exponent, minus_half, above, fmt=BFLOAT16.short)
        registers.append(Decoded(register, lane_slots(field.form, places, 0), Affine()))
    yield program_of(target, "exponent+fma", builder, registers, (tuple(stored),), carried)
