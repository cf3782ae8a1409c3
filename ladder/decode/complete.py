"""From raw forms to the families that may share one program.

Raw forms leave an affine map behind. A family either leaves it to the accumulators (all members share beta, their
powers of two may differ) or finishes every lane with one exact fma, after which all members share one factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ladder.decode.exact import SIGN
from ladder.decode.form import Form
from ladder.decode.lanes import BFLOAT16, FloatArray, LaneFormat
from ladder.decode.program import Affine
from ladder.decode.values import ValueSet

#: largest |beta| / max|value| left to the accumulators; a magic constant is 1024 times as large and costs three digits
ZERO_LIMIT = 2
#: bfloat16 lanes below this magnitude could vanish in a float32 product with an activation
BFLOAT16_FLOOR = 2.0**-60
FLOAT32_MAX = Fraction((1 << 24) - 1) * (1 << 104)
#: exponents tried for a factor that is left to the accumulators
EXPONENTS = sorted(range(-150, 151), key=lambda k: (abs(k), -k))
#: an exponent that no unit has
SPAN_END = 1 << 20

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Family:
    """Forms that may stand side by side in one program, and what people call them."""

    name: str
    forms: tuple[Form, ...]


def is_float32(x: Fraction) -> bool:
    """Whether an accumulator can apply ``x`` without rounding it."""
    return abs(x) <= FLOAT32_MAX and Fraction(float(np.float32(float(x)))) == x


def is_power_of_two(x: Fraction) -> bool:
    """Whether ``x`` is a power of two, up to its sign."""
    x = abs(x)
    return (
        x.numerator & (x.numerator - 1) == 0 and x.denominator & (x.denominator - 1) == 0 and x != 0
    )


def units(values: ValueSet, fmt: LaneFormat) -> Iterator[Fraction]:
    """Powers of two ``u`` such that every ``value/u`` is a lane value that no float32 product loses, nearest to 1 first."""
    v = np.array([float(x) for x in values.values])
    for k in EXPONENTS:
        with np.errstate(over="ignore", under="ignore"):
            lane = np.ldexp(v, -k)
            exact = np.array_equal(np.ldexp(lane, k), v) and np.array_equal(fmt.round(lane), lane)
        if exact and not vanishes(lane, 2.0**k, fmt):
            yield Fraction(2) ** k


def vanishes(lane: FloatArray, factor: float, fmt: LaneFormat) -> bool:
    """Whether some lane value is so small, with ``factor`` to come in float32, that a product before it may be lost."""
    small = (lane != 0) & (np.abs(lane) < BFLOAT16_FLOOR)
    return fmt is BFLOAT16 and abs(factor) > 1 and bool(small.any())


def families(values: ValueSet, forms: list[Form], fmt: LaneFormat) -> Iterator[Family]:
    """Every family worth placing."""
    yield from _bare(values, forms, fmt)
    yield from _with_fma(values, forms, fmt)


def _bare(values: ValueSet, forms: list[Form], fmt: LaneFormat) -> Iterator[Family]:
    """Families that defer their factors and one common, small zero."""
    by_beta: dict[Fraction, list[Form]] = {}
    v = np.array([float(x) for x in values.values])
    for form in forms:
        alpha, beta = form.deferred.alpha, form.deferred.beta
        if abs(beta) > ZERO_LIMIT * values.largest or not (is_float32(alpha) and is_float32(beta)):
            continue
        if not vanishes((v - float(beta)) / float(alpha), float(alpha), fmt):
            by_beta.setdefault(beta, []).append(form)
    offered: list[frozenset[tuple[int, ...]]] = []
    for beta in sorted(by_beta, key=lambda b: (abs(b), b)):
        powers = [form for form in by_beta[beta] if is_power_of_two(form.deferred.alpha)]
        group = _one_per_place(powers or by_beta[beta])
        reach = frozenset(form.positions for form in group)
        if not any(reach <= other for other in offered):
            offered.append(reach)
            yield Family("mask", group)


def _one_per_place(forms: list[Form]) -> tuple[Form, ...]:
    """For each set of positions the form whose factor is nearest to 1."""
    unique: dict[tuple[int, ...], Form] = {}
    for form in sorted(forms, key=lambda f: max(f.deferred.alpha, 1 / f.deferred.alpha)):
        unique.setdefault(form.positions, form)
    return tuple(unique.values())


def _with_fma(values: ValueSet, forms: list[Form], fmt: LaneFormat) -> Iterator[Family]:
    """Families whose lanes are finished by one fma: the one with most forms, and the one that leaves nothing behind."""
    spans = _Spans.of(forms, fmt)
    most, widest = 0, None
    exact: tuple[Form, ...] = ()
    for unit in units(values, fmt):
        count = spans.places(unit)
        if count > most:
            most, widest = count, unit
        if unit == 1 and count:
            exact = _finished(forms, unit, fmt)
    group = exact if widest in (None, 1) else _finished(forms, Fraction(widest or 1), fmt)
    for found in dict.fromkeys((group, exact)):
        # Of equally cheap programs the first is taken. Few maps before the fma let kernels do without it (ladder.decode.bare).
        plain = tuple(f for f in found if SIGN not in f.positions) if fmt is BFLOAT16 else found
        for part in dict.fromkeys((plain, found)):
            if part:
                yield Family("mask+fma", part)


def _finished(forms: list[Form], unit: Fraction, fmt: LaneFormat) -> tuple[Form, ...]:
    return _one_per_place([f for form in forms if (f := _finish(form, unit, fmt))])


@dataclass(frozen=True, slots=True)
class _Spans:
    """For which exponents of the unit the fma of each form has constants of the lane format: ``low .. high``.

    Arrays of one length; ``own`` is the unit's exponent that needs no fma (SPAN_END where there is none), ``place`` numbers
    the sets of positions.
    """

    low: Index
    high: Index
    own: Index
    place: Index

    @classmethod
    def of(cls, forms: list[Form], fmt: LaneFormat) -> _Spans:
        """The spans of all forms."""
        places = {p: i for i, p in enumerate(dict.fromkeys(form.positions for form in forms))}
        spans = [_span(form.deferred, fmt) for form in forms]
        low, high, own = (np.array([span[i] for span in spans], np.int64) for i in range(3))
        return cls(low, high, own, np.array([places[f.positions] for f in forms], np.int64))

    def places(self, unit: Fraction) -> int:
        """Number of sets of positions with a form whose lanes one fma makes ``value/unit``."""
        k = unit.numerator.bit_length() - unit.denominator.bit_length()
        fits = (self.low <= k) & (k <= self.high) & (self.own != k)
        return len(np.unique(self.place[fits]))


def _span(deferred: Affine, fmt: LaneFormat) -> tuple[int, int, int]:
    """Exponents ``low .. high`` of units that divide factor and zero into the lane format, and the unit equal to both."""
    low, high = -SPAN_END, SPAN_END
    for x in (deferred.alpha, deferred.beta):
        if x.denominator & (x.denominator - 1):
            return 0, -1, SPAN_END
        if x:
            size, shift = abs(x.numerator), x.denominator.bit_length() - 1
            top = size.bit_length() - 1 - shift
            bottom = (size & -size).bit_length() - 1 - shift
            if top - bottom > fmt.mantissa:
                return 0, -1, SPAN_END
            low = max(low, top - fmt.bias)
            high = min(high, bottom - (1 - fmt.bias - fmt.mantissa))
    own = SPAN_END
    if not deferred.beta and is_power_of_two(deferred.alpha):
        own = deferred.alpha.numerator.bit_length() - deferred.alpha.denominator.bit_length()
    return low, high, own


def _finish(form: Form, unit: Fraction, fmt: LaneFormat) -> Form | None:
    """The form with the fma that makes its lanes ``value/unit``, or None where a constant is no lane value."""
    factor, addend = form.deferred.alpha / unit, form.deferred.beta / unit
    if form.deferred == Affine(unit) or not (fmt.holds(factor) and fmt.holds(addend)):
        return None
    minus_zero = 1 << 15
    fma = fmt.pattern(factor), fmt.pattern(addend) if addend else minus_zero
    return replace(form, deferred=Affine(unit), fma=fma, bare=form.deferred)
