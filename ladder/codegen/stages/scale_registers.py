"""Scale decoded weights in registers: ``w = lane * S + Z``, one fma of two lanes a register.

    S = s * alpha * 2^-e        Z = (beta - z) * s * 2^-e           zero conventions "integer" and "float"
                                Z = (s * beta - z) * 2^-e           "rescaled"

with s and z of the row, alpha and beta of what decoding defers, and the weight's unit 2^e (:mod:`ladder.scheduler.unit`).
S and Z are rounded to the compute type once a group; rows g and g+8 share registers of them
(:mod:`ladder.scheduler.scale_lanes`). The accumulators need the factor 2^e alone, at the end of K. Where zero points were
taken off before (:mod:`ladder.codegen.stages.zero_point`), which is exact, there is no Z.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.exponent_scale import ExponentScale
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.widen import narrow_pair
from ladder.decode.lanes import LANE_FORMATS
from ladder.scheduler.scale_lanes import (
    Pair,
    Source,
    ZeroLanes,
    affine_of,
    is_exponent,
    lanes_of,
    takes_zeros,
    zero_lanes,
)
from ladder.scheduler.stage import ScaleRegisters
from ladder.scheduler.unit import further

_FMA = {"float16": "fma_f16x2", "bfloat16": "fma_bf16x2"}
#: two lanes of -0, which added to a product leaves it as it is
_MINUS_ZERO = 0x80008000
#: values of rows g and g+8
Rows = tuple[Any, Any]


class ScaleRegistersEmitter:
    """Emits the scaling of one kernel; the plan checker admits one row tile a warp."""

    def __init__(self, kernel: Kernel, metadata: Metadata) -> None:
        self.kernel, self.metadata = kernel, metadata
        packing = kernel.plan.packing
        self.compute = kernel.plan.program.compute
        self.lanes = lanes_of(kernel.plan)
        self.has_zeros, self.zeros = takes_zeros(kernel.plan), zero_lanes(kernel.plan)
        self.convention = packing.weight.zero
        unit, more = kernel.arg["unit"][0], further(kernel.plan)
        self.unit = e.hold(unit if more == 1 else unit * e.f32(1 / more), "unit", "float32")
        # Where nothing is deferred but a power of two, S takes one product.
        made = [pair for i, pair in enumerate(self.lanes.factors) if not self._source(i)]
        self.units = {
            alpha: e.hold(self.unit * e.f32(float(alpha)), "unit_of", "float32")
            for alpha in dict.fromkeys(alpha for pair in made for alpha in pair)
        }
        self.exponents = ExponentScale(kernel) if is_exponent(kernel.plan) else None
        self.factors = e.registers("scale_factor", len(self.lanes.factors), "uint32")
        self.offsets = e.registers("scale_offset", max(1, len(self.lanes.offsets)), "uint32")
        steps = packing.geometry.block_k // 16
        self.scaled = e.registers("scaled", 4 * steps, "uint32")
        if not kernel.plan.has_groups:
            scales, zeros = (metadata.single_rows(name, 0) for name in ("scales", "zeros"))
            assert scales is not None, "the plan checker admits types with scales"
            self._set(scales, zeros)

    def enter_group(self, slot: Any, group: int) -> None:
        """Make S and Z of a group of the block that lies in a ring slot."""
        if not self.kernel.plan.has_groups:
            return
        if self.exponents is not None:
            with e.stage(ScaleRegisters.name):
                both = self.metadata.both_in_slot("scales", 0, slot=slot, group=group)
                e.store(self.factors, 0, self.exponents.factor(both))
                self._derive(None)
            return
        scales = self.metadata.rows_in_slot("scales", 0, slot=slot, group=group)
        assert scales is not None, "the plan checker admits types with scales"
        if self.zeros is None:
            zeros = self.metadata.rows_in_slot("zeros", 0, slot=slot, group=group)
            self._set(scales, zeros)
            return
        with e.stage(ScaleRegisters.name):
            stored = self.metadata.both_in_slot("zeros", 0, slot=slot, group=group)
        self._set(scales, None, stored)

    def _set(self, scales: Rows, zeros: Rows | None, stored: Any = None) -> None:
        """Make all numbers of scales and zero points in float32, or of zero points as they are ``stored``, two lanes."""
        with e.stage(ScaleRegisters.name):
            rows = self._held("scale", scales)
            e.store(self.factors, 0, self._factor(rows, self.lanes.factors[0]))
            held = self._held("zero", zeros) if self.has_zeros and zeros else None
            self._derive(rows, held, stored)

    def _held(self, name: str, rows: Rows) -> Rows:
        g, h = (e.hold(value, f"{name}_{half}", "float32") for half, value in enumerate(rows))
        return g, h

    def _derive(self, scales: Rows | None, zeros: Rows | None = None, stored: Any = None) -> None:
        """All numbers after the first S: of an S before them where they can be, else of the scales."""
        lanes = self.lanes
        for place, alphas in enumerate(lanes.factors[1:], 1):
            source = self._source(place)
            factor = self._times(source) if source else self._factor(scales, alphas)
            e.store(self.factors, place, factor)
        for place, betas in enumerate(lanes.offsets):
            if stored is not None and self.zeros is not None:
                e.store(self.offsets, place, self._offset_of(stored, self.zeros[place]))
                continue
            source = None if zeros else self._source(len(lanes.factors) + place)
            offset = self._times(source) if source else self._offset(scales, zeros, betas)
            e.store(self.offsets, place, offset)

    def _offset_of(self, stored: Any, zero: ZeroLanes) -> Any:
        """Z of zero points as they are stored, by two fmas of two lanes."""
        operands = stored, self._pair(zero.factor), self._pair(zero.addend)
        lanes = e.call(_FMA[self.compute], *operands)
        return e.call(_FMA[self.compute], self.factors[zero.register], lanes, e.u32(_MINUS_ZERO))

    def _source(self, place: int) -> Source | None:
        return self.lanes.source(place, self.compute)

    def _times(self, source: Source) -> Any:
        """An S times a number of either row."""
        operands = self._pair(source.ratio), e.u32(_MINUS_ZERO)
        return e.call(_FMA[self.compute], self.factors[source.register], *operands)

    def _pair(self, numbers: Pair) -> Any:
        low, high = (LANE_FORMATS[self.compute].pattern(x) for x in numbers)
        return e.u32(high << 16 | low)

    def _factor(self, scales: Rows | None, alphas: Pair) -> Any:
        assert scales is not None, "the plan checker admits exponents where all S are products"
        g, h = (scale * self.units[alpha] for scale, alpha in zip(scales, alphas, strict=True))
        return self._rounded(g, h)

    def _offset(self, scales: Rows | None, zeros: Rows | None, betas: Pair) -> Any:
        assert scales is not None, "the plan checker admits exponents where nothing is added"
        g, h = (
            self._offset_of_row(scales[half], zeros and zeros[half], float(betas[half]))
            for half in (0, 1)
        )
        return self._rounded(g, h)

    def _offset_of_row(self, scale: Any, zero: Any, beta: float) -> Any:
        if zero is None:
            return scale * self.unit * e.f32(beta)
        if self.convention == "rescaled":
            return (scale * e.f32(beta) - zero) * self.unit
        return scale * self.unit * (e.f32(beta) - zero)

    def _rounded(self, g: Any, h: Any) -> Any:
        held = [e.hold(value, "row", "float32") for value in (g, h)]
        return narrow_pair(self.compute, *held)

    def apply(self, fragment: list[Any], step: int, atom_step: int) -> list[Any]:
        """The fragment of a step of the block, which is a step of its atom, scaled."""
        with e.stage(ScaleRegisters.name):
            for index, value in enumerate(fragment):
                affine, half = affine_of(self.kernel.plan, atom_step, index), index & 1
                offset = self.lanes.offset_of(affine, half)
                operands = (
                    _of_row(self.factors[self.lanes.factor_of(affine, half)], half),
                    e.u32(0) if offset is None else _of_row(self.offsets[offset], half),
                )
                scaled = e.call(_FMA[self.compute], value, *operands)
                e.store(self.scaled, 4 * step + index, scaled)
        return [self.scaled[4 * step + index] for index in range(4)]


def _of_row(both: Any, half: int) -> Any:
    """One half of a register in both lanes: the compiler lets the fma read it so."""
    return e.call("high_twice" if half else "low_twice", both)
