"""The numbers by which weights are scaled in registers: which there are, and how one is made of another.

A lane's fma ``w = lane * S + Z`` takes an S for each factor and a Z for each zero that decoding defers. Both lanes of a register
hold codes of one row, and the fma can read either half of a register for both of its lanes: the numbers of rows g and g+8
therefore share registers, those of rows g in the low halves.

The first S is made of the scale in float32 and rounded. Numbers that are a power of two times an S are products with that power
in the compute type, one instruction for both rows: exact, unless they are subnormal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ladder.decode.complete import is_power_of_two
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import Affine

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: a lane of float16 that is no larger vanishes with an S that is subnormal: their product rounds to 0
_VANISHING = Fraction(1, 1 << 11)

#: a number for rows g, and one for rows g+8
Pair = tuple[Fraction, Fraction]


class Source(NamedTuple):
    """Numbers as products: the ``register`` with S, and the powers of two that its halves are multiplied by."""

    register: int
    ratio: Pair


@dataclass(frozen=True, slots=True)
class ScaleLanes:
    """The registers with a group's numbers.

    Attributes:
        factors: the alpha of each register with S, the largest ones first.
        offsets: the beta of each register with Z; none where no fma adds anything.
    """

    factors: tuple[Pair, ...]
    offsets: tuple[Pair, ...]

    @property
    def registers(self) -> int:
        """Registers of a lane."""
        return len(self.factors) + len(self.offsets)

    def factor_of(self, affine: Affine, half: int) -> int:
        """The register whose ``half`` (0: low, 1: high) holds the S of what is deferred."""
        return next(i for i, pair in enumerate(self.factors) if pair[half] == affine.alpha)

    def offset_of(self, affine: Affine, half: int) -> int | None:
        """The register whose ``half`` holds the Z of what is deferred; None where nothing is added."""
        found = (i for i, pair in enumerate(self.offsets) if pair[half] == affine.beta)
        return next(found, None)

    def source(self, place: int, compute: str) -> Source | None:
        """How the numbers of a register are made of an S before it; None for the first, and where no product is exact.

        Args:
            place: of the register, factors first; of an offset only where no zero points are taken off.
            compute: type of the lanes.
        """
        fmt, pair = LANE_FORMATS.get(compute), (*self.factors, *self.offsets)[place]
        if fmt is None:
            return None  # codes, not numbers: the plan checker says so
        for register, alphas in enumerate(self.factors[:place]):
            ratio = pair[0] / alphas[0], pair[1] / alphas[1]
            if all(x == 0 or (is_power_of_two(x) and fmt.holds(x)) for x in ratio):
                return Source(register, ratio)
        return None


def lanes_of(plan: Plan) -> ScaleLanes:
    """The registers of a plan that scales weights in registers."""
    return scale_lanes(plan.deferred, has_zeros=takes_zeros(plan))


def takes_zeros(plan: Plan) -> bool:
    """Whether Z takes zero points off."""
    return plan.packing.zero_dtype is not None and plan.zero != "register"


class ZeroLanes(NamedTuple):
    """How the Z of a register are made of packed zero points: ``Z = S * (zeros * factor + addend)``, S of ``register``."""

    register: int
    factor: Pair
    addend: Pair


def zero_lanes(plan: Plan) -> tuple[ZeroLanes, ...] | None:
    """How offsets are made of zero points as they are packed, one entry for each register; None where they go by float32.

    Zero points that are codes lie as two float16 beside each other. Their difference to beta, over the alpha of some S, has to
    be a float16 for every code. S is exact with scales of float16, unless it is subnormal, so that Z is rounded once.
    """
    packing = plan.packing
    dtypes = (packing.scale_dtype, packing.zero_dtype, plan.op.activation.dtype)
    if not takes_zeros(plan) or packing.weight.zero != "integer" or not plan.has_groups:
        return None
    if any(dtype != np.float16 for dtype in dtypes):
        return None
    lanes, values = lanes_of(plan), packing.element.values
    codes = tuple(Fraction(float(v)) for v in values[np.isfinite(values)])
    ways = [
        [
            ZeroLanes(register, (-1 / g, -1 / h), (betas[0] / g, betas[1] / h))
            for register, (g, h) in enumerate(lanes.factors)
        ]
        for betas in lanes.offsets
    ]
    found = [next((way for way in some if _is_exact(way, codes)), None) for some in ways]
    made = tuple(way for way in found if way is not None)
    return made if len(made) == len(found) else None


def _is_exact(way: ZeroLanes, codes: tuple[Fraction, ...]) -> bool:
    """Whether the fma of either row has numbers of float16, for every code."""
    holds = LANE_FORMATS["float16"].holds
    rows = zip(way.factor, way.addend, strict=True)
    return all(holds(f) and holds(a) and all(holds(v * f + a) for v in codes) for f, a in rows)


def own_numbers(plan: Plan) -> int:
    """Registers with numbers that are made of scales and zero points, not of other numbers."""
    lanes, compute = lanes_of(plan), plan.program.compute
    products = len(lanes.factors) if takes_zeros(plan) else lanes.registers
    return lanes.registers - sum(lanes.source(i, compute) is not None for i in range(products))


def affine_of(plan: Plan, atom_step: int, register: int) -> Affine:
    """What register a0..a3 (0..3) of a step of an atom defers."""
    row = plan.deferred[plan.program.step_class[atom_step]]
    return row[register % len(row)]


def is_exponent(plan: Plan) -> bool:
    """Whether S is put together from the bits of its scale, a power of two: where that gives the same weights.

    There 0 stands for an S that is subnormal, which no lane of those that count makes a number of.
    """
    packing = plan.packing
    if packing.scale_dtype is None or packing.scale_dtype.name != "float8_e8m0fnu":
        return False
    if not plan.has_groups or plan.program.compute != "float16":
        return False
    lanes = lanes_of(plan)
    ((alpha, other), *more) = lanes.factors
    values = packing.element.values
    largest = Fraction(float(np.abs(values[np.isfinite(values)]).max()))
    alone = not more and not lanes.offsets and alpha == other and is_power_of_two(alpha)
    return alone and largest <= alpha * _VANISHING


@lru_cache(maxsize=256)
def scale_lanes(deferred: tuple[tuple[Affine, ...], ...], *, has_zeros: bool) -> ScaleLanes:
    """The registers for what decoding defers.

    Args:
        deferred: ``[classes][2 or 4]``, as in :class:`~ladder.decode.program.DecodeProgram`.
        has_zeros: whether Z takes zero points off.
    """
    halves = [[affine for row in deferred for affine in row[half::2]] for half in (0, 1)]
    factors = _paired(*(sorted({a.alpha for a in half}, reverse=True) for half in halves))
    offsets = _paired(*(dict.fromkeys(a.beta for a in half) for half in halves))
    adds = has_zeros or any(any(pair) for pair in offsets)
    return ScaleLanes(factors, offsets if adds else ())


def _paired(g: Iterable[Fraction], h: Iterable[Fraction]) -> tuple[Pair, ...]:
    """Numbers of both rows side by side; the shorter list begins again."""
    low, high = list(g), list(h)
    count = max(len(low), len(high))
    return tuple((low[i % len(low)], high[i % len(high)]) for i in range(count))
