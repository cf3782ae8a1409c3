"""Convert: packed words of an atom -> fragment registers, by the decode program of the packing.

Operations are emitted when a step first needs their result, so that registers of a long atom (16 steps of 1-bit codes)
do not all live at once; ptxas then overlaps the decode of one step with the products of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.decode.program import (
    HELD_ARGUMENT,
    LANE_ADDRESS,
    Const,
    DecodeProgram,
    Op,
    Operand,
    Table,
    held_constant,
)
from ladder.scheduler.geometry import vector_widths

#: lanes of a warp, and stores of 16 bytes that give each of them a word
LANES, STORES = 32, 8


class AtomDecoder:
    """Emits one program for one atom, lazily.

    Attributes:
        program: the decode program.
        words: expressions of the lane's packed words.
        lookup: ``lookup(byte address) -> uint32`` into the program's table.
        lane_address: expression of ``4 * lane``.
        held: registers of those constants that have one, by their bits.
    """

    def __init__(
        self,
        program: DecodeProgram,
        words: list[Any],
        lookup: Any,
        lane_address: Any,
        held: Mapping[int, Any],
        tag: str,
    ) -> None:
        self.program, self.lookup, self.held = program, lookup, held
        self.values: dict[int, Any] = dict(enumerate(words))
        self.values[LANE_ADDRESS] = lane_address
        self.producers = {op.dst: (place, op) for place, op in enumerate(program.ops)}
        # Registers, not bound names: a value may be used in a later stage's scope than the one it is made in.
        if program.ops:
            self.registers = e.registers(f"d{tag}", len(program.ops), "uint32")

    def fragment(self, step: int) -> list[Any]:
        """The four registers a0..a3 of a step of the atom (PTX ISA, mma.m16n8k16 A fragment)."""
        return [self._value(register) for register in self.program.outputs[step]]

    def _value(self, operand: Operand) -> Any:
        if isinstance(operand, Const):
            return e.u32(operand.bits)
        if operand not in self.values:
            place, op = self.producers[operand]
            arguments = [self._value(argument) for argument in op.args]
            constant = held_constant(op)
            if constant is not None and constant.bits in self.held:
                arguments[HELD_ARGUMENT[op.kind]] = self.held[constant.bits]
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


def lane_address(thread: Any) -> Any:
    """``4 * lane`` of a thread.

    As half of a byte of 8 * thread: of (4 * thread) & 124 the compiler would make (word & mask) | lane_address by two
    operations, one with either mask.
    """
    eights = e.call("prmt", e.cast("uint32", thread) * e.u32(8), e.u32(0), e.u32(0x4440))
    return e.bind(eights >> e.u32(1), "lane_address")


def replicate(table: Table, entries: Any, shared: Any, base: int, threads: tuple[Any, int]) -> None:
    """Copy a table's entries for every lane to byte ``base`` of shared words; a CTA barrier must follow.

    Args:
        table: of the program.
        entries: the kernel's argument.
        shared: words of shared memory.
        base: first byte of the table there.
        threads: the thread, and how many share the work.
    """
    thread, count = threads
    stores = len(table.entries) * STORES
    copies = e.registers("copies", LANES // STORES, "uint32")
    with e.loop(-(-stores // count), "entry") as i:
        index = i * count + thread
        with e.when(True if stores % count == 0 else index < stores):
            entry, part = index // STORES, index % STORES
            for lane in range(LANES // STORES):
                e.store(copies, lane, entries[entry])
            place = base // 4 + entry * (table.stride // 4) + part * (LANES // STORES)
            e.store_vector(shared, place, copies, 0, LANES // STORES)


def look_up(start: Any, address: Any) -> Any:
    """The entry of a table that begins at a shared-memory address.

    By its byte address: of an index the compiler makes one by clearing two low bits, unless it keeps track of them through
    all of the decoding, which it pays for with more operations than that (measured: nf4, 4 LOP3 of 20 instructions).
    """
    entry = e.registers("entry", 1, "uint32")
    e.load_shared(entry, 0, start + address, 1)
    return entry[0]


class DecodeEmitter:
    """Emits the decode stage of one kernel: the table, and a decoder per atom.

    Attributes:
        kernel: the kernel under construction.
        table_base: first byte of the lookup table in the arena.
    """

    def __init__(self, kernel: Kernel, table_base: int) -> None:
        self.kernel, self.table_base = kernel, table_base
        self.program = kernel.plan.program
        self.lane_address = lane_address(kernel.thread)
        self.held = self._hold_constants()
        self.count = 0

    def _hold_constants(self) -> dict[int, Any]:
        """Registers for the constants that stand beside another one.

        Each is a sum with 0, of which the compiler does not know that it is 0: it would write a constant that it knows into
        instructions, and take two for each operation that has two (measured: int3, 68 LOP3 in place of 36 for 16 registers).
        """
        constants = self.kernel.plan.register_estimate.held
        if not constants:
            return {}
        sign = e.cast("uint32", self.kernel.thread) + e.cast("uint32", self.kernel.arg["m"])
        zero = e.hold(sign >> e.u32(31), "zero", "uint32")
        return {bits: e.hold(e.u32(bits) + zero, "held", "uint32") for bits in constants}

    def fill_table(self) -> None:
        """Replicate the table for every lane; a CTA barrier must follow before the first decode."""
        table = self.program.table
        if table is None:
            return
        kernel = self.kernel
        threads = kernel.thread, kernel.plan.threads
        with e.stage("decode table"):
            replicate(table, kernel.arg["table"], kernel.shared["uint32"], self.table_base, threads)

    def atom(self, start: Any) -> AtomDecoder:
        """A decoder for the atom whose packed words begin at byte ``start`` of the arena."""
        self.count += 1
        return AtomDecoder(
            self.program,
            self._read_words(start),
            self._lookup,
            self.lane_address,
            self.held,
            str(self.count),
        )

    def _read_words(self, start: Any) -> list[Any]:
        words = e.registers(f"w{self.count}", self.program.words, "uint32")
        first = 0
        for width in vector_widths(self.program.words):
            address = start + (32 * first + self.kernel.lane * width) * 4
            e.load_shared(words, first, self.kernel.shared_address(address), width)
            first += width
        return [words[i] for i in range(self.program.words)]

    def _lookup(self, address: Any) -> Any:
        return look_up(self.kernel.shared_address(self.table_base), address)
