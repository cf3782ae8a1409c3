"""Convert: packed words of an atom -> fragment registers, by the decode program of the packing.

Operations are emitted when a step first needs their result, so that registers of a long atom (16 steps of 1-bit codes)
do not all live at once; ptxas then overlaps the decode of one step with the products of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.decode.program import LANE_ADDRESS, Const, DecodeProgram, Op, Operand
from ladder.scheduler.geometry import vector_widths


class AtomDecoder:
    """Emits one program for one atom, lazily.

    Attributes:
        program: the decode program.
        words: expressions of the lane's packed words.
        lookup: ``lookup(byte address) -> uint32`` into the program's table.
        lane_address: expression of ``4 * lane``.
    """

    def __init__(
        self, program: DecodeProgram, words: list[Any], lookup: Any, lane_address: Any, tag: str
    ) -> None:
        self.program, self.lookup = program, lookup
        self.values: dict[int, Any] = dict(enumerate(words))
        self.values[LANE_ADDRESS] = lane_address
        self.producers = {op.dst: (place, op) for place, op in enumerate(program.ops)}
        # Registers, not bound names: a value may be used in a later stage's scope than the one it is made in.
        self.registers = e.registers(f"d{tag}", max(1, len(program.ops)), "uint32")

    def fragment(self, step: int) -> list[Any]:
        """The four registers a0..a3 of a step of the atom (PTX ISA, mma.m16n8k16 A fragment)."""
        return [self._value(register) for register in self.program.outputs[step]]

    def _value(self, operand: Operand) -> Any:
        if isinstance(operand, Const):
            return e.u32(operand.bits)
        if operand not in self.values:
            place, op = self.producers[operand]
            arguments = [self._value(argument) for argument in op.args]
            e.store(self.registers, place, _OPERATIONS[op.kind](op, arguments, self.lookup))
            self.values[operand] = self.registers[place]
        return self.values[operand]


Lookup = Callable[[Any], Any]


def _lop3(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    a, b, c = args
    match op.imm:
        case 0xC0:
            return a & b
        case 0xEA:
            return (a & b) | c
        case 0xFC:
            return a | b
        case 0x3C:
            return a ^ b
    return e.call(f"lop3_{op.imm:02x}", a, b, c)


def _rotate(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    return e.call("shf_l", args[0], e.u32(op.imm))


def _shift_left(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    return args[0] << e.u32(op.imm)


def _shift_right(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    return args[0] >> e.u32(op.imm)


def _prmt(_op: Op, args: list[Any], _lookup: Lookup) -> Any:
    return e.call("prmt", *args)


def _fma(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    return e.call(f"fma_{op.fmt}x2", *args)


def _cvt(op: Op, args: list[Any], _lookup: Lookup) -> Any:
    pair = e.cast("uint16", args[0] >> e.u32(16 * op.imm) if op.imm else args[0])
    return e.call(f"cvt_f16x2_{op.fmt}x2", pair)


def _lds(_op: Op, args: list[Any], lookup: Lookup) -> Any:
    return lookup(args[0])


#: operation of a decode program -> TensorIR. Truth tables that TensorIR's own operators express use these: ptxas makes one
#: LOP3 of them, and the compiler knows what their low bits are.
_OPERATIONS: dict[str, Callable[[Op, list[Any], Lookup], Any]] = {
    "lop3": _lop3,
    "shf": _rotate,
    "shl": _shift_left,
    "shr": _shift_right,
    "prmt": _prmt,
    "fma": _fma,
    "cvt": _cvt,
    "lds": _lds,
}


class DecodeEmitter:
    """Emits the decode stage of one kernel: the table, and a decoder per atom.

    Attributes:
        kernel: the kernel under construction.
        table_base: first byte of the lookup table in the arena.
    """

    def __init__(self, kernel: Kernel, table_base: int) -> None:
        self.kernel, self.table_base = kernel, table_base
        self.program = kernel.plan.program
        self.lane_address = e.bind(e.cast("uint32", kernel.lane) * e.u32(4), "lane_address")
        self.count = 0

    def fill_table(self) -> None:
        """Replicate the table for every lane; a CTA barrier must follow before the first decode."""
        table = self.program.table
        if table is None:
            return
        words = len(table.entries) * 32
        threads = self.kernel.plan.threads
        with e.stage("decode table"), e.loop(-(-words // threads), "entry") as i:
            index = i * threads + self.kernel.thread
            with e.when(True if words % threads == 0 else index < words):
                entry, lane = index // 32, index % 32
                at = self.table_base // 4 + entry * (table.stride // 4) + lane
                e.store(self.kernel.shared["uint32"], at, self.kernel.arg["table"][entry])

    def atom(self, start: Any) -> AtomDecoder:
        """A decoder for the atom whose packed words begin at byte ``start`` of the arena."""
        self.count += 1
        return AtomDecoder(
            self.program, self._read_words(start), self._lookup, self.lane_address, str(self.count)
        )

    def _read_words(self, start: Any) -> list[Any]:
        words = e.registers(f"w{self.count}", self.program.words, "uint32")
        at, first = start // 4, 0
        for width in vector_widths(self.program.words):
            e.load_vector(
                words, first, self.kernel.shared["uint32"], at + self.kernel.lane * width, width
            )
            at, first = at + 32 * width, first + width
        return [words[i] for i in range(self.program.words)]

    def _lookup(self, address: Any) -> Any:
        index = e.cast("int32", address >> e.u32(2)) + self.table_base // 4
        return self.kernel.shared["uint32"][index]
