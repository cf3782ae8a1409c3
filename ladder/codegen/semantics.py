"""NumPy meanings of register instructions: what the emulator runs and what the intrinsics table refers to.

Every function takes arrays of bit patterns (``uint32`` unless said otherwise) of any equal shape, one element per lane, or
NumPy scalars, and returns a fresh array; no argument is changed. No TVM, no CUDA: these are the PTX ISA's definitions.

    prmt(0x33221100, 0x77665544, 0x5140)  -->  0x55114400
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ladder.codegen.truth_tables import Bits, Meaning, lop3_function
from ladder.scheduler import single

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

_U8, _U16, _U32, _U64 = np.uint8, np.uint16, np.uint32, np.uint64

#: canonical NaN of float16 and of bfloat16 (PTX ISA, "NaN payloads are not preserved")
NAN16 = 0x7FFF


def _words(x: npt.ArrayLike) -> Bits:
    return np.ascontiguousarray(x, _U32)


# ---- integer -----------------------------------------------------------------------------------------------------


def lop3(a: Bits, b: Bits, c: Bits, table: int) -> Bits:
    """Per bit ``table[a<<2 | b<<1 | c]`` (PTX ISA lop3)."""
    return np.asarray(lop3_function(int(table))(a, b, c), _U32)


def prmt(a: Bits, b: Bits, selector: Bits) -> Bits:
    """Pick four of the eight bytes of ``{b, a}``; selector bit 3 replicates the byte's sign (PTX ISA prmt, default mode)."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(selector))
    pool = np.empty((*shape, 2), _U32)
    pool[..., 0], pool[..., 1] = a, b
    nibbles = np.asarray(selector)[..., None] >> _PRMT_SHIFTS & _U32(15)
    first = np.arange(0, 8 * pool.size // 2, 8).reshape((*shape, 1))
    picked = pool.view(_U8).reshape(-1).take(first + (nibbles & _U32(7)))
    if np.count_nonzero(nibbles & _U32(8)):
        sign = np.where(picked & 0x80, _U8(255), _U8(0))
        picked = np.where(nibbles & _U32(8), sign, picked)
    out: Bits = picked.view(_U32)[..., 0]
    return out


_PRMT_SHIFTS = np.array([0, 4, 8, 12], _U32)


def shf(low: Bits, high: Bits, count: Bits, *, left: bool, clamp: bool) -> Bits:
    """Funnel shift of ``{high, low}`` (PTX ISA shf): the high word of a left shift, the low word of a right one."""
    wide = np.asarray(low).astype(_U64) | np.asarray(high).astype(_U64) << _U64(32)
    n = np.asarray(count).astype(_U64)
    n = np.minimum(n, _U64(32)) if clamp else n & _U64(31)
    moved = (wide << n) >> _U64(32) if left else wide >> n
    out: Bits = (moved & _U64(0xFFFFFFFF)).astype(_U32)
    return out


def shl(a: Bits, count: Bits) -> Bits:
    """Shift left; counts over 31 give 0 (PTX ISA shl)."""
    return np.asarray(np.where(np.asarray(count) > 31, _U32(0), a << (count & _U32(31))))


def shr(a: Bits, count: Bits) -> Bits:
    """Logical shift right; counts over 31 give 0 (PTX ISA shr.u32)."""
    return np.asarray(np.where(np.asarray(count) > 31, _U32(0), a >> (count & _U32(31))))


def rotate(a: Bits, count: int) -> Bits:
    """Rotate left by ``count``."""
    n = _U32(count & 31)
    return np.asarray(a << n | a >> (_U32(32) - n & _U32(31)) if n else a | _U32(0), _U32)


# ---- packed float16 and bfloat16 -----------------------------------------------------------------------------------


def halves(x: Bits) -> npt.NDArray[np.float16]:
    """View words as pairs of float16, low half first: [...] -> [..., 2]."""
    return np.ascontiguousarray(x)[..., None].view(np.float16)


def brains(x: Bits) -> Floats:
    """Widen words of two bfloat16 to float32, low half first: [...] -> [..., 2]."""
    pairs = np.ascontiguousarray(x)[..., None].view(_U16).astype(_U32)
    out: Floats = (pairs << _U32(16)).view(np.float32)
    return out


@functools.cache
def _brain_values() -> Doubles:
    """Every bfloat16 as float64."""
    codes = np.arange(1 << 16, dtype=_U32) << _U32(16)
    values: Doubles = codes.view(np.float32).astype(np.float64)
    return values


def brains_wide(x: Bits) -> Doubles:
    """Widen words of two bfloat16 to float64, low half first: [...] -> [..., 2]."""
    out: Doubles = _brain_values().take(np.ascontiguousarray(x)[..., None].view(_U16))
    return out


def pack_f16(pairs: npt.NDArray[np.float16]) -> Bits:
    """Inverse of :func:`halves`, with the canonical NaN."""
    bits = np.ascontiguousarray(pairs, np.float16).view(_U16)
    nan = pairs != pairs  # noqa: PLR0124  true for NaN only
    if np.count_nonzero(nan):
        bits = np.where(nan, _U16(NAN16), bits)
    return bits.view(_U32)[..., 0]


def bf16_bits(x: Floats) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16 bit patterns, to nearest even, with the canonical NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(_U32)
    near = ((bits + _U32(0x7FFF) + (bits >> _U32(16) & _U32(1))) >> _U32(16)).astype(_U16)
    nan = (bits & _U32(0x7FFFFFFF)) > _U32(0x7F800000)
    out: npt.NDArray[np.uint16] = np.where(nan, _U16(NAN16), near) if nan.any() else near
    return out


def pack_bf16(pairs: Floats) -> Bits:
    """Round pairs of float32 to words of two bfloat16: [..., 2] -> [...]."""
    return np.ascontiguousarray(bf16_bits(pairs)).view(_U32)[..., 0]


def fma_odd(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """Return ``a*b + c`` rounded to odd in float64, for an exact product ``a*b``.

    A value rounded to odd and then to at most 51 bits is rounded once (Boldo and Melquiond, "Emulation of FMA").
    """
    product = a * b
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    inexact = (error != 0) & np.isfinite(total)
    if not inexact.any():
        return total
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(inexact & (bits & 1 == 0), bits + step, bits)
    return odd.view(np.float64)


def _odd_to_single(x: Doubles) -> Floats:
    """Round float64 to float32 to odd, so that a second rounding to bfloat16 is harmless."""
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32)
    fix = (back != x) & (bits & 1 == 0) & np.isfinite(near)
    if not fix.any():
        return near
    step = np.where((x > back) == (back > 0), 1, -1).astype(np.int32)
    tiny = fix & (back == 0)
    bits = np.where(fix & ~tiny, bits + step, bits)
    signed_one = np.where(x < 0, np.int32(-0x7FFFFFFF), np.int32(1))
    return np.where(tiny, signed_one, bits).astype(np.int32).view(np.float32)


def fma_f16x2(a: Bits, b: Bits, c: Bits) -> Bits:
    """Two lanes of ``a*b + c``, rounded once (PTX ISA fma.rn.f16x2: subnormals are supported).

    The product has 22 bits and is exact. Where float64 cannot hold the sum, one term is below 2**-31 of the other; the larger is
    then a float16 itself or out of range, and no tie of float16 is near.
    """
    total = halves(a).astype(np.float64) * halves(b) + halves(c)
    return pack_f16(total.astype(np.float16))


def fma_bf16x2(a: Bits, b: Bits, c: Bits) -> Bits:
    """Two lanes of ``a*b + c``, rounded once (PTX ISA fma.rn.bf16x2: subnormals are supported)."""
    x, y, z = brains_wide(a), brains_wide(b), brains_wide(c)
    total = x * y + z
    single = total.astype(np.float32)
    bits = single.view(_U32)
    if np.count_nonzero(single == total) == total.size and not np.count_nonzero(
        bits & _U32(0xFFFF)
    ):
        # A bfloat16 already; what float64 may have dropped is far below half a place of it.
        return np.ascontiguousarray((bits >> _U32(16)).astype(_U16)).view(_U32)[..., 0]
    return pack_bf16(_odd_to_single(fma_odd(x, y, z)))


def _lanes16(operation: Callable[..., npt.NDArray[np.float16]]) -> Meaning:
    def apply(*args: Bits) -> Bits:
        return pack_f16(operation(*map(halves, args)))

    return apply


def _lanes_bf16(operation: Callable[..., Floats]) -> Meaning:
    def apply(*args: Bits) -> Bits:
        return pack_bf16(operation(*map(brains, args)))

    return apply


# float16 and bfloat16 have 11 and 8 bits: float32 has more than twice as many and two, so that rounding twice is harmless
add_f16x2, add_bf16x2 = _lanes16(np.add), _lanes_bf16(np.add)
sub_f16x2, sub_bf16x2 = _lanes16(np.subtract), _lanes_bf16(np.subtract)
mul_f16x2, mul_bf16x2 = _lanes16(np.multiply), _lanes_bf16(np.multiply)
#: minimum and maximum return the operand that is a number, with .NaN the one that is none (PTX ISA min, max)
_LANEWISE = {
    "min": np.fmin,
    "max": np.fmax,
    "max_nan": np.maximum,
    "abs": np.abs,
    "neg": np.negative,
}


def max_s16x2(a: Bits, b: Bits) -> Bits:
    """The larger of two signed integers in either half (PTX ISA max.s16x2)."""
    x, y = (np.ascontiguousarray(v, _U32)[..., None].view(np.int16) for v in (a, b))
    return np.ascontiguousarray(np.maximum(x, y)).view(_U32)[..., 0]


# ---- conversions -------------------------------------------------------------------------------------------------


def _eight(dtype: npt.DTypeLike) -> npt.NDArray[np.uint16]:
    values = np.arange(256, dtype=_U8).view(dtype).astype(np.float16)
    return np.where(np.isnan(values), _U16(NAN16), values.view(_U16))


#: float16 bit pattern of each 8-bit float code; every value of both formats is a float16
E4M3_TO_F16 = _eight(ml_dtypes.float8_e4m3fn)
E5M2_TO_F16 = _eight(ml_dtypes.float8_e5m2)


def _pair_from(table: npt.NDArray[np.uint16], x: npt.ArrayLike) -> Bits:
    codes = np.ascontiguousarray(np.asarray(x).astype(_U16))[..., None].view(_U8)
    return np.ascontiguousarray(table[codes]).view(_U32)[..., 0]


def e4m3x2_to_f16x2(x: npt.ArrayLike) -> Bits:
    """Convert the low 16 bits, two e4m3 codes, to two float16 (PTX ISA cvt.rn.f16x2.e4m3x2)."""
    return _pair_from(E4M3_TO_F16, x)


def e5m2x2_to_f16x2(x: npt.ArrayLike) -> Bits:
    """Convert the low 16 bits, two e5m2 codes, to two float16 (PTX ISA cvt.rn.f16x2.e5m2x2)."""
    return _pair_from(E5M2_TO_F16, x)


def f32x2_to_f16x2(high: Floats, low: Floats) -> Bits:
    """Round two float32 to float16; the first operand becomes the high half (PTX ISA cvt.rn.f16x2.f32)."""
    return pack_f16(np.stack(np.broadcast_arrays(low, high), -1).astype(np.float16))


def f32x2_to_bf16x2(high: Floats, low: Floats) -> Bits:
    """Round two float32 to bfloat16; the first operand becomes the high half (PTX ISA cvt.rn.bf16x2.f32)."""
    return pack_bf16(np.stack(np.broadcast_arrays(low, high), -1))


def f16_to_f32(x: npt.ArrayLike) -> Floats:
    """Widen the float16 in the low 16 bits."""
    return np.asarray(x).astype(_U16).view(np.float16).astype(np.float32)


def bf16_to_f32(x: npt.ArrayLike) -> Floats:
    """Widen the bfloat16 in the low 16 bits."""
    out: Floats = (np.asarray(x).astype(_U32) << _U32(16)).view(np.float32)
    return out


def fma_f32(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return ``a*b + c`` rounded once (PTX ISA fma.rn.f32)."""
    x, y, z = (np.asarray(v, np.float32).astype(np.float64) for v in (a, b, c))
    total = np.asarray(x * y + z)
    # Of two roundings the second is another where the first ends on a tie of float32 or among its subnormals, which is rare.
    tie = total.view(np.int64) & _BELOW_SINGLE == _TIE
    tiny = (np.abs(total) < single.TINY) & (total != 0)
    if np.count_nonzero(tie) or np.count_nonzero(tiny):
        total = fma_odd(*np.broadcast_arrays(x, y, z))
    return _canonical(total.astype(np.float32))


#: bits of a float64 that a float32 has not, and what they are half way between two
_BELOW_SINGLE, _TIE = (1 << 29) - 1, 1 << 28


def _canonical(x: Floats) -> Floats:
    nan = np.isnan(x)
    return np.where(nan, _CANONICAL_NAN, x) if nan.any() else x


_CANONICAL_NAN = np.array(0x7FFFFFFF, _U32).view(np.float32)


def f32_to_s8(x: npt.ArrayLike) -> Bits:
    """Round to the nearest integer, ties to even, saturating; a NaN is 0 (PTX ISA cvt.rni.sat.s8.f32, sign-extended)."""
    held = np.clip(np.nan_to_num(np.rint(np.asarray(x, np.float32))), -128, 127)
    return np.asarray(held.astype(np.int32).view(_U32))


def f32x2_to_e4m3x2(high: npt.ArrayLike, low: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Two float32 as e4m3 codes, the first in the upper byte (PTX ISA cvt.rn.satfinite.e4m3x2.f32: NaN is 0x7F)."""
    pair = np.stack(np.broadcast_arrays(low, high), -1).astype(np.float32)
    held = np.clip(pair, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(_U8)
    codes: npt.NDArray[np.uint16] = np.where(np.isnan(pair), _U8(0x7F), held).view(_U16)
    return codes[..., 0]


#: meanings by short name, for tables of intrinsics whose device text has its own name
MEANINGS: dict[str, Meaning] = {
    "hold_f32": lambda x: x,
    "hold_u32": lambda x: x,
    "lop3": lop3,
    "prmt": prmt,
    "shl": shl,
    "shr": shr,
    "rotate": rotate,
    "shf_l_wrap": functools.partial(shf, left=True, clamp=False),
    "shf_r_wrap": functools.partial(shf, left=False, clamp=False),
    "shf_l_clamp": functools.partial(shf, left=True, clamp=True),
    "shf_r_clamp": functools.partial(shf, left=False, clamp=True),
    "max_s16x2": max_s16x2,
    "low_twice": lambda x: prmt(x, x, _U32(0x1010)),
    "high_twice": lambda x: prmt(x, x, _U32(0x3232)),
    "fma_f16x2": fma_f16x2,
    "fma_bf16x2": fma_bf16x2,
    "add_f16x2": add_f16x2,
    "add_bf16x2": add_bf16x2,
    "sub_f16x2": sub_f16x2,
    "sub_bf16x2": sub_bf16x2,
    "mul_f16x2": mul_f16x2,
    "mul_bf16x2": mul_bf16x2,
    **{f"{name}_f16x2": _lanes16(function) for name, function in _LANEWISE.items()},
    **{f"{name}_bf16x2": _lanes_bf16(function) for name, function in _LANEWISE.items()},
    "e4m3x2_to_f16x2": e4m3x2_to_f16x2,
    "e5m2x2_to_f16x2": e5m2x2_to_f16x2,
    "f32x2_to_f16x2": f32x2_to_f16x2,
    "f32x2_to_bf16x2": f32x2_to_bf16x2,
    "f16_to_f32": f16_to_f32,
    "bf16_to_f32": bf16_to_f32,
    "low_f16": lambda x: halves(x)[..., 0].astype(np.float32),
    "high_f16": lambda x: halves(x)[..., 1].astype(np.float32),
    "low_bf16": lambda x: brains(x)[..., 0],
    "high_bf16": lambda x: brains(x)[..., 1],
    "fma_f32": fma_f32,
    "ex2_f32": lambda x: _canonical(single.exp2(x)),
    "rcp_f32": lambda x: _canonical(single.reciprocal(x)),
}
