"""The proof of a decode program, by its structure, by dependence and by running every code in every place.

1. Every bit of the packed words belongs to exactly one code.
2. Each fragment lane depends on the bits of its own code only (:mod:`ladder.decode.taint`).
3. Each code, in each place, decodes to its declared value, in rational numbers.

From 2, one surrounding per (place, code) is enough for 3; several random ones are run all the same.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ladder.decode.geometry import LANES, REGISTERS, WORDS, steps_of
from ladder.decode.lanes import FORMATS, LaneFormat, Words
from ladder.decode.machine import fragments
from ladder.decode.program import Affine, DecodeProgram, Slot
from ladder.decode.reference import lane_patterns
from ladder.decode.taint import analyse
from ladder.decode.values import Element
from ladder.errors import DecodeError

#: surroundings tried for each code and place
ROUNDS = 4


def prove(program: DecodeProgram, element: Element) -> int:
    """Prove that ``program`` decodes ``element``; returns the number of (place, code) pairs that were checked.

    Lossless programs must give each declared value exactly, others the declared value rounded to nearest even in the
    compute type. Codes that mean NaN or infinity and are not listed as undefined must give that.

    Raises:
        DecodeError: the program is wrong, with the first place and code that show it.
    """
    _check_shape(program, element)
    _check_cover(program)
    _check_dependence(program)
    return _check_values(program, element)


def _fail(program: DecodeProgram, what: str) -> DecodeError:
    return DecodeError(
        what,
        at=f"decode of {program.element} to {program.compute} ({program.form})",
        hint="the program was not made for this type, or was changed",
    )


def _check_shape(program: DecodeProgram, element: Element) -> None:
    size = 1 << program.bits
    good = (
        program.bits == element.bits
        and program.compute in FORMATS
        and program.steps == steps_of(program.bits, program.lanes)
        and program.words == WORDS[program.bits]
        and len(program.outputs) == len(program.slots) == len(program.step_class) == program.steps
        and all(len(step) == REGISTERS for step in program.outputs)
        and all(
            len(step) == REGISTERS and all(len(p) == program.lanes for p in step)
            for step in program.slots
        )
        and all(sorted(table) == list(range(size)) for table in program.relabels)
        and all(0 <= c < program.classes for c in program.step_class)
    )
    if not good:
        raise _fail(program, "shape, relabelling or classes do not fit the width")
    if program.table and not _is_power_of_two(len(program.table.entries)):
        raise _fail(program, "the number of table entries is no power of two")
    known = {c for c in range(size) if math.isfinite(element.values[c]) and c not in element.unused}
    if known & set(program.undefined):
        raise _fail(
            program,
            f"codes {sorted(known & set(program.undefined))} have values but are listed as undefined",
        )


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _all_slots(program: DecodeProgram) -> list[Slot]:
    return [slot for step in program.slots for register in step for slot in register]


def _check_cover(program: DecodeProgram) -> None:
    taken = sorted(p for slot in _all_slots(program) for p in slot.bits)
    if taken != list(range(32 * program.words)):
        raise _fail(program, "the codes do not cover every packed bit exactly once")
    if any(
        len(slot.bits) != program.bits or not 0 <= slot.relabel < len(program.relabels)
        for slot in _all_slots(program)
    ):
        raise _fail(program, "a slot has another width, or a relabelling that does not exist")


def _check_dependence(program: DecodeProgram) -> None:
    registers = analyse(program)
    for s, step in enumerate(program.outputs):
        for i, register in enumerate(step):
            if register not in registers:
                raise _fail(program, f"register {register} of step {s} is never written")
            for lane, slot in enumerate(program.slots[s][i]):
                own = sum(1 << p for p in slot.bits)
                width = program.lane_bits
                foreign = registers[register].union(width * lane, width) & ~own
                if foreign:
                    raise _fail(
                        program,
                        f"step {s}, register a{i}, lane {lane} depends on packed bit {foreign.bit_length() - 1}, "
                        "which belongs to another code",
                    )


def _check_values(program: DecodeProgram, element: Element) -> int:
    rng = np.random.default_rng(0)
    size, slots = 1 << program.bits, _all_slots(program)
    warps = ROUNDS * max(1, size // LANES)
    repeated = np.tile(np.arange(size), warps * LANES // size)
    codes = np.stack([rng.permutation(repeated) for _ in slots], axis=-1)
    words = _pack(program, slots, codes).reshape(warps, LANES, program.words)
    registers = fragments(program, np.swapaxes(words, 1, 2))
    lanes = np.moveaxis(lane_patterns(program, registers), 3, 1)
    patterns = lanes.reshape(warps * LANES, len(slots))
    want = expected(program, element)
    #: what was found right already, of a code and the lane that it gives, in a place with the same deferred map
    right: dict[Affine, set[int]] = {}
    for place in range(len(slots)):
        affine = _affine(program, place)
        known = right.setdefault(affine, set())
        pairs = np.unique(codes[:, place].astype(np.int64) << 16 | patterns[:, place])
        fresh = [pair for pair in pairs.tolist() if pair not in known]
        known.update(fresh)
        for code, pattern in (divmod(pair, 1 << 16) for pair in fresh):
            if code in want and not _equal(program, affine, pattern, want[code]):
                lane = FORMATS[program.compute].table[pattern]
                raise _fail(
                    program,
                    f"code {code} in place {place} gives lane {lane!r} (0x{pattern:04x}), "
                    f"so {affine.alpha}*lane + {affine.beta}, instead of {want[code]}",
                )
    return len(slots) * len(want)


def _pack(program: DecodeProgram, slots: list[Slot], codes: np.ndarray) -> Words:
    """Codes ``[samples, places]`` into words ``uint32[samples, words]``, bit by bit and without the packer's help."""
    words = np.zeros((len(codes), program.words), np.uint32)
    for place, slot in enumerate(slots):
        stored = np.asarray(program.relabels[slot.relabel], np.uint32)[codes[:, place]]
        for i, p in enumerate(slot.bits):
            words[:, p // 32] |= (stored >> np.uint32(i) & np.uint32(1)) << np.uint32(p % 32)
    return words


def _affine(program: DecodeProgram, place: int) -> Affine:
    step, register = divmod(place // program.lanes, REGISTERS)
    return program.deferred(step, register)


def expected(program: DecodeProgram, element: Element) -> dict[int, Fraction | float]:
    """What each defined code has to give: a rational number, or NaN or an infinity."""
    fmt = FORMATS[program.compute]
    want: dict[int, Fraction | float] = {}
    for code, declared in enumerate(element.values):
        if code in element.unused or code in program.undefined:
            continue
        value = float(declared)
        if not program.lossless and isinstance(fmt, LaneFormat):
            value = float(fmt.round(np.float64(value)))
        want[code] = Fraction(value) if math.isfinite(value) else value
    return want


def _equal(program: DecodeProgram, affine: Affine, pattern: int, want: Fraction | float) -> bool:
    lane = float(FORMATS[program.compute].table[pattern])
    if isinstance(want, Fraction):
        return math.isfinite(lane) and affine.alpha * Fraction(lane) + affine.beta == want
    if math.isnan(want):
        return math.isnan(lane)
    return math.isinf(lane) and lane * float(affine.alpha) == want
