"""Scale decoded weights in registers: ``w = lane * S + Z``, one fma of two lanes a register.

    S = s * alpha * 2^-e        Z = (beta - z) * s * 2^-e           zero conventions "integer" and "float"
                                Z = (s * beta - z) * 2^-e           "rescaled"

with s and z of the row, alpha and beta of what decoding defers, and the weight's unit 2^e (:mod:`ladder.scheduler.unit`).
S and Z are rounded to the compute type once a group, and hold the same number in both lanes; each class of steps has its own,
by which all come to one factor. The accumulators need the factor 2^e alone, at the end of K. Where zero points were taken off
before (:mod:`ladder.codegen.stages.zero_point`), which is exact, there is no Z.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.widen import narrow_pair
from ladder.scheduler.stage import ScaleRegisters

_FMA = {"float16": "fma_f16x2", "bfloat16": "fma_bf16x2"}
#: values of rows g and g+8 by name, None where the type has none
Reader = Callable[[str], tuple[Any, Any] | None]


class ScaleRegistersEmitter:
    """Emits the scaling of one kernel; the plan checker admits one row tile a warp."""

    def __init__(self, kernel: Kernel, metadata: Metadata) -> None:
        self.kernel, self.metadata = kernel, metadata
        packing = kernel.plan.packing
        self.compute = kernel.plan.program.compute
        #: what is deferred: [2 * class + row half]
        self.affine = [affine for pair in kernel.plan.deferred for affine in pair]
        self.has_zeros = packing.zero_dtype is not None and kernel.plan.zero != "register"
        self.convention = packing.weight.zero
        self.unit = e.hold(kernel.arg["unit"][0], "unit", "float32")
        # Where nothing is deferred but a power of two, S takes one product.
        self.units = {
            alpha: e.hold(self.unit * e.f32(float(alpha)), "unit_of", "float32")
            for alpha in dict.fromkeys(affine.alpha for affine in self.affine)
        }
        self.factors = e.registers("scale_factor", len(self.affine), "uint32")
        self.offsets = e.registers("scale_offset", len(self.affine), "uint32")
        steps = packing.geometry.block_k // 16
        self.scaled = e.registers("scaled", 4 * steps, "uint32")
        if not kernel.plan.has_groups:
            self._set(self._single)

    def _single(self, name: str) -> tuple[Any, Any] | None:
        g, h = (self.metadata.single(name, 0, half) for half in range(2))
        return None if g is None else (g, h)

    def enter_group(self, slot: Any, group: int) -> None:
        """Make S and Z of a group of the block that lies in a ring slot."""
        if self.kernel.plan.has_groups:
            self._set(lambda name: self.metadata.rows_in_slot(name, 0, slot=slot, group=group))

    def _set(self, read: Reader) -> None:
        with e.stage(ScaleRegisters.name):
            scales, zeros = read("scales"), read("zeros") if self.has_zeros else None
            assert scales is not None, "the plan checker admits types with scales"
            for half in range(2):
                scale = e.hold(scales[half], f"scale_{half}", "float32")
                zero = None if zeros is None else e.hold(zeros[half], f"zero_{half}", "float32")
                offsets: dict[Any, Any] = {}
                for place in range(half, len(self.affine), 2):
                    affine = self.affine[place]
                    e.store(self.factors, place, self._twice(scale * self.units[affine.alpha]))
                    if affine.beta not in offsets:
                        offset = self._offset(scale, zero, float(affine.beta))
                        offsets[affine.beta] = e.u32(0) if offset is None else self._twice(offset)
                    e.store(self.offsets, place, offsets[affine.beta])

    def _offset(self, scale: Any, zero: Any, beta: float) -> Any:
        if zero is None:
            return scale * self.unit * e.f32(beta) if beta else None
        if self.convention == "rescaled":
            return (scale * e.f32(beta) - zero) * self.unit
        return scale * self.unit * (e.f32(beta) - zero)

    def _twice(self, value: Any) -> Any:
        held = e.hold(value, "both", "float32")
        return narrow_pair(self.compute, held, held)

    def apply(self, fragment: list[Any], step: int, cls: int) -> list[Any]:
        """The fragment of a step of the block and of a class, scaled; registers i hold row g + 8 * (i & 1)."""
        with e.stage(ScaleRegisters.name):
            for index, value in enumerate(fragment):
                place = 2 * cls + (index & 1)
                operands = value, self.factors[place], self.offsets[place]
                scaled = e.call(_FMA[self.compute], *operands)
                e.store(self.scaled, 4 * step + index, scaled)
        return [self.scaled[4 * step + index] for index in range(4)]
