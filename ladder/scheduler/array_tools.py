"""Small tools for arrays of any library that follows the array API."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.checks import shown
from ladder.errors import PackingError

#: an array of any library, its namespace, its device
Array = Any
Namespace = Any

#: signed integers that stand for raw bits, by bytes (torch shifts and indexes these everywhere)
RAW = {1: "uint8", 2: "int16", 4: "int32"}


def namespace(name: str, array: Array) -> Namespace:
    """The functions of an array's library.

    Raises:
        PackingError: it is no array.
    """
    import array_api_compat

    if not array_api_compat.is_array_api_obj(array):
        raise PackingError(
            f"{name} is {shown(array)}, not an array",
            at="pack_arrays",
            hint="give arrays of torch, CuPy, NumPy or another library of the array API",
        )
    return array_api_compat.array_namespace(array)


def constant(xp: Namespace, values: NDArray[Any], like: Array) -> Array:
    """A small array on the device of another: indices as int64, the rest as they are."""
    host = values.astype(np.int64) if values.dtype == np.intp else values
    return xp.asarray(host.tolist(), dtype=getattr(xp, host.dtype.name), device=like.device)


def lookup(xp: Namespace, table: NDArray[Any], index: Array) -> Array:
    """``table.ravel()[index]`` as int32."""
    flat = constant(xp, table.astype(np.int32).reshape(-1), index)
    return xp.reshape(xp.take(flat, xp.reshape(index, (-1,)), axis=0), index.shape)


def pad_columns(xp: Namespace, array: Array, extent: int, fill: int) -> Array:
    """More columns of one value, up to ``extent``."""
    missing = extent - array.shape[1]
    if not missing:
        return array
    border = xp.full((array.shape[0], missing), fill, dtype=array.dtype, device=array.device)
    return xp.concat([array, border], axis=1)


def pad_rows(xp: Namespace, array: Array, extent: int, fill: int) -> Array:
    """More rows of one value, up to ``extent``."""
    missing = extent - array.shape[0]
    if not missing:
        return array
    border = xp.full((missing, array.shape[1]), fill, dtype=array.dtype, device=array.device)
    return xp.concat([array, border], axis=0)


def contiguous(xp: Namespace, array: Array) -> Array:
    """A copy in row-major order: only such an array can be viewed as another dtype."""
    return xp.reshape(xp.asarray(array, copy=True), (-1,)).reshape(array.shape)


def raw_bits(xp: Namespace, array: Array) -> Array:
    """The bits of an array as integers that every library can move."""
    size = array.dtype.itemsize
    return contiguous(xp, array).view(getattr(xp, RAW[size]))


def as_uint32(xp: Namespace, array: Array) -> Array:
    """The bits of an array as uint32."""
    return contiguous(xp, array).view(xp.uint32)
