"""The weight types of the grids, by the name that a row calls them.

A name is that of the element or block format; where groups or zero points differ from the usual of this table (groups of
128, no zero point), the name says so. ``int4`` alone is the exception: it has zero points, as 4-bit weights are mostly
stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import ladder
from ladder.ttype import weight_type

if TYPE_CHECKING:
    from ladder.ttype import GroupedType, TType

GROUP = 128


def random_codebook(bits: int) -> TType:
    """A codebook that no file knows: sorted normal numbers of three decimals, the same at every call."""
    values = np.random.default_rng(bits).standard_normal(1 << bits)
    return ladder.TType(f"codebook{bits}", bits, values=np.sort(values.round(3)).tolist())


def _grouped(element: str, group: int = GROUP, zero: str | None = None) -> GroupedType:
    wt: GroupedType = ladder.types[element].grouped(group, scale="float16", zero=zero)
    return wt


def _codebook(bits: int) -> GroupedType:
    wt: GroupedType = random_codebook(bits).grouped(GROUP, scale="float16")
    return wt


def _dense(name: str) -> GroupedType:
    wt: GroupedType = weight_type(name)
    return wt


def _by_channel(element: str) -> GroupedType:
    wt: GroupedType = ladder.types[element].grouped("channel", scale="float16")
    return wt


def _as_it_is(name: str) -> GroupedType:
    wt: GroupedType = ladder.types[name]
    return wt


#: the weights of the grid that every commit is measured with
BASE: dict[str, Callable[[], GroupedType]] = {
    "int4": partial(_grouped, "int4", zero="integer"),
    "nf4": partial(_grouped, "nf4", 64),
    "mxfp4": partial(_as_it_is, "mxfp4"),
    **{name: partial(_grouped, name) for name in ("int8", "fp8_e4m3fn", "int3", "int2", "int1")},
}

#: row name -> the exact weight type
WEIGHTS: dict[str, Callable[[], GroupedType]] = {
    **BASE,
    "int4_sym": partial(_grouped, "int4"),
    "int4_g32": partial(_grouped, "int4", 32, "integer"),
    "int4_g64": partial(_grouped, "int4", 64, "integer"),
    "nf4_g128": partial(_grouped, "nf4"),
    "nvfp4": partial(_as_it_is, "nvfp4"),
    "codebook4": partial(_codebook, 4),
    "codebook3": partial(_codebook, 3),
    **{
        name: partial(_grouped, name)
        for name in ("uint2", "uint1", "int5", "int6", "fp4_e2m1", "fp6_e3m2", "fp8_e5m2")
    },
    **{name: partial(_dense, name) for name in ("float16", "bfloat16")},
    **{
        f"{name}_channel": partial(_by_channel, name)
        for name in ("int4", "int8", "fp4_e2m1", "fp8_e4m3fn")
    },
}


def weight_bytes(wt: GroupedType, n: int, k: int) -> int:
    """Bytes that a product has to read of a weight ``[n, k]``: codes, scales, and zeros, counted as float16.

    A zero point is a code of a few bits when it is declared, but every kernel of the grid reads a number that is ready to
    be multiplied.
    """
    rows, columns = wt.scale_shape(n, k)
    groups = rows * columns
    scales = 0 if wt.scale_dtype is None else groups * wt.scale_dtype.itemsize
    zeros = 0 if wt.zero is None else groups * 2
    return -(-n * k * wt.bits // 8) + scales + zeros
