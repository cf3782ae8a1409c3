"""The numbers of :mod:`ladder.scheduler.scale_lanes` in NumPy, rounded as the kernel rounds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ladder.scheduler.scale_lanes import (
    ScaleLanes,
    Source,
    affine_of,
    is_exponent,
    lanes_of,
    takes_zeros,
    zero_lanes,
)
from ladder.scheduler.single import Floats

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan


@dataclass(frozen=True)
class ScaleNumbers:
    """S and Z of some rows in one group.

    Attributes:
        plan: which scales weights in registers.
        unit: 2^-e of the packed weight.
        scales: float32 ``[tiles, 2, 8]``, by row half.
        zeros: likewise, or None.
    """

    plan: Plan
    unit: np.float32
    scales: Floats
    zeros: Floats | None

    @cached_property
    def lanes(self) -> ScaleLanes:
        """Which numbers there are."""
        return lanes_of(self.plan)

    def of(self, atom_step: int, register: int) -> tuple[Floats, Floats]:
        """S and Z ``[tiles, 8]`` of a register a0..a3 (0..3) of a step of an atom, as numbers of the compute type."""
        affine, half = affine_of(self.plan, atom_step, register), register & 1
        place = self.lanes.offset_of(affine, half)
        factor = self._factor(self.lanes.factor_of(affine, half), half)
        return factor, np.zeros_like(factor) if place is None else self._offset(place, half)

    def _factor(self, place: int, half: int) -> Floats:
        source = self._source(place)
        if source is not None:
            return self._times(source, half)
        scale, alpha = self.scales[:, half], np.float32(self.lanes.factors[place][half])
        if is_exponent(self.plan):  # exponents are added up: nothing overflows on the way
            return self._rounded(scale * self.unit * alpha)
        return self._rounded(scale * (self.unit * alpha))

    def _offset(self, place: int, half: int) -> Floats:
        scale, beta = self.scales[:, half], np.float32(self.lanes.offsets[place][half])
        if self.zeros is None or not takes_zeros(self.plan):
            source = self._source(len(self.lanes.factors) + place)
            if source is not None:
                return self._times(source, half)
            return self._rounded(scale * self.unit * beta)
        zero, made = self.zeros[:, half], zero_lanes(self.plan)
        if made is not None:
            register, factor, addend = made[place]
            lane = zero * np.float32(factor[half]) + np.float32(addend[half])
            return self._rounded(self._factor(register, half) * self._rounded(lane))
        if self.plan.packing.weight.zero == "rescaled":
            return self._rounded((scale * beta - zero) * self.unit)
        return self._rounded(scale * self.unit * (beta - zero))

    def _source(self, place: int) -> Source | None:
        return self.lanes.source(place, self.plan.program.compute)

    def _times(self, source: Source, half: int) -> Floats:
        factor = self._factor(source.register, half)
        return self._rounded(factor * np.float32(source.ratio[half]))

    def _rounded(self, x: Floats) -> Floats:
        rounded: Floats = x.astype(self.plan.op.activation.dtype).astype(np.float32)
        return rounded
