"""Lookups, for codebooks that no mask can make: any table of values decodes.

* up to 3 bits: two byte tables in registers, read by prmt (8 entries at most), beside loads for part of the codes;
* 4 bits: one load brings two codes, from 256 entries in shared memory;
* 5 to 8 bits: one load brings one code, and a prmt joins two.

Tables in shared memory are replicated for the 32 lanes, so loads never meet in a bank. The address of entry i is
``i*stride + 4*lane``: with a stride of 128 bytes one mask puts a shifted index above the lane, with 256 bytes one prmt
puts any byte of the word there (twice the address range, no shifts).

Codes of up to 3 bits lie in the nibbles of a register, where prmt wants them. A byte of it is then the index of two codes,
with a gap between them: 8 codes take 4 prmt and 4 loads, or 9 operations of the ALU alone. Either pipe is busy while the
other rests, so an atom's registers are divided between them; which of them are loaded changes no bit of the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import repeat

import numpy as np

from ladder.decode.assemble import Target, program_of
from ladder.decode.build import Builder, packed_bits
from ladder.decode.complete import units
from ladder.decode.form import Field, Form, Piece, mask_of
from ladder.decode.fragment import Decoded
from ladder.decode.geometry import WORDS
from ladder.decode.lanes import LANE_FORMATS, LaneFormat
from ladder.decode.program import LANE_ADDRESS, Affine, Const, DecodeProgram, Slot, Table
from ladder.decode.values import Element, ValueSet

#: the feature that asks for 256-byte strides
WIDE_STRIDE = "table.stride256"
STRIDE = 128
#: widest codes of which prmt holds all entries, and the width of what it selects by
BYTE_TABLE_BITS, NIBBLE = 3, 4
#: prmt selectors that interleave low bytes (operand a) and high bytes (operand b): codes 0, 1 and codes 2, 3
INTERLEAVE = (0x5140, 0x7362)
#: prmt selector that joins the low halves of two registers
JOIN = 0x5410
#: prmt selector that puts byte 0 of operand a above byte 0 of operand b, the lane's address, whose others are 0
ABOVE_LANE = 0x5504


def table_programs(target: Target[LaneFormat], features: frozenset[str]) -> Iterator[DecodeProgram]:
    """The lookups for the width, where a power of two brings all values into the lane format without rounding."""
    unit = next(units(target.values, target.fmt), None)
    if unit is None:
        return
    if target.bits <= BYTE_TABLE_BITS:
        for loads in range(len(nibble_fields(target.bits)) + 1):
            yield byte_tables(target, unit, loads)
    else:
        yield shared_table(target, unit)
        if WIDE_STRIDE in features:
            yield shared_table(target, unit, 2 * STRIDE)


def patterns(target: Target[LaneFormat], unit: Fraction) -> tuple[list[int], frozenset[int]]:
    """The lane pattern of each code's ``value/unit``, and the codes without a finite value that have one too."""
    found = dict.fromkeys(range(target.values.size), 0)
    for code, value in target.values.by_code().items():
        found[code] = target.fmt.pattern(value / unit)
    for code, special in target.values.special:
        found[code] = int(target.fmt.patterns(np.float64(special)))
    return [found[c] for c in range(target.values.size)], frozenset(
        c for c, _ in target.values.special
    )


# ---------------------------------------------------------------- tables in registers


def byte_tables(target: Target[LaneFormat], unit: Fraction, loads: int = 0) -> DecodeProgram:
    """Lookups of codes that lie in nibbles, in byte tables and in a table of pairs.

    Args:
        target: what is decoded, codes of at most :data:`BYTE_TABLE_BITS`.
        unit: that is deferred.
        loads: registers of eight codes that are loaded, the first ones; prmt selects the bytes of the others.
    """
    entries, carried = patterns(target, unit)
    builder = Builder(WORDS[target.bits], lane_bits=32)
    fields = nibble_fields(target.bits)
    builder.expect(fields)
    registers: list[Decoded] = []
    for place, field in enumerate(fields):
        nibbles, places = builder.gather(field, Const(0))
        bits = packed_bits(places, field.form.positions)
        codes = [Slot(bits[i : i + target.bits]) for i in range(0, len(bits), target.bits)]
        made = _loaded(builder, nibbles) if place < loads else _permuted(builder, entries, nibbles)
        pairs = zip(codes[::2], codes[1::2], strict=True)
        registers += map(Decoded, made, pairs, repeat(Affine(unit)))
    labels = (tuple(range(len(entries))),)
    if not loads:
        return program_of(target, "byte tables", builder, registers, labels, carried)
    name = "pair table" if loads == len(fields) else "pair + byte tables"
    table = _spaced_pairs(entries, target.bits)
    return program_of(target, name, builder, registers, labels, carried, table)


def in_registers(element: Element, program: DecodeProgram) -> DecodeProgram | None:
    """The program that looks the same codes of the same words up in registers alone.

    Args:
        element: the declared type.
        program: its program, one that looks codes up in shared memory.

    None where there is no such program: codes are too wide for byte tables.
    """
    if program.table is None or program.bits > BYTE_TABLE_BITS:
        return None
    values, fmt = ValueSet.of(element), LANE_FORMATS[program.compute]
    target = Target(
        values if program.lossless else values.rounded(fmt), fmt, lossless=program.lossless
    )
    unit = program.affine[0][0].alpha
    return replace(byte_tables(target, unit), exhausted=program.exhausted)


def _permuted(builder: Builder, entries: Sequence[int], nibbles: int) -> Iterator[int]:
    """Registers of two codes each, by two bytes of each of four codes at once."""
    low, high = _byte_table(entries, 0), _byte_table(entries, 8)
    for shift in (0, 16):
        quad = builder.emit("shr", nibbles, imm=shift) if shift else nibbles
        parts = [_look_up(builder, table, quad) for table in (low, high)]
        for order in INTERLEAVE:
            yield builder.emit("prmt", *parts, Const(order))


def _loaded(builder: Builder, nibbles: int) -> Iterator[int]:
    """The same by a load each: a prmt puts a byte above the lane."""
    for byte in range(4):
        address = builder.emit("prmt", nibbles, LANE_ADDRESS, Const(ABOVE_LANE | byte << 4))
        yield builder.emit("lds", address)


def _spaced_pairs(entries: Sequence[int], bits: int) -> Table:
    """Two codes for each byte with one in either nibble; bytes that have other bits set occur nowhere."""
    codes = range(1 << NIBBLE + bits)
    mask = len(entries) - 1
    words = tuple(entries[c & mask] | entries[c >> NIBBLE] << 16 for c in codes)
    return Table(words, 2 * STRIDE)


def _byte_table(entries: Sequence[int], shift: int) -> tuple[int, int]:
    """One byte of each entry as the two operands of a prmt, four entries each."""
    part = [entry >> shift & 0xFF for entry in entries]
    part += [part[0]] * (8 - len(part))
    first, second = (sum(b << 8 * i for i, b in enumerate(part[k : k + 4])) for k in (0, 4))
    return first, second


def _look_up(builder: Builder, table: tuple[int, int], selector: int) -> int | Const:
    """Four bytes of a table; nothing to do where all its bytes are equal."""
    first, second = table
    if first == second and first == (first & 0xFF) * 0x01010101:
        return Const(first)
    return builder.emit("prmt", Const(first), Const(second), selector)


def nibble_fields(bits: int) -> list[Field]:
    """Registers of eight nibbles with a code in the low bits of each, the other bits zero, which cover the words.

    Codes of 1 and 2 bits share their nibbles with the codes of other registers. Of 3 bits, one bit of every nibble is
    left over; the left-over bits of three words make the nibbles of a fourth register.
    """
    positions = tuple(4 * nibble + bit for nibble in range(8) for bit in range(bits))
    form = Form(positions, 0, (), Affine())
    each = 0x11111111
    fields = [
        Field(form, (Piece(word, -shift % 32, mask_of(positions)),))
        for word in range(WORDS[bits])
        for shift in range(0, 4 - bits + 1, bits)
    ]
    if bits == 3:
        fields.append(
            Field(form, tuple(Piece(word, (word - 3) % 32, each << word) for word in range(3)))
        )
    return fields


# ---------------------------------------------------------------- tables in shared memory


def shared_table(target: Target[LaneFormat], unit: Fraction, stride: int = STRIDE) -> DecodeProgram:
    """A table in shared memory of pairs of codes (4 bits) or of single codes (5 to 8 bits)."""
    entries, carried = patterns(target, unit)
    pairs = target.bits == 4
    builder = Builder(WORDS[target.bits], lane_bits=32)
    window = 2 * target.bits if pairs else target.bits
    fields = window_fields(window, stride.bit_length() - 1, WORDS[target.bits])
    builder.expect(fields)
    loads = []
    for field in fields:
        address, places = builder.gather(field, LANE_ADDRESS)
        loads.append((builder.emit("lds", address), packed_bits(places, field.form.positions)))
    if pairs:
        words = tuple(low | high << 16 for high in entries for low in entries)
        registers = [
            Decoded(load, (Slot(bits[: target.bits]), Slot(bits[target.bits :])), Affine(unit))
            for load, bits in loads
        ]
    else:
        words = tuple(entries)
        registers = [
            Decoded(builder.emit("prmt", low, high, Const(JOIN)), (Slot(a), Slot(b)), Affine(unit))
            for (low, a), (high, b) in zip(loads[::2], loads[1::2], strict=True)
        ]
    name = "pair table" if pairs else "code table"
    labels = (tuple(range(len(entries))),)
    return program_of(target, name, builder, registers, labels, carried, Table(words, stride))


def window_fields(width: int, base: int, words: int) -> list[Field]:
    """Fields of ``width`` neighbouring bits, each to be brought to ``base`` of a register, which cover the words.

    A word holds ``32 // width`` of them from ``base`` on upwards and round; bits left over join to further fields.
    """
    form = Form(tuple(range(base, base + width)), 0, (), Affine())
    each, left = divmod(32, width)
    fields = [
        Field(form, (Piece(word, -width * i % 32, form.mask),))
        for word in range(words)
        for i in range(each)
    ]
    pieces: dict[int, list[Piece]] = {}
    for word in range(words):
        first = word * left
        while first < (word + 1) * left:
            field, place = divmod(first, width)
            count = min(width - place, (word + 1) * left - first)
            lies = base + each * width + first - word * left
            mask = ((1 << count) - 1) << (base + place)
            pieces.setdefault(field, []).append(Piece(word, (base + place - lies) % 32, mask))
            first += count
    return fields + [Field(form, tuple(pieces[i])) for i in sorted(pieces)]
