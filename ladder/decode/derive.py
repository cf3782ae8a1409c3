"""The way from a declared element type to its decode program.

derive(int4, "float16")
value set {-8 .. 7}  ->  every mask form  ->  families  ->  placement  ->  the cheapest program
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ladder.decode.assemble import Target, mask_program
from ladder.decode.complete import families
from ladder.decode.cost import CYCLES, cycles, deferral
from ladder.decode.cover import is_worth, place
from ladder.decode.form import Form
from ladder.decode.forms import search, search_more
from ladder.decode.geometry import REGISTERS
from ladder.decode.holes import SHORT
from ladder.decode.identity import identity
from ladder.decode.lanes import FORMATS, LANE_FORMATS, NARROW_FORMATS, LaneFormat
from ladder.decode.narrow_programs import narrow_program
from ladder.decode.program import DecodeProgram
from ladder.decode.special import CVT_E4M3, special_programs
from ladder.decode.store import shipped
from ladder.decode.tables import WIDE_STRIDE, table_programs
from ladder.decode.values import Element, ValueSet
from ladder.decode.work import Work
from ladder.errors import DecodeError

#: features that change a program; all others of a device do not matter here
FEATURES = frozenset({CVT_E4M3, WIDE_STRIDE})
#: steps of all placements of one search (1 us each), for codes up to SHORT bits and for longer ones; a program whose search
#: was cut short says so
PLACE_WORK = (1_500_000, 2_500_000)


def derive(
    element: Element, compute: str, *, features: frozenset[str] = frozenset()
) -> DecodeProgram:
    """The cheapest decode program of an element type for a compute type.

    Every table of 1 to 8 bits decodes to 16-bit floats; one whose codes are the compute type's own bits needs no operation.
    Where no exact program exists, values are rounded to nearest even in the compute type and the program says
    ``lossless=False``. To types of 8 or 4 bits decoding is exact, or refused. Programs of shipped types are read from the package,
    others searched for (seconds) and remembered for the process. Searches are bounded by counted work, the same on every machine; where
    it did not suffice to look at everything that could be cheaper, the program says ``exhausted=False``.

    Args:
        element: the declared type; its values decide, not its name.
        compute: a name of :data:`~ladder.decode.lanes.FORMATS`.
        features: of the device; ``"cvt.e4m3x2"`` where it converts fp8_e4m3fn itself. ``"table.stride256"`` asks for
            tables in shared memory that take twice the address range and fewer operations. Others do not matter.

    Raises:
        DecodeError: another compute type or width, or a type without finite values.
        LosslessError: a finite value rounds to infinity in the compute type, or is not exact in one of 8 or 4 bits.
    """
    if compute not in FORMATS:
        raise DecodeError(
            f"no decode to {compute}",
            at=element.name,
            hint=f"compute types with a decode: {', '.join(FORMATS)}",
        )
    as_it_is = identity(element, compute)
    if as_it_is is not None:
        return as_it_is
    found = _derived(ValueSet.of(element), compute, features & FEATURES)
    return replace(found, element=element.name)


@lru_cache(maxsize=1024)
def _derived(values: ValueSet, compute: str, features: frozenset[str]) -> DecodeProgram:
    """The plain program, or a cheaper one that the features allow: they add candidates that need no search."""
    if compute in NARROW_FORMATS:
        return narrow_program(values, NARROW_FORMATS[compute])
    if features:
        plain = _derived(values, compute, frozenset())
        fmt = LANE_FORMATS[compute]
        target = Target(values if plain.lossless else values.rounded(fmt), fmt, plain.lossless)
        return min((plain, *lookups(target, features)), key=cycles)
    known = shipped(values, compute)
    return known if known is not None else search_program(values, compute)


def search_program(values: ValueSet, compute: str) -> DecodeProgram:
    """The cheapest program without features and without what is shipped; exact if there is an exact one.

    Raises:
        LosslessError: no exact program exists, and a finite value rounds to infinity.
    """
    fmt = LANE_FORMATS[compute]
    work = Work(PLACE_WORK[values.bits > SHORT])
    exact = _cheapest(Target(values, fmt), work)
    if exact is not None:
        return exact
    rounded = _cheapest(Target(values.rounded(fmt), fmt, lossless=False), work)
    if rounded is None:
        raise DecodeError(f"no decode to {compute} was found", at=values.name)
    return rounded


def lookups(target: Target[LaneFormat], features: frozenset[str]) -> tuple[DecodeProgram, ...]:
    """Candidates that need no search; with more features there are more."""
    return (*special_programs(target, features), *table_programs(target, features))


def _cheapest(target: Target[LaneFormat], work: Work) -> DecodeProgram | None:
    """The cheapest candidate; of equally cheap ones the first."""
    best = min(lookups(target, frozenset()), key=cycles, default=None)
    complete = True
    for stage in (_every_form, _more_forms):
        below = cycles(best) if best else float("inf")
        if not is_worth(target.bits, below):
            break
        forms, complete = stage(target)
        for program in _masked(target, forms, below, work):
            best = program
    return replace(best, exhausted=complete and not work.cut) if best else None


def _every_form(target: Target[LaneFormat]) -> tuple[list[Form], bool]:
    """The first stage of the search for forms, which is never cut short."""
    return search(target.values, target.fmt), True


def _more_forms(target: Target[LaneFormat]) -> tuple[list[Form], bool]:
    """The second stage, which looks at the holes that the first left out."""
    return search_more(target.values, target.fmt)


def _masked(
    target: Target[LaneFormat], forms: list[Form], below: float, work: Work
) -> Iterator[DecodeProgram]:
    """Programs of mask forms, each cheaper than ``below`` and than the one before."""
    for family in families(target.values, forms, target.fmt):
        first = family.forms[0]
        beside = deferral(first.deferred) + (REGISTERS * CYCLES["fma"] if first.fma else 0.0)
        part = work.half()
        placed = place(family.forms, target.bits, below - beside, part)
        work.settle(part)
        if placed is not None:
            below = placed.cost + beside
            yield mask_program(target, family.name, placed.fields)
