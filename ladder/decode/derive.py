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
from ladder.decode.cover import place
from ladder.decode.forms import search
from ladder.decode.geometry import REGISTERS
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import DecodeProgram
from ladder.decode.special import CVT_E4M3, special_programs
from ladder.decode.store import shipped
from ladder.decode.tables import WIDE_STRIDE, table_programs
from ladder.decode.values import Element, ValueSet
from ladder.errors import DecodeError

#: features that change a program; all others of a device do not matter here
FEATURES = frozenset({CVT_E4M3, WIDE_STRIDE})


def derive(
    element: Element, compute: str, *, features: frozenset[str] = frozenset()
) -> DecodeProgram:
    """The cheapest decode program of an element type for a compute type.

    Every table of 1 to 8 bits decodes. Where no exact program exists, values are rounded to nearest even in the compute
    type and the program says ``lossless=False``. Programs of shipped types are read from the package, others searched
    for (seconds) and remembered for the process.

    Args:
        element: the declared type; its values decide, not its name.
        compute: ``"float16"`` or ``"bfloat16"``.
        features: of the device; ``"cvt.e4m3x2"`` where it converts fp8_e4m3fn itself. ``"table.stride256"`` asks for
            tables in shared memory that take twice the address range and fewer operations. Others do not matter.

    Raises:
        DecodeError: another compute type or width, or a type without finite values.
        LosslessError: a finite value rounds to infinity in the compute type.
    """
    if compute not in LANE_FORMATS:
        raise DecodeError(
            f"no decode to {compute}",
            at=element.name,
            hint=f"compute types with a decode: {', '.join(LANE_FORMATS)}",
        )
    found = _derived(ValueSet.of(element), compute, features & FEATURES)
    return replace(found, element=element.name)


@lru_cache(maxsize=1024)
def _derived(values: ValueSet, compute: str, features: frozenset[str]) -> DecodeProgram:
    """The plain program, or a cheaper one that the features allow: they add candidates that need no search."""
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
    exact = _cheapest(Target(values, fmt))
    if exact is not None:
        return exact
    rounded = _cheapest(Target(values.rounded(fmt), fmt, lossless=False))
    if rounded is None:
        raise DecodeError(f"no decode to {compute} was found", at=values.name)
    return rounded


def lookups(target: Target, features: frozenset[str]) -> tuple[DecodeProgram, ...]:
    """Candidates that need no search; with more features there are more."""
    return (*special_programs(target, features), *table_programs(target, features))


def _cheapest(target: Target) -> DecodeProgram | None:
    """The cheapest candidate; of equally cheap ones the first."""
    best = min(lookups(target, frozenset()), key=cycles, default=None)
    for program in _masked(target, cycles(best) if best else float("inf")):
        best = program
    return best


def _masked(target: Target, below: float) -> Iterator[DecodeProgram]:
    """Programs of mask forms, each cheaper than ``below`` and than the one before."""
    forms = search(target.values, target.fmt)
    for family in families(target.values, forms, target.fmt):
        first = family.forms[0]
        beside = deferral(first.deferred) + (REGISTERS * CYCLES["fma"] if first.fma else 0.0)
        placed = place(family.forms, target.bits, below - beside)
        if placed is not None:
            below = placed.cost + beside
            yield mask_program(target, family.name, placed.fields)
