"""Activation functions as kernels compute them: one formula each, for float32 of NumPy and of TensorIR alike.

A formula is written over an :class:`Arithmetic`; the plan's NumPy meaning and the emitter hand in one each, so that both round
at the same places. Exponentials and reciprocals are the device's fast ones, whose relative error is below 2**-22 (PTX ISA,
ex2.approx.ftz.f32 and rcp.approx.ftz.f32); a NaN stays one, and no formula overflows before its result does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ladder.scheduler import single
from ladder.scheduler.single import Floats

LOG2E = 1 / math.log(2)

#: erfc(z) = t * exp(-z^2 + sum_i c_i t^i), t = 1 / (1 + z/2), z >= 0: relative error below 1.2e-7 (Press et al., Numerical
#: Recipes, section 6.2, erfcc)
ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)
#: |x| from which the normal distribution's tail is 0 in float32
TAIL = 16.0

#: tanh(x) = x * (1 + x^2 (t_0 + x^2 (t_1 + ..))) by its series, relative error below 1e-7 up to the limit
TANH = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)
TANH_LIMIT = 0.3


class Arithmetic(Protocol):
    """Operations on float32 values, each rounded once."""

    def constant(self, value: float) -> Any:
        """A constant."""

    def add(self, a: Any, b: Any) -> Any:
        """``a + b``."""

    def multiply(self, a: Any, b: Any) -> Any:
        """``a * b``."""

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``."""

    def exp2(self, a: Any) -> Any:
        """``2 ** a``."""

    def reciprocal(self, a: Any) -> Any:
        """``1 / a``."""

    def magnitude(self, a: Any) -> Any:
        """``|a|``."""

    def below(self, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
        """``a < b ? then : otherwise``; a NaN is below nothing."""


class Numpy:
    """Arithmetic on arrays of float32."""

    def constant(self, value: float) -> Floats:
        """A constant."""
        return np.asarray(value, np.float32)

    def add(self, a: Floats, b: Floats) -> Floats:
        """``a + b``."""
        return a + b

    def multiply(self, a: Floats, b: Floats) -> Floats:
        """``a * b``."""
        return a * b

    def fma(self, a: Floats, b: Floats, c: Floats) -> Floats:
        """``a * b + c``."""
        return single.fma(a, b, c)

    def exp2(self, a: Floats) -> Floats:
        """``2 ** a``."""
        return single.exp2(a)

    def reciprocal(self, a: Floats) -> Floats:
        """``1 / a``."""
        return single.reciprocal(a)

    def magnitude(self, a: Floats) -> Floats:
        """``|a|``."""
        return np.abs(a)

    def below(self, a: Floats, b: Floats, then: Floats, otherwise: Floats) -> Floats:
        """``a < b ? then : otherwise``."""
        return np.where(a < b, then, otherwise)


Formula = Callable[[Arithmetic, Any], Any]


def _relu(f: Arithmetic, x: Any) -> Any:
    zero = f.constant(0.0)
    return f.below(x, zero, zero, x)


def _sigmoid(f: Arithmetic, x: Any) -> Any:
    return f.reciprocal(f.add(f.exp2(f.multiply(x, f.constant(-LOG2E))), f.constant(1.0)))


def _silu(f: Arithmetic, x: Any) -> Any:
    return f.multiply(x, _sigmoid(f, x))


def _gelu(f: Arithmetic, x: Any) -> Any:
    """``max(x, 0) - |x| * tail(|x|)``, where the normal distribution's tail is erfc(|x| / sqrt 2) / 2.

    Far below zero, at -inf too, that is -0, as the function's limit from there is.
    """
    least, most = f.magnitude(x), f.constant(TAIL)
    size = f.below(most, least, most, least)
    t = f.reciprocal(f.fma(size, f.constant(math.sqrt(0.5) / 2), f.constant(1.0)))
    power = f.constant(ERFC[-1] * LOG2E)
    for coefficient in ERFC[-2:0:-1]:
        power = f.fma(power, t, f.constant(coefficient * LOG2E))
    # exponents of 2: the factor 1/2 is one less
    power = f.fma(power, t, f.constant(ERFC[0] * LOG2E - 1))
    power = f.fma(f.multiply(size, size), f.constant(-LOG2E / 2), power)
    tail = f.multiply(t, f.exp2(power))
    negated = f.multiply(size, f.constant(-1.0))
    return f.fma(negated, tail, f.below(x, f.constant(0.0), f.constant(-0.0), x))


def _gelu_tanh(f: Arithmetic, x: Any) -> Any:
    """``x * sigmoid(2 u)``, which is ``x / 2 * (1 + tanh u)``."""
    factor = 2 * math.sqrt(2 / math.pi)
    inner = f.fma(f.multiply(x, x), f.constant(factor * 0.044715), f.constant(factor))
    return f.multiply(x, _sigmoid(f, f.multiply(x, inner)))


def _tanh(f: Arithmetic, x: Any) -> Any:
    square = f.multiply(x, x)
    series = f.constant(TANH[-1])
    for coefficient in (*TANH[-2::-1], 1.0):
        series = f.fma(series, square, f.constant(coefficient))
    far = f.fma(_sigmoid(f, f.multiply(x, f.constant(2.0))), f.constant(2.0), f.constant(-1.0))
    return f.below(f.magnitude(x), f.constant(TANH_LIMIT), f.multiply(x, series), far)


def evaluate(function: str, x: Floats) -> Floats:
    """The float32 formula of a function on an array."""
    with np.errstate(all="ignore"):
        return np.asarray(FORMULAS[function](Numpy(), x), np.float32)


#: a formula for each activation function that an epilogue may hold
FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "relu": _relu,
        "sigmoid": _sigmoid,
        "silu": _silu,
        "tanh": _tanh,
    }
)
