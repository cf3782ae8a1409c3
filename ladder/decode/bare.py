"""The same words read without the fma that finishes a register, where what it does is done elsewhere anyway.

A program in bfloat16 ends most registers with an fma: it brings lanes that a mask left at different factors and zeros to one.
Whoever applies factor and zero of a row afterwards can apply those of the bare lanes instead, and the fma is saved:

* where zero points come off, or scales are applied, in registers: all of them (:func:`bare`), for that is an fma of the same
  registers;
* where zero points come off by sums of the activations, those whose bare lanes the accumulators can make good
  (:func:`spared`): the sums are there.

That is for rows g, or rows g + 8, of a class of steps together: they have one factor and one zero, so an fma goes only where all
of their registers have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

from ladder.decode.assemble import needed
from ladder.decode.complete import BFLOAT16_FLOOR, is_float32
from ladder.decode.lanes import BFLOAT16, LANE_FORMATS
from ladder.decode.program import Affine, Const, DecodeProgram, Op

#: the low half of a register
LOW = 0xFFFF

#: factor and addend of an fma as lane values
Fma = tuple[Fraction, Fraction]


def bare(program: DecodeProgram) -> DecodeProgram | None:
    """The program without any closing fma; None where it has none, or where not all of them can go."""
    return _without(program, lambda _: True, whole=True)


def spared(program: DecodeProgram) -> DecodeProgram:
    """The program without the closing fmas that accumulators with sums of the activations make good; itself where it has none.

    A bfloat16 has 8 digits, so a lane is at most 2^8 of the steps by which codes differ, and float32 sums of lanes know 2^-16 of a
    step: zeros of any size may wait for them. In float16, of 11 digits, large ones would cost too many.
    """
    if program.compute != BFLOAT16.name:
        return program
    return _without(program, _is_made_good, whole=False) or program


def _is_made_good(affine: Affine) -> bool:
    """Whether accumulators can apply factor and zero of bare lanes, none of which is lost in a float32 product."""
    is_lost = abs(affine.alpha) * Fraction(BFLOAT16_FLOOR) > 1
    return is_float32(affine.alpha) and is_float32(affine.beta) and not is_lost


def _without(
    program: DecodeProgram, goes: Callable[[Affine], bool], *, whole: bool
) -> DecodeProgram | None:
    """The program without the closing fmas of those row halves whose bare map ``goes``; None where there are none.

    ``whole``: None, too, where a closing fma stays.
    """
    if program.compute not in LANE_FORMATS:
        return None
    made = {op.dst: op for op in program.ops}
    outputs = [list(step) for step in program.outputs]
    affine = [list(pair) for pair in program.affine]
    for cls, half in product(range(program.classes), range(2)):
        steps = [outputs[step] for step, c in enumerate(program.step_class) if c == cls]
        registers = [step[place] for step in steps for place in (half, half + 2)]
        closing = {_closing(program, made.get(register)) for register in registers}
        if closing == {None}:
            continue
        fma = next(iter(closing)) if len(closing) == 1 else None
        left = fma and _composed(program.affine[cls][half], fma)
        if left is None or not goes(left):
            if whole:
                return None
            continue
        affine[cls][half] = left
        for step in steps:
            for place in (half, half + 2):
                step[place] = _operand(made[step[place]])
    if all(tuple(a) == b for a, b in zip(outputs, program.outputs, strict=True)):
        return None
    kept = tuple((a, b, c, d) for a, b, c, d in outputs)
    ops = needed(program.ops, kept)
    return replace(
        program,
        form=program.form
        if any(op.kind == "fma" for op in ops)
        else program.form.removesuffix("+fma"),
        ops=ops,
        outputs=kept,
        affine=tuple((g, h) for g, h in affine),
    )


def _closing(program: DecodeProgram, op: Op | None) -> Fma | None:
    """Factor and addend of the fma that an operation is, if it is one of a moved word with two constants."""
    if op is None or op.kind != "fma" or not isinstance(op.args[0], int):
        return None
    table = LANE_FORMATS[program.compute].table
    constants = [arg.bits for arg in op.args[1:] if isinstance(arg, Const)]
    if op.args[0] < program.words or len(constants) < 2:
        return None
    if any(bits >> 16 != bits & LOW for bits in constants):
        return None
    factor, addend = (Fraction(float(table[bits & LOW])) for bits in constants)
    return factor, addend


def _composed(affine: Affine, fma: Fma) -> Affine:
    """What is deferred where the fma is, too."""
    factor, addend = fma
    return Affine(affine.alpha * factor, affine.alpha * addend + affine.beta)


def _operand(op: Op) -> int:
    """The register that an fma finishes."""
    register = op.args[0]
    assert isinstance(register, int)
    return register
