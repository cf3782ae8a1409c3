"""Programs whose lanes are scaled in registers, for words that were packed for a program which finishes its lanes by an fma.

A kernel that scales decoded weights before it multiplies them has an fma for each register, ``lane * S + Z``. A program that
brings all lanes to one factor by an fma of its own (int3 to float16: ``(word & 0x0038) | 0x5800``, less 132) then spends two. Here
each register defers the factor and zero that its mask leaves, ``2^21 * lane - 4``, and the kernel keeps an S and a Z for each: the
masks alone are left. Accumulators could not make good what differs between registers of one row; only such kernels run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ladder.decode.complete import is_power_of_two
from ladder.decode.form import Form
from ladder.decode.geometry import REGISTERS
from ladder.decode.moves import Made, Options, cheapest
from ladder.decode.program import Affine, DecodeProgram
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

#: largest lane: factors are then so large that they keep their precision as float16 wherever the product is no subnormal
MOST_LANE = Fraction(1, 1 << 11)


def scaled(element: Element, program: DecodeProgram) -> DecodeProgram | None:
    """The cheapest program without an fma that reads what is packed for ``program``, each register deferring its own map.

    The shipped one where it fits, or one searched for (seconds), which is remembered for the process. None where the program
    has no fma itself or is none of masks, where some register has no mask that leaves a map of a power of two, or where lanes
    would be so large that factors fall below the normal numbers of float16.

    Args:
        element: the declared type.
        program: its program, which decides where codes lie.
    """
    if not _has_fmas(program):
        return None
    found = _scaled(ValueSet.of(element), replace(program, element=""))
    return found and replace(found, element=element.name)


@lru_cache(maxsize=256)
def _scaled(values: ValueSet, program: DecodeProgram) -> DecodeProgram | None:
    known = shipped_beside("scaled", values, program.compute)
    if known is not None and reads_alike(known, program):
        return known
    return search_scaled(values, program)


def search_scaled(values: ValueSet, program: DecodeProgram) -> DecodeProgram | None:
    """:func:`scaled` without what is shipped."""
    registers = registers_of(program) if _has_fmas(program) else None
    if registers is None:
        return None
    found = cheapest(_options(Reader(values, program), registers), float("inf"))
    if found is None:
        return None
    deferred = {
        (register.step, register.place): form.deferred
        for register, (form, _) in zip(registers, found[1], strict=True)
    }
    steps = range(program.steps)
    affine = tuple(tuple(deferred[step, place] for place in range(REGISTERS)) for step in steps)
    return rewritten(program, registers, found[1], tuple(steps), affine)


def _has_fmas(program: DecodeProgram) -> bool:
    """Whether this is a program of masks in float16 which finishes lanes by fmas."""
    return program.compute == "float16" and program.pipes()["fma"] > 0 and program.table is None


def _options(reader: Reader, registers: Sequence[Register]) -> list[Options]:
    """For each register and set of moves the form whose map most registers could share, the smallest zero first of those."""
    usable = [
        [read for read in reader.reads(register) if _is_usable(read.form, reader)]
        for register in registers
    ]
    shared = Counter(
        affine for reads in usable for affine in {read.form.deferred for read in reads}
    )

    def rank(affine: Affine) -> tuple[Fraction, int, Fraction]:
        return abs(affine.beta), -shared[affine], affine.alpha

    options: list[Options] = []
    for register, reads in zip(registers, usable, strict=True):
        ways: Options = {}
        for read in sorted(reads, key=lambda read: rank(read.form.deferred)):
            made: Made = read.form, read.pieces
            way, made = placed(read.moves, made, register.word)
            ways.setdefault(way, made)
        options.append(ways)
    return options


def _is_usable(form: Form, reader: Reader) -> bool:
    """Whether a kernel can scale lanes of this form."""
    if not is_bare(form, reader.target) or not is_power_of_two(form.deferred.alpha):
        return False
    alpha, beta = form.deferred.alpha, form.deferred.beta
    return max(abs(v - beta) for v in reader.target.values.values) <= alpha * MOST_LANE
