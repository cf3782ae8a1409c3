"""Masks, registers and C arithmetic over lanes: what translated code calls for plain statements.

A mask is None (all lanes), an array of truth values, or False (no lane).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ladder.emulator.program import DTYPES
from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import LANES, Array, Mask, Warp


def narrow(mask: Mask, condition: Any) -> Mask | Literal[False]:
    """The lanes of ``mask`` for which a condition holds."""
    if not isinstance(condition, np.ndarray):
        return mask if condition else False
    if mask is None:
        count = np.count_nonzero(condition)
        if count == len(condition):
            return None
        return condition if count else False
    both: Array = condition & mask
    count = np.count_nonzero(both)
    if not count:
        return False
    return mask if count == np.count_nonzero(mask) else both


def merge(mask: Mask, new: Array, old: Array | None) -> Array:
    """A register after a write by some lanes."""
    if mask is None:
        return new
    return np.where(mask, new, new.dtype.type(0) if old is None else old)


def also(mask: Mask, old: Any) -> Any:
    """Which lanes of a register hold a value after a write by some: None, True or a mask."""
    if mask is None or old is True:
        return True
    together = mask if old is None else old | mask
    return True if together.all() else together


_NAN = {
    DTYPES["float32"]: np.array(0x7FFFFFFF, np.uint32).view(np.float32),
    DTYPES["float16"]: np.array(0x7FFF, np.uint16).view(np.float16),
    DTYPES["bfloat16"]: np.array(0x7FFF, np.uint16).view(DTYPES["bfloat16"]),
}


def canonical(x: Any) -> Any:
    """What arithmetic or a narrowing conversion gives: NaNs without a payload (PTX ISA, "Floating Point Instructions").

    NumPy keeps the payload of an operand; the hardware's add, mul and div write 0x7fffffff.
    """
    if x.dtype not in _NAN:
        return x
    wrong = x != x  # noqa: PLR0124  true for NaN only
    return np.where(wrong, _NAN[x.dtype], x) if np.count_nonzero(wrong) else x


def inside(site: Site, registers: list[Any], index: int) -> int:
    """Refuse a register index outside its buffer."""
    if not 0 <= index < len(registers):
        raise Fault(f"bounds: register {index} of {len(registers)}", at=site)
    return index


def register(
    warp: Warp, mask: Mask, site: Site, values: list[Any], held: list[Any], index: int
) -> Array:
    """Read a register that may be unset in some lanes."""
    state = held[inside(site, values, index)]
    if state is not True:
        missing = np.ones(LANES, np.bool_) if state is None else ~state
        if mask is not None:
            missing = missing & mask
        if missing.any():
            raise Fault(
                f"uninitialised: lane {int(np.argmax(missing))} of warp {warp.index} reads register "
                f"{site.buffer}[{index}] before it is set",
                at=site,
                hint="set it on every path before its first use",
            )
        if state is None:
            raise Fault(f"uninitialised: register {site.buffer}[{index}]", at=site)
    value: Array = values[index]
    return value


def gather(
    warp: Warp,
    mask: Mask,
    site: Site,
    values: list[Any],
    held: list[Any],
    index: Array,
) -> Array:
    """Read registers by an index that differs between lanes."""
    lanes = np.arange(LANES) if mask is None else np.flatnonzero(mask)
    out: Array | None = None
    for number in np.unique(index[lanes]).tolist():
        here = np.zeros(LANES, np.bool_)
        here[lanes] = index[lanes] == number
        value = register(warp, here, site, values, held, number)
        out = value if out is None else np.where(here, value, out)
    if out is None:
        raise Fault("unsupported: no lane reads a register", at=site)
    return out


def scatter(
    _warp: Warp,
    mask: Mask,
    site: Site,
    values: list[Any],
    held: list[Any],
    index: Array,
    new: Array,
) -> None:
    """Write registers by an index that differs between lanes."""
    lanes = np.arange(LANES) if mask is None else np.flatnonzero(mask)
    for number in np.unique(index[lanes]).tolist():
        here = np.zeros(LANES, np.bool_)
        here[lanes] = index[lanes] == number
        place = inside(site, values, number)
        values[place] = merge(here, new, values[place])
        held[place] = also(here, held[place])


def tdiv(a: Any, b: Any) -> Any:
    """C division of integers, towards zero."""
    quotient = a // b
    if np.all(a >= 0) and np.all(b > 0):
        return quotient
    rest = a - quotient * b
    return quotient + ((rest != 0) & ((a < 0) != (b < 0)))


def tmod(a: Any, b: Any) -> Any:
    """C remainder of integers, with the sign of ``a``."""
    if isinstance(a, int) and isinstance(b, int):
        return a - tdiv(a, b) * b
    if np.all(a >= 0) and np.all(b > 0):
        return a % b
    return a - tdiv(a, b) * b


def fdiv(a: Any, b: Any) -> Any:
    """Division of integers towards minus infinity."""
    return a // b


def fmod(a: Any, b: Any) -> Any:
    """Remainder of integers with the sign of ``b``."""
    return a % b


def uniform(function: Any, *values: Any) -> Any:
    """Apply a function of lane vectors to one value of each operand; immediates are Python integers."""
    result: Any = function(*(np.atleast_1d(v) if isinstance(v, np.generic) else v for v in values))
    return result[0]
