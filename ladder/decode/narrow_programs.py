"""Decode programs for lanes of 8 bits and of 4, four or eight to a register: integers and the 8-bit floats.

Lanes are so few that every candidate is tried in exact numbers: each set of lane bits, each constant on the others, each
factor. What is left to the accumulators is one factor of all lanes, never a zero: products of warpgroups keep one set of
accumulators and no sums of activations. Values that no mask makes are looked up by ``prmt``, up to 16 of them, where lanes
are bytes.

    int4 -> int4:            w                                               the codes are the lanes
    int4 -> int8:            w & 0xf0f0f0f0, (w << 4) & 0xf0f0f0f0           two's complement times 16
    fp4_e2m1 -> fp8_e4m3fn:  the exponent spliced, 2^-6 times the value
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

from ladder.decode.assemble import Target, mask_program, program_of
from ladder.decode.build import Builder, packed_bits
from ladder.decode.complete import is_float32, is_power_of_two
from ladder.decode.cost import cycles, deferral
from ladder.decode.cover import place
from ladder.decode.exact import carry, complete, lanes_of, spread
from ladder.decode.form import Form
from ladder.decode.fragment import Decoded
from ladder.decode.geometry import WORDS
from ladder.decode.lanes import NarrowFormat
from ladder.decode.program import Affine, Const, DecodeProgram, Slot
from ladder.decode.tables import nibble_fields
from ladder.decode.values import ValueSet
from ladder.decode.work import Work
from ladder.errors import LosslessError

#: width of lanes that prmt fills
BYTE = 8
#: name of the form whose codes fill their lanes, by the width of a lane
WHOLE = {BYTE: "bytes", 4: "nibbles"}
#: steps of all placements of one search (1 us each)
PLACE_WORK = 200_000
#: factors for which forms are placed, those nearest to 1
MOST_FACTORS = 8
#: codes that prmt looks up: 8 entries of a pair of registers, and as many of another
NIBBLE = 4
#: truth table of lop3: a ^ b
XOR = 0x3C
#: flips the bit of every nibble that tells the two tables apart
OTHER_TABLE = 0x88888888


def narrow_program(values: ValueSet, fmt: NarrowFormat) -> DecodeProgram:
    """The cheapest program that decodes exactly, up to a factor that the accumulators apply.

    Raises:
        LosslessError: the format does not hold the values, whatever the factor, or no program makes them.
    """
    target = Target(values, fmt)
    best = min(_tables(target), key=cycles, default=None)
    work = Work(PLACE_WORK)
    for forms in _families(target):
        beside = deferral(forms[0].deferred)
        below = float("inf") if best is None else cycles(best)
        part = work.half()
        placed = place(forms, values.bits, below - beside, part, ring=fmt.bits)
        work.settle(part)
        if placed is not None:
            name = WHOLE[fmt.bits] if values.bits == fmt.bits else "mask"
            best = mask_program(target, name, placed.fields)
    if best is None:
        raise _refusal(target)
    return best


def _refusal(target: Target[NarrowFormat]) -> LosslessError:
    values, fmt = target.values, target.fmt
    held = {Fraction(x) for x in fmt.table[np.isfinite(fmt.table)].tolist()}
    lost = next((c for c, v in values.by_code().items() if v not in held), None)
    if lost is None or any(True for _ in _factors(target)):
        what = f"no program decodes {values.name} to {fmt.name}, though it holds the values"
    else:
        what = f"code {lost} of {values.name} means {float(values.by_code()[lost])!r}, which {fmt.name} does not hold"
    return LosslessError(
        what,
        at=f"decode of {values.name} to {fmt.name}",
        hint=f"use float16 or bfloat16 activations, or a weight type whose values are exact in {fmt.bits} bits",
    )


# ---------------------------------------------------------------- masks


def _families(target: Target[NarrowFormat]) -> list[tuple[Form, ...]]:
    """Forms that share a factor, one for each set of positions; factors that are powers of two and near 1 first."""
    by_factor: dict[Fraction, dict[tuple[int, ...], Form]] = {}
    for form in narrow_forms(target.values, target.fmt):
        by_factor.setdefault(form.deferred.alpha, {}).setdefault(form.positions, form)
    ordered = sorted(by_factor, key=_distance)[:MOST_FACTORS]
    return [tuple(by_factor[alpha].values()) for alpha in ordered]


def _distance(alpha: Fraction) -> tuple[bool, bool, Fraction]:
    """How unlike 1 a factor is: others than powers of two come last, and of those alike negative ones."""
    return not is_power_of_two(alpha), alpha < 0, max(abs(alpha), 1 / abs(alpha))


def narrow_forms(values: ValueSet, fmt: NarrowFormat) -> Iterator[Form]:
    """Every form of a value set in narrow lanes that defers a factor alone; none where its codes are wider than a lane."""
    numbers, unit = _integers(fmt)
    goal = _Goal.of(values)
    for positions in combinations(range(fmt.bits), values.bits):
        others = tuple(p for p in range(fmt.bits) if p not in positions)
        for chosen in range(1 << len(others)):
            constant = spread(others, chosen)
            lanes = lanes_of(positions, constant)
            for alpha, stored in _assignments(goal, [numbers[lane] for lane in lanes], unit):
                meanings = [math.copysign(1, alpha) * float(fmt.table[lane]) for lane in lanes]
                carried = carry(values, stored, meanings)
                yield Form(
                    positions, constant, complete(stored, values.size), Affine(alpha), None, carried
                )


@cache
def _integers(fmt: NarrowFormat) -> tuple[list[int | None], int]:
    """The lanes of a format in its smallest unit, None for those that are no number, and how many units make 1."""
    finite = fmt.table[np.isfinite(fmt.table)]
    unit = math.lcm(*(Fraction(x).denominator for x in finite.tolist()))
    return [int(x * unit) if math.isfinite(x) else None for x in fmt.table.tolist()], unit


@dataclass(frozen=True, slots=True)
class _Goal:
    """What lanes have to give: the value of each code in integers, and the one of largest magnitude, also as a number."""

    codes: tuple[int, ...]
    numerators: tuple[int, ...]
    top: int
    largest: Fraction

    @classmethod
    def of(cls, values: ValueSet) -> _Goal:
        """The goal of a value set."""
        largest = max(values.values, key=abs)
        scale = math.lcm(*(value.denominator for value in values.values))
        numerators = tuple(int(value * scale) for value in values.values)
        return cls(tuple(values.codes), numerators, int(largest * scale), largest)


def _assignments(
    goal: _Goal, lanes: Sequence[int | None], unit: int
) -> Iterator[tuple[Fraction, dict[int, int]]]:
    """``alpha`` and ``code -> lane number`` with ``value = alpha * lane``, for every alpha that there is."""
    if not goal.top:
        return
    places: dict[int, list[int]] = {}
    for number, lane in enumerate(lanes):
        if lane is not None:
            places.setdefault(lane, []).append(number)
    for lane in places:
        stored = _assign(goal, lane, places) if lane else None
        if stored is not None and is_float32(goal.largest * unit / lane):
            yield goal.largest * unit / lane, stored


def _assign(goal: _Goal, lane: int, places: Mapping[int, Sequence[int]]) -> dict[int, int] | None:
    """A lane of its own for every code where ``lane`` is that of the largest, or None where some code has none."""
    stored: dict[int, int] = {}
    taken: dict[int, int] = {}
    for code, numerator in zip(goal.codes, goal.numerators, strict=True):
        number, rest = divmod(numerator * lane, goal.top)
        found = places.get(number, ()) if not rest else ()
        at = taken.get(number, 0)
        if at >= len(found):
            return None
        stored[code], taken[number] = found[at], at + 1
    return stored


# ---------------------------------------------------------------- tables in registers


def _factors(target: Target[NarrowFormat]) -> Iterator[tuple[Fraction, dict[int, int]]]:
    """Factors with which the format holds all values, and a lane for each code; several codes may share a lane."""
    values, fmt = target.values, target.fmt
    largest = max(values.values, key=abs)
    lanes: dict[Fraction, int] = {}
    for pattern, x in enumerate(fmt.table.tolist()):
        if np.isfinite(x):
            lanes.setdefault(Fraction(x), pattern)
    alphas = [largest / lane for lane in lanes if lane] if largest else [Fraction(1)]
    for alpha in sorted(filter(is_float32, alphas), key=_distance):
        if all(value / alpha in lanes for value in values.values):
            yield alpha, {c: lanes[v / alpha] for c, v in values.by_code().items()}


def _tables(target: Target[NarrowFormat]) -> Iterator[DecodeProgram]:
    """Lookups of bytes, for up to 4 bits."""
    if target.bits > NIBBLE or target.fmt.bits != BYTE:
        return
    for alpha, lanes in _factors(target):
        found = _lookup(target, alpha, lanes)
        if found is not None:
            yield found
            return


def _lookup(
    target: Target[NarrowFormat], alpha: Fraction, lanes: dict[int, int]
) -> DecodeProgram | None:
    """Nibbles of a register select the bytes of four codes: from 8 entries, or of 4 bits from twice as many.

    With 16 entries two that share the low bits of their codes have to agree in their top bit (see :func:`_pairs`).
    """
    order = list(range(target.values.size)) if target.bits < NIBBLE else _pairs(target, lanes)
    if order is None:
        return None
    stored = [0] * target.values.size
    for place_, code in enumerate(order):
        stored[code] = place_
    entries = [lanes.get(code, 0) for code in order]
    builder = Builder(WORDS[target.bits], lane_bits=32)
    registers = []
    for selector, bits in _selectors(target, builder):
        codes = [bits[i : i + target.bits] for i in range(0, len(bits), target.bits)]
        for quad in (codes[:4], codes[4:]):
            turned = selector
            if quad[0] is not codes[0]:
                turned = builder.emit("shr", selector, imm=16)
            register = _look_up(builder, entries, turned)
            registers.append(Decoded(register, tuple(Slot(code) for code in quad), Affine(alpha)))
    return program_of(target, "byte table", builder, registers, (tuple(stored),))


def _selectors(
    target: Target[NarrowFormat], builder: Builder
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Registers of eight codes in nibbles, and the packed bits of those codes."""
    if target.bits == NIBBLE:
        for word in range(WORDS[NIBBLE]):
            yield word, tuple(range(32 * word, 32 * word + 32))
        return
    fields = nibble_fields(target.bits)
    builder.expect(fields)
    for field in fields:
        selector, places = builder.gather(field, Const(0))
        yield selector, packed_bits(places, field.form.positions)


def _look_up(builder: Builder, entries: Sequence[int], selector: int) -> int:
    """The bytes that four nibbles select.

    Of 16 entries: with bit 3 of a nibble set, prmt gives eight copies of the entry's top bit instead (PTX ISA, prmt). The
    first table's answer is then 0x00 or 0xff, the second's the entry with that taken off; without bit 3 the second's is 0,
    since its entries have no top bit. Together they are the entry.
    """
    first = _operands(entries[:8])
    if len(entries) <= 8:
        return builder.emit("prmt", *first, selector)
    above = [
        high ^ (0xFF if low & 0x80 else 0)
        for low, high in zip(entries[:8], entries[8:], strict=True)
    ]
    other = builder.emit("lop3", selector, Const(OTHER_TABLE), Const(0), imm=XOR)
    low = builder.emit("prmt", *first, selector)
    high = builder.emit("prmt", *_operands(above), other)
    return builder.emit("lop3", low, high, Const(0), imm=XOR)


def _operands(entries: Sequence[int]) -> tuple[Const, Const]:
    """Up to eight bytes as the two operands of a prmt."""
    padded = [*entries, *([entries[0]] * (8 - len(entries)))]
    first, second = (sum(b << 8 * i for i, b in enumerate(padded[k : k + 4])) for k in (0, 4))
    return Const(first), Const(second)


def _pairs(target: Target[NarrowFormat], lanes: dict[int, int]) -> list[int] | None:
    """An order of 16 codes in which entries i and i + 8 agree in their top bit; None where their number is odd.

    Where a format has a zero of either sign, one of them makes the number even.
    """
    codes = range(target.values.size)
    zero = next((c for c in codes if c in lanes and target.fmt.table[lanes[c]] == 0), None)
    if sum(lanes.get(c, 0) >> 7 for c in codes) % 2:
        if zero is None or target.fmt.table[0x80] != 0:
            return None
        lanes[zero] ^= 0x80
    negative = [c for c in codes if lanes.get(c, 0) >> 7]
    others = [c for c in codes if c not in negative]
    return [*negative[::2], *others[::2], *negative[1::2], *others[1::2]]
