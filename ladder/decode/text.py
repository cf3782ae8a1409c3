"""Decode programs for people: a listing of one, and the table of many.

>>> print(listing(program))
decode int4 -> float16 by mask: 4 words, 4 steps, 5 ALU per 8 codes
r4 = r0 >> 8
r5 = r0 & 0x000f000f
...
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ladder.decode.complete import is_power_of_two
from ladder.decode.geometry import HALVES
from ladder.decode.program import LANE_ADDRESS, Affine, Const, DecodeProgram, Op, Operand

#: truth tables of lop3 that people know, as expressions of the operands
_LOGIC = {0xC0: "{0} & {1}", 0xEA: "({0} & {1}) | {2}"}


def listing(program: DecodeProgram) -> str:
    """Every operation, where the fragment is, what is deferred, and where the codes lie."""
    head = (
        f"decode {program.element} -> {program.compute} by {program.form}: {program.words} words, "
        f"{program.steps} steps, {pipes(program)} per 8 codes"
    )
    return "\n".join((head, *_operations(program), *_fragments(program), *_notes(program)))


def _operations(program: DecodeProgram) -> list[str]:
    return [f"  r{op.dst} = {_operation(op)}" for op in program.ops]


def _operation(op: Op) -> str:
    args = [_operand(x) for x in op.args]
    match op.kind:
        case "lop3":
            return _LOGIC.get(op.imm, f"lop3[0x{op.imm:02x}]({{0}}, {{1}}, {{2}})").format(*args)
        case "shl":
            return f"{args[0]} << {op.imm}"
        case "shr":
            return f"{args[0]} >> {op.imm}"
        case "shf":
            return f"rotate left({args[0]}, {op.imm})"
        case "lds":
            return f"table[{args[0]}]"
        case "cvt":
            return f"cvt.f16x2.{op.fmt}x2({args[0]}, pair {op.imm})"
        case _:
            suffix = f".{op.fmt}x2" if op.fmt else ""
            return f"{op.kind}{suffix}({', '.join(args)})"


def _operand(x: Operand) -> str:
    if isinstance(x, Const):
        return str(x)
    return "4*lane" if x == LANE_ADDRESS else f"r{x}"


def _fragments(program: DecodeProgram) -> list[str]:
    lines = []
    for step, (registers, slots) in enumerate(zip(program.outputs, program.slots, strict=True)):
        parts = [
            f"a{i} = r{register} (bits {' | '.join(_bits(slot.bits) for slot in lanes)})"
            for i, (register, lanes) in enumerate(zip(registers, slots, strict=True))
        ]
        lines.append(f"  step {step}, class {program.step_class[step]}: {', '.join(parts)}")
    return lines


def _bits(bits: tuple[int, ...]) -> str:
    """Packed bits, least significant stored bit first: ``0.4-7`` for bits 4 to 7 of word 0."""
    runs: list[list[int]] = []
    for bit in bits:
        if runs and bit == runs[-1][-1] + 1 and bit % 32:
            runs[-1].append(bit)
        else:
            runs.append([bit])
    return " ".join(
        f"{run[0] // 32}.{run[0] % 32}" + (f"-{run[-1] % 32}" if len(run) > 1 else "")
        for run in runs
    )


def _notes(program: DecodeProgram) -> list[str]:
    lines = []
    for number, row in enumerate(program.affine):
        lines.append(f"  class {number}: value = {_maps(row)}")
    if program.table:
        size = f"{len(program.table.entries)} entries, {program.table.nbytes // 1024} KiB"
        lines.append(f"  table: {size} of shared memory")
    if program.undefined:
        lines.append(f"  codes that must not occur: {', '.join(map(str, program.undefined))}")
    if not program.exhausted:
        lines.append("  the search ended at its budget: a cheaper program may exist")
    lines.append(f"  {'exact' if program.lossless else 'values are rounded to ' + program.compute}")
    return lines


def _maps(row: tuple[Affine, ...]) -> str:
    """What a class defers: one map for all, or those of either row or of each register."""
    if len(set(row)) == 1:
        return affine(row[0])
    names = ("rows g", "rows g+8") if len(row) == HALVES else ("a0", "a1", "a2", "a3")
    return ", ".join(f"{affine(a)} ({name})" for a, name in zip(row, names, strict=True))


def pipes(program: DecodeProgram) -> str:
    """Operations per 8 codes, ``5 ALU + 4 FMA``."""
    parts = [f"{count:g} {pipe.upper()}" for pipe, count in program.pipes().items() if count]
    return " + ".join(parts) or "nothing"


def affine(a: Affine) -> str:
    """``2^24*lane - 8``."""
    factor = "" if a.alpha == 1 else f"{number(a.alpha)}*"
    if not a.beta:
        return f"{factor}lane"
    return f"{factor}lane {'-' if a.beta < 0 else '+'} {abs(a.beta)}"


def number(x: Fraction) -> str:
    """A rational number; powers of two from 2^4 on and below 1 as such."""
    if x > 0 and is_power_of_two(x) and not 1 <= x < 16:
        return f"2^{x.numerator.bit_length() - x.denominator.bit_length()}"
    return str(x)


def deferred(program: DecodeProgram) -> str:
    """What is left to others, ``2^20, 2^24; zero 8``: the factors, and minus each beta."""
    maps = [a for pair in program.affine for a in pair]
    parts = []
    if any(a.alpha != 1 for a in maps):
        parts.append(", ".join(number(x) for x in sorted({a.alpha for a in maps})))
    if program.defers_zero:
        parts.append("zero " + ", ".join(str(-x) for x in sorted({a.beta for a in maps})))
    return "; ".join(parts) or "nothing"


def markdown(rows: Iterable[tuple[str, DecodeProgram]]) -> str:
    """A table of programs; each comes with the features that it needs."""
    head = (
        "type",
        "compute type",
        "needs",
        "form",
        "per 8 codes",
        "classes",
        "table",
        "deferred",
        "values",
    )
    lines = [head, ("---",) * len(head)]
    for needs, p in rows:
        table = f"{p.table.nbytes // 1024} KiB" if p.table else ""
        missing = f", without codes {_ranges(p.undefined)}" if p.undefined else ""
        values = ("exact" if p.lossless else "rounded") + missing
        row = (
            p.element,
            p.compute,
            needs,
            p.form,
            pipes(p),
            str(p.classes),
            table,
            deferred(p),
            values,
        )
        lines.append(row)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _ranges(codes: tuple[int, ...]) -> str:
    """``(124, 125, 252)`` as ``124-125 252``."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][-1] + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
