"""Quantising by a scale that is known before a model runs: QuantizeLinear of ONNX without a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.ttype import compute_type

#: types of codes that activations are quantised to by kernels
CODE_TARGETS = ("int8", "fp8_e4m3fn")


def nearest_codes(quotients: NDArray[np.float32], target: str) -> NDArray[Any]:
    """The codes nearest to float32 numbers, ties to even, saturating; of a NaN 0 where codes are integers."""
    kind = compute_type(target)
    held = np.clip(quotients, np.float32(kind.min), np.float32(kind.max))
    if not kind.is_float:
        held = np.nan_to_num(np.rint(held), nan=0.0)
    return np.asarray(held.astype(kind.dtype))


def static_codes(x: ArrayLike, target: str, scale: float) -> NDArray[Any]:
    """Codes of x by one scale, see :func:`nearest_codes`; the quotient is a float32, as ONNX says."""
    with np.errstate(over="ignore"):
        quotients = np.asarray(x).astype(np.float32) / np.float32(scale)
    return nearest_codes(quotients, target)
