"""Which packed bits each bit of each register can depend on: a bound that holds for every input.

A bit is known (0 or 1), or unknown with a set of input bits, kept as an integer with one bit per packed bit. The bits of
``4*lane`` are unknown and depend on no code. A fragment half that depends on nothing but its own code's bits decodes
right in every surrounding if it decodes right in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ladder.decode.program import LANE_ADDRESS, Const, DecodeProgram, Op, Operand, Table
from ladder.errors import DecodeError


@dataclass(frozen=True, slots=True)
class Bits:
    """An abstract register: for each of its 32 bits a known value or None, and the input bits that it depends on."""

    known: tuple[int | None, ...]
    sources: tuple[int, ...]

    def union(self, first: int, count: int) -> int:
        """Input bits that ``count`` bits from ``first`` on depend on."""
        out = 0
        for source in self.sources[first : first + count]:
            out |= source
        return out


def constant(bits: int) -> Bits:
    """A register that holds the same bits always."""
    return Bits(tuple(bits >> i & 1 for i in range(32)), (0,) * 32)


def packed_word(word: int) -> Bits:
    """A packed word: every bit is an input of its own."""
    return Bits((None,) * 32, tuple(1 << (32 * word + i) for i in range(32)))


#: 4*lane: bits 2..6 vary with the lane
LANE = Bits(tuple(None if 2 <= i <= 6 else 0 for i in range(32)), (0,) * 32)


def analyse(program: DecodeProgram) -> dict[int, Bits]:
    """The abstract value of every register.

    Raises:
        DecodeError: a register is read before it is written, or written twice.
    """
    registers = {w: packed_word(w) for w in range(program.words)}
    registers[LANE_ADDRESS] = LANE

    def read(x: Operand) -> Bits:
        if isinstance(x, Const):
            return constant(x.bits)
        if x not in registers:
            raise DecodeError(f"register {x} is read before it is written", at=program.element)
        return registers[x]

    for op in program.ops:
        if op.dst in registers:
            raise DecodeError(f"register {op.dst} is written twice", at=op)
        args = [read(x) for x in op.args]
        if op.kind == "lds":
            registers[op.dst] = _lds(args[0], program.table, op)
        else:
            registers[op.dst] = RULES[op.kind](op, args)
    return registers


def _lop3(op: Op, args: list[Bits]) -> Bits:
    known, sources = [], []
    for i in range(32):
        k, s = _lop3_bit(op, [a.known[i] for a in args], [a.sources[i] for a in args])
        known.append(k)
        sources.append(s)
    return Bits(tuple(known), tuple(sources))


def _lop3_bit(op: Op, known: list[int | None], sources: list[int]) -> tuple[int | None, int]:
    """One bit: only rows of the truth table that the known inputs (and equal operands) allow can occur."""
    same = [(p, q) for p in range(3) for q in range(p) if op.args[p] == op.args[q]]
    rows = [
        row
        for row in range(8)
        if all(known[j] in (None, row >> (2 - j) & 1) for j in range(3))
        and all(row >> (2 - p) & 1 == row >> (2 - q) & 1 for p, q in same)
    ]
    outcomes = {op.imm >> row & 1 for row in rows}
    if len(outcomes) == 1:
        return outcomes.pop(), 0
    depends = 0
    for j in range(3):
        mirrored = any(j in pair for pair in same)
        flips = any(
            row ^ (4 >> j) in rows and op.imm >> row & 1 != op.imm >> (row ^ (4 >> j)) & 1
            for row in rows
        )
        if flips or mirrored:
            depends |= sources[j]
    return None, depends


def _shf(op: Op, args: list[Bits]) -> Bits:
    order = [(i - op.imm) % 32 for i in range(32)]
    return Bits(tuple(args[0].known[i] for i in order), tuple(args[0].sources[i] for i in order))


def _shift(op: Op, args: list[Bits]) -> Bits:
    by = op.imm if op.kind == "shl" else -op.imm
    order = [i - by for i in range(32)]
    inside = [0 <= i < 32 for i in order]
    return Bits(
        tuple(args[0].known[i] if ok else 0 for i, ok in zip(order, inside, strict=True)),
        tuple(args[0].sources[i] if ok else 0 for i, ok in zip(order, inside, strict=True)),
    )


def _prmt(_: Op, args: list[Bits]) -> Bits:
    selector = args[2]
    known: list[int | None] = []
    sources: list[int] = []
    for i in range(4):
        nibble = selector.known[4 * i : 4 * i + 4]
        reachable = [
            n for n in range(16) if all(k in (None, n >> j & 1) for j, k in enumerate(nibble))
        ]
        for bit in range(8):
            places = [(args[(n & 7) // 4], 8 * (n & 3) + (7 if n & 8 else bit)) for n in reachable]
            values = {register.known[p] for register, p in places}
            if len(values) == 1 and None not in values:
                known.append(values.pop())
                sources.append(0)
                continue
            depends = selector.union(4 * i, 4)
            for register, p in places:
                depends |= register.sources[p]
            known.append(None)
            sources.append(depends)
    return Bits(tuple(known), tuple(sources))


def _halves(_: Op, args: list[Bits]) -> Bits:
    """Each 16-bit half depends on the same half of every operand."""
    parts = []
    for half in (0, 16):
        depends = 0
        for register in args:
            depends |= register.union(half, 16)
        parts += [depends] * 16
    return Bits((None,) * 32, tuple(parts))


def _cvt(op: Op, args: list[Bits]) -> Bits:
    parts = [args[0].union(16 * op.imm + 8 * half, 8) for half in (0, 1)]
    return Bits((None,) * 32, (parts[0],) * 16 + (parts[1],) * 16)


def _lds(address: Bits, table: Table | None, op: Op) -> Bits:
    """Each half depends on the index bits that change it somewhere in the table."""
    if table is None:
        raise DecodeError("a program without a table loads from one", at=op)
    entries = np.asarray(table.entries, np.uint32)
    shift = table.stride.bit_length() - 1
    index = np.arange(len(entries))
    parts: list[int] = []
    for half in (0, 16):
        depends = 0
        for bit in range((len(entries) - 1).bit_length()):
            changed = (entries ^ entries[index ^ (1 << bit)]) >> np.uint32(half) & np.uint32(0xFFFF)
            if changed.any():
                depends |= address.sources[shift + bit]
        parts += [depends] * 16
    return Bits((None,) * 32, tuple(parts))


RULES: Mapping[str, Callable[[Op, list[Bits]], Bits]] = {
    "lop3": _lop3,
    "shf": _shf,
    "shl": _shift,
    "shr": _shift,
    "prmt": _prmt,
    "fma": _halves,
    "cvt": _cvt,
}
