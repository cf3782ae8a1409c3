"""Random activations for an operator, as tests, benchmarks and the command line give them to kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.graph.matmul import MatMul

#: standard deviation of int8 activations: a quantised row reaches the ends of the range, and hardly ever beyond
INT8_DEVIATION = 36.0
#: and of others of integers, by name, likewise
DEVIATIONS: Mapping[str, float] = MappingProxyType(
    {"int8": INT8_DEVIATION, "int4": 2.0, "uint4": 4.0}
)
#: least and most scale of a row
ROW_SCALES = (0.5, 2.0)


def activations(op: MatMul, rng: np.random.Generator, m: int) -> NDArray[Any]:
    """Normal activations ``[m, k]`` of the operator's type, as numbers; magnitudes of such where it has no sign."""
    normal = rng.standard_normal((m, op.k), np.float32)
    if not op.activation.is_float:
        whole = np.rint(normal * np.float32(DEVIATIONS[op.activation.name]))
        signed = whole if op.activation.min < 0 else np.abs(whole)
        normal = np.clip(signed, op.activation.min, op.activation.max)
    drawn: NDArray[Any] = normal.astype(op.activation.dtype)
    return drawn


def row_scales(op: MatMul, rng: np.random.Generator, m: int) -> NDArray[np.float32] | None:
    """Scales of rows ``[m]``, or None for an operator without."""
    if not op.activation_scale:
        return None
    return rng.uniform(*ROW_SCALES, m).astype(np.float32)


def residuals(op: MatMul, rng: np.random.Generator, m: int) -> NDArray[Any] | None:
    """A normal residual ``[m, out_n]`` of the output's type, or None for an operator without."""
    if not op.residual:
        return None
    drawn: NDArray[Any] = rng.standard_normal((m, op.out_n), np.float32).astype(op.out.dtype)
    return drawn
