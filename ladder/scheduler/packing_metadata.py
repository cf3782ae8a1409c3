"""Scales and zeros of a packing: one value to each group in the type, ``[bands, groups, 4, 16]`` in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.scheduler.packing import BAND_TILES, METADATA_ROWS, TILE_ROWS, Packing


def pack_metadata(packing: Packing, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Per-group values ``[ceil(n/rows), groups]`` -> ``[bands, padded_groups, 4, 16]``; padding is 0 or its smallest value."""
    rows = packing.weight.group[0] or packing.n
    per_row = np.repeat(np.asarray(values), rows, axis=0)[: packing.n]
    fill = np.zeros((), np.uint8).view(dtype) if dtype.itemsize == 1 else np.zeros((), dtype)
    shape = (packing.stored_tiles * TILE_ROWS, packing.geometry.padded_groups)
    full = np.full(shape, fill, dtype)
    full[packing.row_places, : packing.geometry.groups] = per_row.astype(dtype)
    banded = full.reshape(packing.bands, BAND_TILES, TILE_ROWS, -1)[:, :, METADATA_ROWS]
    return np.ascontiguousarray(banded.transpose(0, 3, 1, 2))


def unpack_metadata(packing: Packing, packed: NDArray[Any]) -> NDArray[Any]:
    """The inverse of :func:`pack_metadata`."""
    by_tile = packing.metadata_by_tile(packed)
    rows = np.empty((packing.stored_tiles, TILE_ROWS, by_tile.shape[1]), packed.dtype)
    rows[:, METADATA_ROWS] = by_tile.transpose(0, 2, 1)
    per_row = rows.reshape(-1, packed.shape[1])[packing.row_places, : packing.geometry.groups]
    return np.ascontiguousarray(per_row[:: packing.weight.group[0] or packing.n])
