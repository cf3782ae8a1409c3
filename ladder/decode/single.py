"""Programs with one accumulator class for words that were packed for a program with several.

The cheapest program of some types leaves different factors in different steps (int2 to float16: 2^18 to 2^24). A warpgroup's
product keeps one set of accumulators, so it needs another program, and since all kernels of an operator read the same
packed words, one that finds each code where the first finds it. Slots and relabellings are therefore given; free are

* by how much a word is moved before a register is cut out of it: the same bits then lie elsewhere in the lane;
* the constant that is or-ed on, and so what the lane means;
* one fma that brings a register to the factor and zero of the others.

For every factor of rows g and of rows g+8 that some register can have, words are covered by the cheapest set of moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from ladder.decode.assemble import Target
from ladder.decode.build import Builder
from ladder.decode.complete import ZERO_LIMIT, is_float32, is_power_of_two, units, vanishes
from ladder.decode.cost import CYCLES, deferral
from ladder.decode.form import Field, Form, Piece
from ladder.decode.forms import search
from ladder.decode.geometry import REGISTERS
from ladder.decode.lanes import LANE_FORMATS, LaneFormat
from ladder.decode.moves import Made, Move, Options, cheapest
from ladder.decode.program import Affine, Const, DecodeProgram, Slot
from ladder.decode.store import shipped_one_class
from ladder.decode.values import Element, ValueSet

#: factors that are tried for one zero, for each of the two row halves: those that cost least on their own
MOST_TARGETS = 8
#: zeros that are tried: those nearest to nothing
MOST_ZEROS = 3


def one_class(element: Element, program: DecodeProgram) -> DecodeProgram | None:
    """The cheapest program with one accumulator class that reads what is packed for ``program``.

    The program itself where it has one class; else the shipped one where it fits, or one searched for (seconds), which is
    remembered for the process. None where there is none, or where the program is none of masks.

    Args:
        element: the declared type.
        program: its program, which decides where codes lie.
    """
    if program.classes == 1:
        return program
    found = _one_class(ValueSet.of(element), replace(program, element=""))
    return found and replace(found, element=element.name)


@lru_cache(maxsize=256)
def _one_class(values: ValueSet, program: DecodeProgram) -> DecodeProgram | None:
    known = shipped_one_class(values, program.compute)
    if known is not None and reads_alike(known, program):
        return known
    return search_one_class(values, program)


def reads_alike(one: DecodeProgram, other: DecodeProgram) -> bool:
    """Whether two programs read the same packed words: the same codes, at the same bits, relabelled alike."""
    return all(
        getattr(one, field) == getattr(other, field)
        for field in ("bits", "compute", "slots", "relabels", "undefined", "lossless", "table")
    )


def search_one_class(values: ValueSet, program: DecodeProgram) -> DecodeProgram | None:
    """:func:`one_class` of a program with several classes, without what is shipped."""
    fmt = LANE_FORMATS[program.compute]
    registers = _registers(program)
    if program.table is not None or registers is None:
        return None
    target = Target(values if program.lossless else values.rounded(fmt), fmt, program.lossless)
    needed = {code for code, _ in values.special} - set(program.undefined)
    forms = [f for f in search(target.values, fmt) if needed <= set(f.carried)]
    find = _Finder(program, forms, target)
    best, least = None, float("inf")
    for fmas, pair in find.targets(registers):
        beside = max(map(_beside, pair)) * program.steps
        if fmas * CYCLES["fma"] + beside >= least:
            continue
        options = [find.options(register, pair[register.place % 2]) for register in registers]
        found = cheapest(options, least - beside)
        if found is not None:
            least = found[0] + beside
            best = _program(program, registers, found[1], pair, fmt)
    return best


def _beside(affine: Affine) -> float:
    """Cycles per step for what is deferred: a warpgroup keeps no activation sums, so a zero costs each register an fma."""
    return deferral(Affine(affine.alpha)) + (REGISTERS * CYCLES["fma"] if affine.beta else 0.0)


@dataclass(frozen=True, slots=True)
class _Register:
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
class _Read:
    """A form for a register, and the moves of the words that bring its bits to the form's positions, with their masks."""

    form: Form
    pieces: tuple[Piece, ...]

    @property
    def moves(self) -> frozenset[Move]:
        """Moved words that it reads."""
        return frozenset((p.word, p.rotation) for p in self.pieces if p.rotation)


def _registers(program: DecodeProgram) -> list[_Register] | None:
    """The registers in the order in which they are made, or None where the two halves are not treated alike."""
    found = []
    for step, (outputs, slots) in enumerate(zip(program.outputs, program.slots, strict=True)):
        for place, (number, (low, high)) in enumerate(zip(outputs, slots, strict=True)):
            turned = tuple(bit // 32 * 32 + (bit + 16) % 32 for bit in low.bits)
            if (turned, low.relabel) != (high.bits, high.relabel):
                return None
            found.append(_Register(number, step, place, low))
    return sorted(found, key=lambda r: r.number)


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


# ---------------------------------------------------------------- what the registers are brought to


class _Finder:
    """Ways to make registers of a program from some forms. Registers that lie alike in their words are looked at once."""

    def __init__(
        self, program: DecodeProgram, forms: Sequence[Form], target: Target[LaneFormat]
    ) -> None:
        self.program, self.forms, self.target = program, forms, target
        self.codes = [c for c in range(1 << program.bits) if c not in program.undefined]
        self.known_reads: dict[Slot, list[_Read]] = {}
        self.known_options: dict[tuple[Slot, Affine], Options] = {}
        self.known_forms: dict[tuple[int, Affine], Form | None] = {}

    def targets(self, registers: Sequence[_Register]) -> list[tuple[int, tuple[Affine, Affine]]]:
        """Fmas needed at the least, and what rows g and rows g+8 may defer (sharing beta); by rising number of fmas."""
        common = self._common(registers)
        found: list[tuple[int, int, tuple[Affine, Affine]]] = []
        for beta in list(dict.fromkeys(a.beta for a in common))[:MOST_ZEROS]:
            halves = []
            for half in (0, 1):
                mine = [register for register in registers if register.place % 2 == half]
                costs = [(self._fmas(mine, a), i) for i, a in enumerate(common) if a.beta == beta]
                halves.append(sorted((n, i) for n, i in costs if n is not None)[:MOST_TARGETS])
            found += [(n + m, i + j, (common[i], common[j])) for (n, i), (m, j) in product(*halves)]
        found.sort(key=lambda x: x[:2])
        return [(fmas, pair) for fmas, _, pair in found]

    def _common(self, registers: Sequence[_Register]) -> list[Affine]:
        """Every affine map that some register can have by itself, and plain units; those nearest to nothing first."""
        values, fmt = self.target.values, self.target.fmt
        reads = [read for register in registers for read in self._reads(register)]
        bare = {read.form.deferred for read in reads if _is_bare(read.form, self.target)}
        powers = {affine for affine in bare if is_power_of_two(affine.alpha)}
        every = {*(powers or bare), *(Affine(unit) for unit in units(values, fmt))}
        return sorted(
            (affine for affine in every if _is_reached(affine, self.target)),
            key=lambda a: (abs(a.beta), a.beta, max(a.alpha, 1 / a.alpha), a.alpha),
        )

    def _fmas(self, registers: Sequence[_Register], affine: Affine) -> int | None:
        """How many registers need an fma to defer just this; None where one cannot be brought to it."""
        total = 0
        for register in registers:
            options = self._options(register, affine)
            if not options:
                return None
            total += all(form.fma for form, _ in options.values())
        return total

    def options(self, register: _Register, affine: Affine) -> Options:
        """For each set of moves the form that ends in ``affine``, without an fma where that is possible."""
        word = register.word
        return {
            frozenset((w + word, turn) for w, turn in way): (
                form,
                tuple(replace(piece, word=piece.word + word) for piece in pieces),
            )
            for way, (form, pieces) in self._options(register, affine).items()
        }

    def _options(self, register: _Register, affine: Affine) -> Options:
        """:meth:`options` as if the register's first word were word 0."""
        key = register.pattern, affine
        if key not in self.known_options:
            out: Options = {}
            for read in self._reads(register):
                form = self._brought(read.form, affine)
                if form and (read.moves not in out or (out[read.moves][0].fma and not form.fma)):
                    out[read.moves] = form, read.pieces
            self.known_options[key] = out
        return self.known_options[key]

    def _brought(self, form: Form, affine: Affine) -> Form | None:
        key = id(form), affine
        if key not in self.known_forms:
            self.known_forms[key] = brought(form, affine, self.target.fmt)
        return self.known_forms[key]

    def _reads(self, register: _Register) -> list[_Read]:
        """Every form that finds the register's codes in its packed bits, as if its first word were word 0."""
        slot = register.pattern
        if slot not in self.known_reads:
            table = self.program.relabels[slot.relabel]
            packed = [(bit, _column(table, self.codes, k)) for k, bit in enumerate(slot.bits)]
            pieces = ((form, _pieces(form, self.codes, packed)) for form in self.forms)
            self.known_reads[slot] = [_Read(form, found) for form, found in pieces if found]
        return self.known_reads[slot]


def _is_bare(form: Form, target: Target[LaneFormat]) -> bool:
    """Whether accumulators can make good what the form defers."""
    alpha, beta = form.deferred.alpha, form.deferred.beta
    small = abs(beta) <= ZERO_LIMIT * target.values.largest
    return small and is_float32(alpha) and is_float32(beta)


def _is_reached(affine: Affine, target: Target[LaneFormat]) -> bool:
    """Whether every lane ``(value - beta) / alpha`` is a value of the format that no product loses."""
    lanes = [(v - affine.beta) / affine.alpha for v in target.values.values]
    held = all(target.fmt.holds(lane) for lane in lanes)
    return held and not vanishes(
        np.array([float(x) for x in lanes]), float(affine.alpha), target.fmt
    )


def brought(form: Form, affine: Affine, fmt: LaneFormat) -> Form | None:
    """The form with the fma after which it defers ``affine``: itself where it does, None where no exact fma does.

    ``(lane * a + b - beta') / alpha' = lane * (a / alpha') + (b - beta') / alpha'``
    """
    if form.deferred == affine:
        return form
    factor = form.deferred.alpha / affine.alpha
    addend = (form.deferred.beta - affine.beta) / affine.alpha
    if not (fmt.holds(factor) and fmt.holds(addend)):
        return None
    minus_zero = 1 << 15
    fma = fmt.pattern(factor), fmt.pattern(addend) if addend else minus_zero
    return replace(form, deferred=affine, fma=fma)


# ---------------------------------------------------------------- the program


def _program(
    program: DecodeProgram,
    registers: Sequence[_Register],
    chosen: Sequence[Made],
    pair: tuple[Affine, Affine],
    fmt: LaneFormat,
) -> DecodeProgram:
    """The given program with other operations, for one class."""
    fields = [Field(form, pieces) for form, pieces in chosen]
    builder = Builder(program.words, ordered=True)
    builder.expect(fields)
    made: dict[tuple[int, int], int] = {}
    for register, field in zip(registers, fields, strict=True):
        number, _ = builder.gather(field, Const(builder.spread(field.form.constant)))
        if field.form.fma:
            factor, addend = (Const(builder.spread(x)) for x in field.form.fma)
            number = builder.emit("fma", number, factor, addend, fmt=fmt.short)
        made[register.step, register.place] = number
    return replace(
        program,
        form="mask+fma" if any(field.form.fma for field in fields) else "mask",
        ops=tuple(builder.ops),
        outputs=tuple(
            (made[s, 0], made[s, 1], made[s, 2], made[s, 3]) for s in range(program.steps)
        ),
        step_class=(0,) * program.steps,
        affine=(pair,),
    )
