"""Programs with one accumulator class for words that were packed for a program with several.

The cheapest program of some types leaves different factors in different steps (int2 to float16: 2^18 to 2^24). A warpgroup's
product keeps one set of accumulators, so it needs another program for the same words (:mod:`ladder.decode.same_words`), in
which one fma may bring a register to the factor and zero of the others.

For every factor of rows g and of rows g+8 that some register can have, words are covered by the cheapest set of moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from ladder.decode.assemble import Target
from ladder.decode.complete import is_power_of_two, units, vanishes
from ladder.decode.cost import CYCLES, deferral
from ladder.decode.form import Form
from ladder.decode.geometry import REGISTERS
from ladder.decode.lanes import LaneFormat
from ladder.decode.moves import Options, cheapest
from ladder.decode.program import Affine, DecodeProgram, Slot
from ladder.decode.same_words import (
    Reader,
    Register,
    is_bare,
    placed,
    reads_alike,
    registers_of,
    rewritten,
)
from ladder.decode.store import shipped_beside
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
    known = shipped_beside("one_class", values, program.compute)
    if known is not None and reads_alike(known, program):
        return known
    return search_one_class(values, program)


def search_one_class(values: ValueSet, program: DecodeProgram) -> DecodeProgram | None:
    """:func:`one_class` of a program with several classes, without what is shipped."""
    registers = registers_of(program)
    if program.table is not None or registers is None:
        return None
    find = _Finder(Reader(values, program))
    best, least = None, float("inf")
    for fmas, pair in find.targets(registers):
        beside = max(map(_beside, pair)) * program.steps
        if fmas * CYCLES["fma"] + beside >= least:
            continue
        options = [find.options(register, pair[register.place % 2]) for register in registers]
        found = cheapest(options, least - beside)
        if found is not None:
            least = found[0] + beside
            best = rewritten(program, registers, found[1], (0,) * program.steps, (pair,))
    return best


def _beside(affine: Affine) -> float:
    """Cycles per step for what is deferred: a warpgroup keeps no activation sums, so a zero costs each register an fma."""
    return deferral(Affine(affine.alpha)) + (REGISTERS * CYCLES["fma"] if affine.beta else 0.0)


# ---------------------------------------------------------------- what the registers are brought to


class _Finder:
    """Ways to make registers of a program from some forms. Registers that lie alike in their words are looked at once."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.target = reader, reader.target
        self.known_options: dict[tuple[Slot, Affine], Options] = {}
        self.known_forms: dict[tuple[int, Affine], Form | None] = {}

    def targets(self, registers: Sequence[Register]) -> list[tuple[int, tuple[Affine, Affine]]]:
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

    def _common(self, registers: Sequence[Register]) -> list[Affine]:
        """Every affine map that some register can have by itself, and plain units; those nearest to nothing first."""
        values, fmt = self.target.values, self.target.fmt
        reads = [read for register in registers for read in self.reader.reads(register)]
        bare = {read.form.deferred for read in reads if is_bare(read.form, self.target)}
        powers = {affine for affine in bare if is_power_of_two(affine.alpha)}
        every = {*(powers or bare), *(Affine(unit) for unit in units(values, fmt))}
        return sorted(
            (affine for affine in every if _is_reached(affine, self.target)),
            key=lambda a: (abs(a.beta), a.beta, max(a.alpha, 1 / a.alpha), a.alpha),
        )

    def _fmas(self, registers: Sequence[Register], affine: Affine) -> int | None:
        """How many registers need an fma to defer just this; None where one cannot be brought to it."""
        total = 0
        for register in registers:
            options = self._options(register, affine)
            if not options:
                return None
            total += all(form.fma for form, _ in options.values())
        return total

    def options(self, register: Register, affine: Affine) -> Options:
        """For each set of moves the form that ends in ``affine``, without an fma where that is possible."""
        found = self._options(register, affine)
        return dict(placed(way, made, register.word) for way, made in found.items())

    def _options(self, register: Register, affine: Affine) -> Options:
        """:meth:`options` as if the register's first word were word 0."""
        key = register.pattern, affine
        if key not in self.known_options:
            out: Options = {}
            for read in self.reader.reads(register):
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
