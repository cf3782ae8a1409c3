from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.decode.derive import derive
from ladder.decode.prove import prove
from ladder.decode.same_words import Reader, is_bare, placed, reads_alike, registers_of, rewritten
from ladder.decode.values import ValueSet


def test_registers_come_in_the_order_in_which_they_are_made(catalog):
    program = derive(catalog["int3"], "float16")
    registers = registers_of(program)
    assert [r.number for r in registers] == sorted(r.number for r in registers)
    assert {(r.step, r.place) for r in registers} == {(s, p) for s in range(4) for p in range(4)}
    for register in registers:
        assert min(register.slot.bits) // 32 == register.word
        assert 0 <= min(register.pattern.bits) < 32


def test_halves_that_are_not_treated_alike_have_none(catalog):
    program = derive(catalog["int4"], "float16")
    low, high = program.slots[0][0]
    turned = ((high, high), *program.slots[0][1:])
    assert registers_of(replace(program, slots=(turned, *program.slots[1:]))) is None
    assert low != high


@pytest.mark.parametrize("name", ["int3", "int6"])
def test_a_program_is_written_again_from_what_it_reads(catalog, name):
    """Each register from its own bits with the map that the given program defers there, by any of the ways to read it."""
    element = catalog[name]
    program = derive(element, "float16")
    reader = Reader(ValueSet.of(element), program)
    chosen, maps = [], {}
    registers = registers_of(program)
    for register in registers:
        read = next(r for r in reader.reads(register) if is_bare(r.form, reader.target))
        chosen.append(placed(read.moves, (read.form, read.pieces), register.word)[1])
        maps[register.step, register.place] = read.form.deferred
    steps = range(program.steps)
    affine = tuple(tuple(maps[s, p] for p in range(4)) for s in steps)
    other = rewritten(program, registers, chosen, tuple(steps), affine)
    assert reads_alike(other, program)
    assert prove(other, element)


def test_other_slots_or_labels_do_not_read_alike(catalog):
    program = derive(catalog["int3"], "float16")
    assert reads_alike(replace(program, ops=()), program)
    assert not reads_alike(replace(program, slots=program.slots[::-1]), program)
    assert not reads_alike(replace(program, relabels=program.relabels[::-1]), program)
