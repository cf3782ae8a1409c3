"""S of scales that are powers of two, put together as bits: ``S = 2^(byte - 127) * alpha * 2^-e``.

    exponent field of S  =  byte - least,    least = 112 - log2(alpha * 2^-e)

Both rows lie side by side in 16 bits each: a largest with ``least`` and a multiply-add give both S, where conversions by way of
float32 take nine instructions. A byte of ``least`` or below gives 0 where S would be subnormal; the plan takes this way only where
a product of such an S with any lane vanishes anyway (:func:`~ladder.scheduler.scale_lanes.is_exponent`).
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.scheduler.scale_lanes import lanes_of

#: bytes 0 and 1 of a word in 16 bits each; bytes from 4 on are those of the second operand, 0
_BYTES_APART = 0x4140
#: two 16-bit lanes of 1
_BOTH = 0x00010001
#: bits of a float16 below its exponent
_MANTISSA = 10
#: biases of the float32 exponents of the unit and of the scale, less that of a float16
_BIAS = 127 + 127 - 15


class ExponentScale:
    """Makes the S of both rows of a lane of their packed scales, for one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        ((alpha, _),) = lanes_of(kernel.plan).factors
        power = alpha.numerator.bit_length() - alpha.denominator.bit_length()
        field = e.f32_as_bits(kernel.arg["unit"][0]) >> e.u32(23)
        least = e.hold(e.u32(_BIAS - power) - field, "least", "uint32")
        self.least = e.hold((least & e.u32(0xFFFF)) * e.u32(_BOTH), "least_both", "uint32")
        self.base = e.hold(least * e.u32(_BOTH << _MANTISSA), "least_base", "uint32")

    def factor(self, both: Any) -> Any:
        """S of rows g and g+8, of a word whose low bytes are their scales."""
        apart = e.call("prmt", both, e.u32(0), e.u32(_BYTES_APART))
        most = e.call("max_s16x2", apart, self.least)
        return most * e.u32(1 << _MANTISSA) - self.base
