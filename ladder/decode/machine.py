"""What the operations of a decode program do, in NumPy, bit for bit and for many warps at once.

Registers are ``uint32`` arrays whose last axis is the 32 lanes of a warp (or broadcasts against it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ladder.decode.geometry import LANES
from ladder.decode.lanes import (
    FLOAT16,
    SHORT_FORMATS,
    FloatArray,
    LaneFormat,
    Words,
    small_float_table,
)
from ladder.decode.program import LANE_ADDRESS, Const, DecodeProgram, Op, Operand, Table
from ladder.errors import DecodeError

U32 = np.uint32

#: source formats of ``cvt``: cvt.rn.f16x2.e4m3x2 and .e5m2x2 (PTX ISA, cvt), both exact
CVT_TABLES: Mapping[str, Words] = {
    "e4m3": FLOAT16.patterns(small_float_table(4, 3, finite=True)),
    "e5m2": FLOAT16.patterns(small_float_table(5, 2, finite=False)),
}


def lop3(a: Words, b: Words, c: Words, table: int) -> Words:
    """PTX ISA lop3: per bit, ``table[a<<2 | b<<1 | c]``."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), U32)
    for row in range(8):
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out


def rotate_left(a: Words, n: int) -> Words:
    """PTX ISA shf.l.wrap with both operands equal."""
    n %= 32
    return (a << U32(n)) | (a >> U32(32 - n)) if n else a


def prmt(a: Words, b: Words, selector: Words) -> Words:
    """PTX ISA prmt, default mode: four bytes out of eight; selector bit 3 replicates the byte's sign."""
    a, b, selector = np.broadcast_arrays(a, b, selector)
    source = np.stack([(x >> U32(8 * i)) & U32(0xFF) for x in (a, b) for i in range(4)])
    out = np.zeros(a.shape, U32)
    for i in range(4):
        nibble = (selector >> U32(4 * i)) & U32(15)
        byte = np.take_along_axis(source, (nibble & U32(7))[None].astype(np.intp), axis=0)[0]
        sign = np.where(byte & U32(0x80), U32(0xFF), U32(0))
        out |= np.where(nibble & U32(8), sign, byte) << U32(8 * i)
    return out


def fma_lane(a: FloatArray, b: FloatArray, c: FloatArray, fmt: LaneFormat) -> FloatArray:
    """``a*b + c`` rounded once to ``fmt``. Products are exact in float64; the sum is rounded to odd first, so that
    the second rounding (to at most 11 bits, out of 53) equals a single one (Boldo and Melquiond, 2008).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        product = a * b
        total = product + c
        bb = total - product
        error = (product - (total - bb)) + (c - bb)
    inexact = (error != 0) & np.isfinite(total)
    even = total.view(np.int64) & 1 == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return fmt.round(np.where(inexact & even, np.nextafter(total, toward), total))


def fma(a: Words, b: Words, c: Words, fmt: LaneFormat) -> Words:
    """PTX ISA fma.rn.f16x2 / fma.rn.bf16x2, subnormals kept."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), U32)
    for shift in (U32(0), U32(16)):
        x, y, z = (fmt.values(r >> shift) for r in (a, b, c))
        out |= fmt.patterns(fma_lane(x, y, z, fmt)) << shift
    return out


def cvt(a: Words, half: int, source: str) -> Words:
    """PTX ISA cvt.rn.f16x2.e4m3x2 / .e5m2x2 of byte pair ``half``; the low byte goes to the low half."""
    pair = a >> U32(16 * half)
    table = CVT_TABLES[source]
    low, high = (np.take(table, pair >> U32(shift) & U32(0xFF)) for shift in (0, 8))
    out: Words = low | high << U32(16)
    return out


def lds(address: Words, table: Table, lane_address: Words) -> Words:
    """A load from the lane's own column of a replicated table; any other address is an error."""
    entry, column = np.divmod(address, U32(table.stride))
    if np.any(column != lane_address) or np.any(entry >= len(table.entries)):
        raise DecodeError(
            "a table address leaves the table or the lane's own column",
            at=f"stride {table.stride}, {len(table.entries)} entries",
            hint="address = index*stride + 4*lane",
        )
    out: Words = np.take(np.asarray(table.entries, U32), entry)
    return out


def lane_addresses() -> Words:
    """``4*lane`` for the 32 lanes of a warp."""
    return np.arange(0, 4 * LANES, 4, dtype=U32)


def execute(program: DecodeProgram, words: Words) -> dict[int, Words]:
    """Run the operations on ``words`` (uint32 ``[..., words, 32]``): every register, each ``[..., 32]``."""
    registers: dict[int, Words] = {i: words[..., i, :] for i in range(program.words)}
    shape = registers[0].shape
    registers[LANE_ADDRESS] = np.broadcast_to(lane_addresses(), shape)

    def read(x: Operand) -> Words:
        return np.asarray(x.bits, U32) if isinstance(x, Const) else registers[x]

    for op in program.ops:
        args = [read(x) for x in op.args]
        if op.kind == "lds":
            if program.table is None:
                raise DecodeError("a program without a table loads from one", at=op)
            result = lds(args[0], program.table, registers[LANE_ADDRESS])
        else:
            result = MEANING[op.kind](op, args)
        registers[op.dst] = np.broadcast_to(result, shape)
    return registers


#: the meaning of each operation that touches registers only
MEANING: Mapping[str, Callable[[Op, list[Words]], Words]] = {
    "lop3": lambda op, x: lop3(x[0], x[1], x[2], op.imm),
    "shf": lambda op, x: rotate_left(x[0], op.imm),
    "shl": lambda op, x: x[0] << U32(op.imm),
    "shr": lambda op, x: x[0] >> U32(op.imm),
    "prmt": lambda _, x: prmt(x[0], x[1], x[2]),
    "fma": lambda op, x: fma(x[0], x[1], x[2], SHORT_FORMATS[op.fmt]),
    "cvt": lambda op, x: cvt(x[0], op.imm, op.fmt),
}


def fragments(program: DecodeProgram, words: Words) -> Words:
    """The fragment registers: ``uint32[..., words, 32]`` to ``uint32[..., steps, 4, 32]``."""
    registers = execute(program, words)
    return np.stack(
        [np.stack([registers[r] for r in step], axis=-2) for step in program.outputs], axis=-3
    )
