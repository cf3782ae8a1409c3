"""What an address, a shape, strides and the name of a dtype do not tell about an array: swapped bytes, a mask, a gradient."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.errors import LaunchError


def check_plain(array: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Refuse a NumPy array whose memory is not what its dtype's name says.

    Raises:
        LaunchError: its bytes are swapped, or it has a mask.
    """
    check_bytes(array.dtype, array.shape)
    if isinstance(array, np.ma.MaskedArray):
        raise LaunchError(
            "a masked array, and kernels know no masks",
            at=f"{array.dtype.name}{list(array.shape)}",
            hint="fill the masked elements: array.filled(0)",
        )


def check_bytes(dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    """Refuse the byte order of another machine.

    Raises:
        LaunchError: the bytes are swapped.
    """
    if not dtype.isnative:
        raise LaunchError(
            f"the bytes of {dtype.str} are swapped",
            at=f"{dtype.name}{list(shape)}",
            hint=f"convert the array: array.astype({dtype.name!r})",
        )


def check_gradient(tensor: Any, at: object = "") -> None:
    """Refuse a tensor of torch through which a gradient would be asked for, and which would be cut off in silence.

    Args:
        tensor: anything; only torch's can require a gradient.
        at: what the tensor is; empty for its type and shape.

    Raises:
        LaunchError: it requires a gradient, and torch records them.
    """
    if getattr(tensor, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise LaunchError(
            "the tensor requires a gradient, and kernels have none",
            at=at or f"{tensor.dtype}{list(tensor.shape)}",
            hint="call under torch.no_grad(), or give tensor.detach()",
        )
