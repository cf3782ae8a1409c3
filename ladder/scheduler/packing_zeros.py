"""Zero points of a packing: integer codes become the numbers that they mean, and numbers codes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladder.errors import PackingError
from ladder.ttype import Quantized

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing


def zero_values(packing: Packing, weights: Quantized) -> NDArray[Any]:
    """What is packed for the zeros of weights, of their shape.

    Raises:
        PackingError: a zero's code means the same number as another's.
    """
    assert weights.zeros is not None
    assert packing.zero_dtype is not None
    if packing.weight.zero != "integer":
        return weights.zeros
    bits = packing.zero_bits
    first = np.array([int(np.flatnonzero(bits == b)[0]) for b in bits])
    twins = weights.zeros[first[weights.zeros] != weights.zeros]
    if twins.size:
        code = int(twins[0])
        raise PackingError(
            f"zero code {code} means the same number as code {first[code]}, and unpacking could not tell them apart",
            at=packing.weight,
            hint=f"use {first[code]} for the zero",
        )
    return bits[weights.zeros].view(packing.zero_dtype)


def zero_codes(packing: Packing, zeros: NDArray[Any]) -> NDArray[Any]:
    """The inverse of :func:`zero_values`."""
    if packing.weight.zero != "integer":
        return zeros
    found, first = np.unique(packing.zero_bits, return_index=True)
    place = np.searchsorted(found, zeros.view(packing.zero_bits.dtype))
    return first[place].astype(np.uint8)
