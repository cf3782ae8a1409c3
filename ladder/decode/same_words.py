"""Other programs for words that are packed already: each register again, from the bits where the packed program has its codes.

All kernels of an operator read the same packed words, so a second program has to find each code where the first finds it: slots
and relabellings are given. Free are

* by how much a word is moved before a register is cut out of it: the same bits then lie elsewhere in the lane;
* the constant that is or-ed on, and so what the lane means;
* what is done to the lane afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ladder.decode.assemble import Target
from ladder.decode.build import Builder
from ladder.decode.complete import ZERO_LIMIT, is_float32
from ladder.decode.form import Field, Form, Piece
from ladder.decode.forms import search
from ladder.decode.lanes import LANE_FORMATS, LaneFormat
from ladder.decode.moves import Made, Move
from ladder.decode.program import Affine, Const, DecodeProgram, Slot
from ladder.decode.values import ValueSet


def reads_alike(one: DecodeProgram, other: DecodeProgram) -> bool:
    """Whether two programs read the same packed words: the same codes, at the same bits, relabelled alike."""
    return all(
        getattr(one, field) == getattr(other, field)
        for field in ("bits", "compute", "slots", "relabels", "undefined", "lossless", "table")
    )


@dataclass(frozen=True, slots=True)
class Register:
    """A fragment register: its number in the given program, ``step`` and place in it, and where its low code lies."""

    number: int
    step: int
    place: int
    slot: Slot

    @property
    def word(self) -> int:
        """The first word that it reads."""
        return min(self.slot.bits) // 32

    @property
    def pattern(self) -> Slot:
        """Its slot as if its first word were word 0."""
        return replace(self.slot, bits=tuple(bit - 32 * self.word for bit in self.slot.bits))


@dataclass(frozen=True, slots=True)
class Read:
    """A form for a register, and the moves of the words that bring its bits to the form's positions, with their masks."""

    form: Form
    pieces: tuple[Piece, ...]

    @property
    def moves(self) -> frozenset[Move]:
        """Moved words that it reads."""
        return frozenset((p.word, p.rotation) for p in self.pieces if p.rotation)


def registers_of(program: DecodeProgram) -> list[Register] | None:
    """The registers in the order in which they are made, or None where the two halves are not treated alike."""
    found = []
    for step, (outputs, slots) in enumerate(zip(program.outputs, program.slots, strict=True)):
        for place, (number, (low, high)) in enumerate(zip(outputs, slots, strict=True)):
            turned = tuple(bit // 32 * 32 + (bit + 16) % 32 for bit in low.bits)
            if (turned, low.relabel) != (high.bits, high.relabel):
                return None
            found.append(Register(number, step, place, low))
    return sorted(found, key=lambda r: r.number)


class Reader:
    """Ways to read the registers of a program of masks. Registers that lie alike in their words are looked at once.

    Attributes:
        target: the values that lanes stand for, rounded where the program rounds them.
    """

    def __init__(self, values: ValueSet, program: DecodeProgram) -> None:
        fmt = LANE_FORMATS[program.compute]
        self.program = program
        self.target = Target(
            values if program.lossless else values.rounded(fmt), fmt, program.lossless
        )
        needed = {code for code, _ in values.special} - set(program.undefined)
        self.forms = [f for f in search(self.target.values, fmt) if needed <= set(f.carried)]
        self.codes = [c for c in range(1 << program.bits) if c not in program.undefined]
        self.known: dict[Slot, list[Read]] = {}

    def reads(self, register: Register) -> list[Read]:
        """Every form that finds the register's codes in its packed bits, as if its first word were word 0."""
        slot = register.pattern
        if slot not in self.known:
            table = self.program.relabels[slot.relabel]
            packed = [(bit, _column(table, self.codes, k)) for k, bit in enumerate(slot.bits)]
            pieces = ((form, _pieces(form, self.codes, packed)) for form in self.forms)
            self.known[slot] = [Read(form, found) for form, found in pieces if found]
        return self.known[slot]


def is_bare(form: Form, target: Target[LaneFormat]) -> bool:
    """Whether accumulators can make good what the form defers."""
    alpha, beta = form.deferred.alpha, form.deferred.beta
    small = abs(beta) <= ZERO_LIMIT * target.values.largest
    return small and is_float32(alpha) and is_float32(beta)


def placed(way: frozenset[Move], made: Made, word: int) -> tuple[frozenset[Move], Made]:
    """Moves and pieces that were found for word 0, of ``word``."""
    form, pieces = made
    moves = frozenset((w + word, turn) for w, turn in way)
    return moves, (form, tuple(replace(piece, word=piece.word + word) for piece in pieces))


def rewritten(
    program: DecodeProgram,
    registers: Sequence[Register],
    chosen: Sequence[Made],
    step_class: tuple[int, ...],
    affine: tuple[tuple[Affine, ...], ...],
) -> DecodeProgram:
    """The given program with other operations, which defer ``affine``."""
    fields = [Field(form, pieces) for form, pieces in chosen]
    builder = Builder(program.words, ordered=True)
    builder.expect(fields)
    made: dict[tuple[int, int], int] = {}
    for register, field in zip(registers, fields, strict=True):
        number, _ = builder.gather(field, Const(builder.spread(field.form.constant)))
        if field.form.fma:
            factor, addend = (Const(builder.spread(x)) for x in field.form.fma)
            short = LANE_FORMATS[program.compute].short
            number = builder.emit("fma", number, factor, addend, fmt=short)
        made[register.step, register.place] = number
    return replace(
        program,
        form="mask+fma" if any(field.form.fma for field in fields) else "mask",
        ops=tuple(builder.ops),
        outputs=tuple(
            (made[s, 0], made[s, 1], made[s, 2], made[s, 3]) for s in range(program.steps)
        ),
        step_class=step_class,
        affine=affine,
    )


def _column(table: Sequence[int], codes: Sequence[int], bit: int) -> tuple[int, ...]:
    """One stored bit of every code."""
    return tuple(table[c] >> bit & 1 for c in codes)


def _pieces(
    form: Form, codes: Sequence[int], packed: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[Piece, ...] | None:
    """Moves that bring each packed bit to the lane bit with the same meaning, one for each word; None where that needs more."""
    left = list(packed)
    masks: dict[Move, int] = {}
    for m, position in enumerate(form.positions):
        column = _column(form.stored, codes, m)
        found = next((x for x in left if x[1] == column), None)
        if found is None:
            return None
        left.remove(found)
        move = found[0] // 32, (position - found[0]) % 32
        masks[move] = masks.get(move, 0) | 1 << position
    if len({word for word, _ in masks}) != len(masks):
        return None
    return tuple(Piece(word, turn, mask) for (word, turn), mask in sorted(masks.items()))
