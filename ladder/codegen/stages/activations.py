"""Where activations lie in a ring slot: the map that the product instruction reads them by.

Both are 16-byte chunks of rows of k, permuted inside 128 bytes so that eight rows of one chunk column fall into eight
different bank groups; they differ in what stands next to what.

``mma``    rows of a whole block; the row's low bits are XORed into the chunk index (read by ldmatrix)
``wgmma``  tiles of 128 bytes of k: rows in the 128-byte swizzle of PTX ISA ("Shared Memory Matrix Layout"), one tile
           after the other (read through a matrix descriptor)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.scheduler.plan import Plan

#: 16-byte chunks in one row of a wgmma tile
TILE_CHUNKS = 8


def swizzled_chunk(row: Any, chunk: Any, chunks_per_row: int) -> Any:
    """Index of a 16-byte chunk of a row-major tile after the XOR swizzle.

    With 8 or more chunks a row the row's low bits are XORed in; narrower rows share a 128-byte line, so only the line's
    index is.
    """
    if chunks_per_row >= TILE_CHUNKS:
        return row * chunks_per_row + (chunk ^ (row & 7))
    rows_per_line = TILE_CHUNKS // chunks_per_row
    return row * chunks_per_row + (chunk ^ ((row // rows_per_line) & (chunks_per_row - 1)))


def _block_place(plan: Plan, row: Any, chunk: Any) -> Any:
    return swizzled_chunk(row, chunk, plan.packing.geometry.block_k // plan.piece)


def _tile_place(plan: Plan, row: Any, chunk: Any) -> Any:
    tile = chunk // TILE_CHUNKS * plan.rows_loaded + row
    return tile * TILE_CHUNKS + (chunk % TILE_CHUNKS ^ (row & 7))


_PLACES: dict[str, Callable[[Plan, Any, Any], Any]] = {"mma": _block_place, "wgmma": _tile_place}


def activation_place(plan: Plan, row: Any, chunk: Any) -> Any:
    """Index in a slot's activations of the 16-byte chunk ``chunk`` of row ``row`` of a block."""
    return _PLACES[plan.compute](plan, row, chunk)
