"""A proof that cannot fail proves nothing: every kind of damage has to be seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ladder.decode.derive import derive
from ladder.decode.program import Affine, Const, Op, Slot
from ladder.decode.prove import expected, prove
from ladder.errors import DecodeError
from ladder.ttype import TType

CASES = ["int4-float16", "int4-bfloat16", "uint3-float16", "fp4_e2m1-bfloat16", "nf4-float16", "nf3-bfloat16",
         "fp8_e4m3fn-float16", "e8m0-bfloat16", "int7-float16"]  # fmt: skip


@pytest.fixture(params=CASES)
def case(request, catalog):
    name, compute = request.param.split("-")
    return derive(catalog[name], compute), catalog[name]


def refused(program, element, what=None):
    with pytest.raises(DecodeError, match=what):
        prove(program, element)


def with_op(program, at, **changes):
    ops = list(program.ops)
    ops[at] = replace(ops[at], **changes)
    return replace(program, ops=tuple(ops))


def test_the_proof_counts_places_times_codes(catalog):
    assert prove(derive(catalog["int4"], "float16"), catalog["int4"]) == 4 * 8 * 16
    assert prove(derive(catalog["fp8_e4m3fn"], "float16"), catalog["fp8_e4m3fn"]) == 2 * 8 * 254


def test_every_changed_constant_is_seen(case):
    """One bit of one constant: it either is seen, or (a don't-care of prmt) changes no result at all."""
    program, element = case
    rng = np.random.default_rng(0)
    places = [
        (i, j)
        for i, op in enumerate(program.ops)
        for j, x in enumerate(op.args)
        if isinstance(x, Const)
    ]
    for i, j in [places[k] for k in rng.choice(len(places), min(24, len(places)), replace=False)]:
        op = program.ops[i]
        bit = int(rng.integers(0, 16 if op.kind == "prmt" and j == 2 else 32))
        args = list(op.args)
        args[j] = Const(args[j].bits ^ 1 << bit)
        changed = with_op(program, i, args=tuple(args))
        try:
            prove(changed, element)
        except DecodeError:
            continue
        assert same_results(program, changed), (i, op, j, bit)


def same_results(program, other):
    from ladder.decode.machine import fragments

    words = np.random.default_rng(1).integers(0, 2**32, (64, program.words, 32), dtype=np.uint32)
    return np.array_equal(fragments(program, words), fragments(other, words))


def test_every_changed_truth_table_and_distance_is_seen(case):
    program, element = case
    for i, op in enumerate(program.ops):
        if op.kind in ("shf", "shl", "shr"):
            refused(with_op(program, i, imm=(op.imm + 1) % 32), element)
        elif op.kind == "lop3":
            refused(with_op(program, i, imm=op.imm ^ 0x40), element)  # kept bits are lost
            refused(with_op(program, i, imm=op.imm ^ 0x10), element)  # masked bits come through


def test_every_swapped_operation_is_seen(case):
    program, element = case
    rng = np.random.default_rng(2)
    for _ in range(8):
        i, j = rng.choice(len(program.ops), 2, replace=False)
        one, other = program.ops[i], program.ops[j]
        if (one.kind, one.args, one.imm) == (other.kind, other.args, other.imm):
            continue
        ops = list(program.ops)
        ops[i], ops[j] = replace(other, dst=one.dst), replace(one, dst=other.dst)
        changed = replace(program, ops=tuple(ops))
        try:
            prove(changed, element)
        except DecodeError:
            continue
        assert same_results(program, changed)


def swapped_slots(program):
    slots = [list(map(list, step)) for step in program.slots]
    slots[0][0][0], slots[0][1][1] = slots[0][1][1], slots[0][0][0]
    return replace(program, slots=tuple(tuple(map(tuple, step)) for step in slots))


def test_swapped_slots_are_seen(case):
    program, element = case
    refused(swapped_slots(program), element, "another code")


def with_slot(program, slot):
    first, *rest = program.slots[0]
    step = ((slot, first[1]), *rest)
    return replace(program, slots=(step, *program.slots[1:]))


def test_a_bit_used_twice_is_seen(case):
    program, element = case
    first, second = program.slots[0][0]
    refused(
        with_slot(program, Slot((*first.bits[:-1], second.bits[0]), first.relabel)),
        element,
        "exactly once",
    )


def test_bits_in_another_order_are_seen(case):
    program, element = case
    first = program.slots[0][0][0]
    refused(with_slot(program, Slot(first.bits[::-1], first.relabel)), element)


def test_a_leaked_bit_is_seen(case):
    """A further operation lets one foreign bit into an output: the values may be right by chance, the proof is not."""
    program, element = case
    target = program.outputs[0][0]
    foreign = program.slots[-1][3][1].bits[0]
    word, bit = divmod(foreign, 32)
    leak = Op("lop3", 1000, (word, Const(1 << bit), target), 0xEA)  # output | (word & bit)
    outputs = ((1000, *program.outputs[0][1:]), *program.outputs[1:])
    refused(
        replace(program, ops=(*program.ops, leak), outputs=outputs),
        element,
        "belongs to another code",
    )


def test_another_relabelling_is_seen(case):
    program, element = case
    table = list(program.relabels[0])
    one, other = (element.number_codes[i] for i in (0, -1))
    assert element.values[one] != element.values[other]
    table[one], table[other] = table[other], table[one]
    refused(replace(program, relabels=(tuple(table), *program.relabels[1:])), element)


@pytest.mark.parametrize(
    "other",
    [Affine(Fraction(2)), Affine(Fraction(1), Fraction(1)), Affine(Fraction(1, 2), Fraction(-8))],
)
def test_another_deferred_map_is_seen(case, other):
    program, element = case
    low, high = program.affine[0]
    assert other not in (low, high)
    refused(replace(program, affine=((low, other), *program.affine[1:])), element, "instead of")


def test_an_undefined_code_that_has_a_value_is_seen(case):
    program, element = case
    code = element.number_codes[0]
    refused(replace(program, undefined=(*program.undefined, code)), element, "listed as undefined")


def test_a_nan_that_is_lost_is_seen(catalog):
    element = catalog["fp8_e4m3fn"]
    program = derive(element, "float16")
    assert program.undefined == (127, 255)
    refused(replace(program, undefined=()), element, "instead of nan")


def test_rounding_has_to_be_declared(catalog):
    program = derive(catalog["nf4"], "float16")
    refused(replace(program, lossless=True), catalog["nf4"], "instead of")
    assert expected(program, catalog["nf4"])[1] == Fraction(
        float(np.float16(catalog["nf4"].values[1]))
    )


def test_another_type_is_seen(catalog):
    refused(derive(catalog["int4"], "float16"), catalog["uint4"], "instead of")
    refused(derive(catalog["int4"], "float16"), catalog["int5"], "shape")
    refused(
        derive(catalog["uint4"], "float16"), TType("t", 4, values=[*range(15), 16]), "instead of"
    )


def test_a_changed_table_entry_is_seen(catalog):
    program = derive(catalog["nf4"], "float16")
    for at in (0, 17, 255):
        entries = list(program.table.entries)
        entries[at] ^= 1
        refused(
            replace(program, table=replace(program.table, entries=tuple(entries))), catalog["nf4"]
        )
    refused(
        replace(program, table=replace(program.table, entries=entries[:100])),
        catalog["nf4"],
        "power of two",
    )


def test_a_wrong_class_or_shape_is_seen(catalog):
    program = derive(catalog["uint2"], "float16")
    assert program.classes == 2
    refused(
        replace(program, step_class=tuple(1 - c for c in program.step_class)),
        catalog["uint2"],
        "instead of",
    )
    refused(replace(program, step_class=(2, *program.step_class[1:])), catalog["uint2"], "shape")
    refused(replace(program, relabels=((0, 0, 1, 2),)), catalog["uint2"], "shape")
    refused(
        replace(program, outputs=((999, *program.outputs[0][1:]), *program.outputs[1:])),
        catalog["uint2"],
        "never",
    )
