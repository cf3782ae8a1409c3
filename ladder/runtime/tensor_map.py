"""Tensor maps of activations, as the driver encodes them."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from ladder.errors import LaunchError
from ladder.runtime.argument_block import TensorMap

#: bytes of a row of a box, which the swizzle repeats
BOX_BYTES = 128
#: cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT8 and _UINT16 by bytes of an element, _INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_L2_256B, _FLOAT_OOB_FILL_NONE
MAP_TYPES = {1: 0, 2: 1}
MAP_NO_INTERLEAVE = 0
MAP_SWIZZLE_128B = 3
MAP_L2_PROMOTION_256B = 3
MAP_ZERO_FILL = 0


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def encode_tensor_map(
    encode: Any, pointer: int, extents: tuple[int, int], stride: int, box: tuple[int, ...]
) -> TensorMap:
    """Fill a tensor map (CUDA driver API, cuTensorMapEncodeTiled: innermost extents first); see :class:`Driver`.

    Raises:
        LaunchError: the driver refuses the description.
    """
    made = TensorMap()
    status = encode(
        ctypes.c_void_p(made.address),
        ctypes.c_int(MAP_TYPES[BOX_BYTES // box[1]]),
        ctypes.c_uint32(2),
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * 2)(extents[1], extents[0]),
        (ctypes.c_uint64 * 1)(stride),
        (ctypes.c_uint32 * 2)(box[1], box[0]),
        (ctypes.c_uint32 * 2)(1, 1),
        ctypes.c_int(MAP_NO_INTERLEAVE),
        ctypes.c_int(MAP_SWIZZLE_128B),
        ctypes.c_int(MAP_L2_PROMOTION_256B),
        ctypes.c_int(MAP_ZERO_FILL),
    )
    if status:
        raise LaunchError(
            f"the driver refuses a tensor map with error {status}",
            at=f"{extents[0]} x {extents[1]} elements at {pointer:#x}, rows {stride} B apart, boxes {box}",
            hint="x needs an address and a row stride of multiples of 16 bytes",
        )
    return made
