"""What else would compute a matmul: decode the whole weight into memory, then multiply it as a dense one.

The product kernels read each weight once for every tile of tokens; from some number of tokens on, decoding each weight once
for all may cost less. It is never done silently: :func:`explain <ladder.scheduler.explain.explain>` says what it would take,
and :func:`ladder.dequantize` is how a caller does it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ladder.errors import LadderError
from ladder.graph.dequantize import Dequantize
from ladder.scheduler.choose import choose_packing
from ladder.scheduler.dequantize_plan import DequantizePlan, schedule_dequantize
from ladder.scheduler.ranking import cheapest
from ladder.ttype import Dense, GroupedType, element_type

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan


@dataclass(frozen=True)
class DecodedFirst:
    """Two kernels in place of one.

    Attributes:
        decode: writes the weight's numbers, every time anew: codes are what lies in memory between calls.
        product: multiplies them.
    """

    decode: DequantizePlan
    product: Plan

    @property
    def us(self) -> float:
        """Microseconds of both, one after the other, by the cost model."""
        return self.decode.cost().us + self.product.cost().us


def decoded_first(plan: Plan) -> DecodedFirst | None:
    """The same product with the weight decoded before; None where no kernel has it, or the weight is dense already."""
    op = plan.op
    if isinstance(op.element, Dense):
        return None
    try:
        dense = GroupedType(element_type(op.activation), scale=None)
        decode = schedule_dequantize(
            Dequantize(op.n, op.k, op.weight, op.activation), plan.device, {}
        )
        twin = replace(op, weight=dense)
        packing = choose_packing(twin, plan.device.features)
        product = cheapest(twin, plan.device, packing, plan.m_range, {"launch": plan.launch})
    except LadderError:
        return None  # 8-bit activations have no dense weights
    return DecodedFirst(decode, product)


def beside_lines(plan: Plan) -> list[str]:
    """What decoding first would take, and how to have it where that is less."""
    other = decoded_first(plan)
    if other is None:
        return ["no product of this operator reads decoded weights"]
    own, op = plan.cost().us, plan.op
    decode, product = other.decode.cost().us, other.product.cost().us
    lines = [
        f"{decode:.2f} us to decode the weight, {product:.2f} us for a dense product: {other.us:.2f} us, this plan {own:.2f} us"
    ]
    if other.us < own:
        lines.append(
            f"that is less: ladder.dequantize({op.n}, {op.k}, weight=..., compute={op.activation.name!r}) before a matmul with"
            f" weight={op.activation.name!r}, or a library's; it takes"
            f" {op.n * op.k * op.activation.dtype.itemsize / 1e6:.0f} MB more"
        )
    return lines
