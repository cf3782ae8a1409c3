"""Arithmetic of :mod:`ladder.scheduler.formulas` as TensorIR: every result has a name, so that it is computed once.

Names of conversions and choices TVM replaces by what they stand for; those are kept in registers.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e


class TensorArithmetic:
    """Operations on float32 expressions, see :class:`ladder.scheduler.formulas.Arithmetic`."""

    def constant(self, value: float) -> Any:
        """A constant."""
        return e.f32(value)

    def add(self, a: Any, b: Any) -> Any:
        """``a + b``."""
        return e.bind(a + b, "sum")

    def multiply(self, a: Any, b: Any) -> Any:
        """``a * b``."""
        return e.bind(a * b, "product")

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``, rounded once."""
        return e.bind(e.fma(a, b, c), "fma")

    def exp2(self, a: Any) -> Any:
        """``2 ** a``."""
        return e.bind(e.call("ex2_f32", a), "power")

    def reciprocal(self, a: Any) -> Any:
        """``1 / a``."""
        return e.bind(e.call("rcp_f32", a), "inverse")

    def magnitude(self, a: Any) -> Any:
        """``|a|``."""
        bits = e.f32_as_bits(a) & e.u32(0x7FFFFFFF)
        return e.hold(e.bits_as_f32(bits), "magnitude", "float32")

    def below(self, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
        """``a < b ? then : otherwise``."""
        return e.hold(e.select(a < b, then, otherwise), "chosen", "float32")
