"""Functions of one real number, in float64: what operators and epilogues mean by their names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ladder.graph.tensor import Array, real

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    result: Array = np.exp(-np.logaddexp(0.0, -real(x)))
    return result


#: x below which gelu is -0 in float64; at -inf, where a product would be NaN, it is its limit, as kernels have it
GELU_LEAST = -40.0


def _gelu(x: Array) -> Array:
    # erfc keeps its digits where 1 + erf cancels
    low = np.maximum(x, GELU_LEAST)
    result: Array = 0.5 * low * _erfc(-low / math.sqrt(2)) if x.size else real(x)
    return result


def _gelu_tanh(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return result


#: functions of one real number
FUNCTIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "abs": np.abs,
        "cos": np.cos,
        "erf": lambda x: _erf(x) if x.size else x,
        "exp": np.exp,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "log": np.log,
        "negative": np.negative,
        "not": np.logical_not,
        "reciprocal": np.reciprocal,
        "relu": lambda x: np.where(x < 0, 0, x),  # keeps -0 and NaN, as torch and kernels do
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": _sigmoid,
        "silu": lambda x: x * _sigmoid(x),
        "sin": np.sin,
        "sqrt": np.sqrt,
        "square": np.square,
        "tanh": np.tanh,
    }
)

#: those that a kernel's epilogue may apply, and that rules call activations
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "sigmoid", "silu", "tanh")
