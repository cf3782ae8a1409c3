"""Scale decoded weights in registers: ``w = lane * S + Z``, one fma of two lanes a register.

    S = s * alpha * 2^-e        Z = (beta - z) * s * 2^-e           zero conventions "integer" and "float"
                                Z = (s * beta - z) * 2^-e           "rescaled"

with s and z of the row, alpha and beta of what decoding defers, and the weight's unit 2^e (:mod:`ladder.scheduler.unit`).
S and Z are rounded to the compute type once a group, and hold the same number in both lanes. The accumulators need the
factor 2^e alone, at the end of K.
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
    """Emits the scaling of one kernel; the plan checker admits one class of steps and one row tile a warp."""

    def __init__(self, kernel: Kernel, metadata: Metadata) -> None:
        self.kernel, self.metadata = kernel, metadata
        packing = kernel.plan.packing
        program = kernel.plan.program
        self.compute = program.compute
        (self.affine,) = program.affine
        self.convention = packing.weight.zero
        unit = e.hold(kernel.arg["unit"][0], "unit", "float32")
        # Where nothing is deferred but a power of two, S takes one product.
        self.units = [
            e.hold(unit * e.f32(float(affine.alpha)), f"unit_{half}", "float32")
            for half, affine in enumerate(self.affine)
        ]
        self.unit = unit
        self.factors = e.registers("scale_factor", 2, "uint32")
        self.offsets = e.registers("scale_offset", 2, "uint32")
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
            self._set(lambda name: self.metadata.rows_in_slot(name, slot, group))

    def _set(self, read: Reader) -> None:
        with e.stage(ScaleRegisters.name):
            scales, zeros = read("scales"), read("zeros")
            assert scales is not None, "the plan checker admits types with scales"
            for half in range(2):
                scale = e.hold(scales[half], f"scale_{half}", "float32")
                e.store(self.factors, half, self._twice(scale * self.units[half]))
                zero = None if zeros is None else zeros[half]
                offset = self._offset(scale, zero, float(self.affine[half].beta))
                e.store(self.offsets, half, e.u32(0) if offset is None else self._twice(offset))

    def _offset(self, scale: Any, zero: Any, beta: float) -> Any:
        if zero is None:
            return scale * self.unit * e.f32(beta) if beta else None
        if self.convention == "rescaled":
            return (scale * e.f32(beta) - zero) * self.unit
        return scale * self.unit * (e.f32(beta) - zero)

    def _twice(self, value: Any) -> Any:
        held = e.hold(value, "both", "float32")
        return narrow_pair(self.compute, held, held)

    def apply(self, fragment: list[Any], step: int) -> list[Any]:
        """The fragment of a step of the block, scaled; registers i hold row g + 8 * (i & 1)."""
        with e.stage(ScaleRegisters.name):
            for index, value in enumerate(fragment):
                half = index & 1
                scaled = e.call(_FMA[self.compute], value, self.factors[half], self.offsets[half])
                e.store(self.scaled, 4 * step + index, scaled)
        return [self.scaled[4 * step + index] for index in range(4)]
