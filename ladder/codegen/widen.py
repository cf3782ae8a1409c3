"""Widening of stored scales, zeros and biases to float32, and narrowing of outputs, as TensorIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e


def _bfloat16(word: Any) -> Any:
    return e.bits_as_f32(e.cast("uint32", word) << e.u32(16))


def _e8m0(byte: Any) -> Any:
    """2^(byte - 127): the byte is the float32 exponent; byte 0 is the subnormal 2^-127 (OCP MX 1.0, section 5.4.1)."""
    return _exponent(e.cast("uint32", byte) << e.u32(23))


def _exponent(bits: Any) -> Any:
    return e.bits_as_f32(e.most(bits, e.u32(0x00400000)))


def _e8m0_pair(word: Any) -> tuple[Any, Any]:
    mask = e.u32(0x7F800000)
    return _exponent((word << e.u32(23)) & mask), _exponent((word << e.u32(15)) & mask)


def _e4m3(byte: Any) -> Any:
    """Spliced into a float16, whose exponent bias is 8 larger: exact, subnormals included; NaN codes are refused earlier."""
    wide = e.cast("uint32", byte)
    half = ((wide & e.u32(0x80)) << e.u32(8)) | ((wide & e.u32(0x7F)) << e.u32(7))
    return e.call("cvt_f32_f16", e.cast("uint16", half)) * e.f32(256.0)


_WIDEN: dict[str, Callable[[Any], Any]] = {
    "float16": lambda word: e.call("cvt_f32_f16", word),
    "bfloat16": _bfloat16,
    "float32": lambda value: value,
    "float8_e8m0fnu": _e8m0,
    "float8_e4m3fn": _e4m3,
}

_NARROW: dict[str, Callable[[Any], Any]] = {
    "float16": lambda value: e.call("cvt_f16_f32", value),
    "bfloat16": lambda value: e.call("cvt_bf16_f32", value),
    "float32": lambda value: value,
    "int8": lambda value: e.cast("uint8", e.call("cvt_s8_f32", value)),
    "float8_e4m3fn": lambda value: e.cast("uint8", e.call("cvt_e4m3x2_f32", e.f32(0.0), value)),
}


def _e4m3_pair(word: Any) -> tuple[Any, Any]:
    """By the device's own conversion to float16, which is exact."""
    halves = e.hold(e.call("cvt_f16x2_e4m3x2", e.cast("uint16", word)), "halves", "uint32")
    return _WIDEN_PAIR["float16"](halves)


#: both elements of a word, low first: halves of 32 bits, or bytes of 16
_WIDEN_PAIR: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "float16": lambda word: (
        e.call("cvt_f32_f16", e.cast("uint16", word)),
        e.call("cvt_f32_f16", e.cast("uint16", word >> e.u32(16))),
    ),
    "bfloat16": lambda word: (
        e.bits_as_f32(word << e.u32(16)),
        e.bits_as_f32(word & e.u32(0xFFFF0000)),
    ),
    "float8_e8m0fnu": _e8m0_pair,
    "float8_e4m3fn": _e4m3_pair,
}


def _int8_twice(low: Any, high: Any) -> Any:
    codes = [e.call("cvt_s8_f32", value) for value in (low, high)]
    return e.call("prmt", *codes, e.u32(0x4400))


def _e4m3_twice(low: Any, high: Any) -> Any:
    both = e.cast("uint32", e.call("cvt_e4m3x2_f32", high, low))
    return e.call("prmt", both, both, e.u32(0x1100))


#: two float32 to the halves of a word; codes of 8 bits are the low bytes of theirs
_NARROW_TWICE: dict[str, Callable[[Any, Any], Any]] = {
    "float16": lambda low, high: e.call("cvt_f16x2_f32", high, low),
    "bfloat16": lambda low, high: e.call("cvt_bf16x2_f32", high, low),
    "int8": _int8_twice,
    "float8_e4m3fn": _e4m3_twice,
}


def widen_pair(dtype: str, word: Any, converts: bool = True) -> tuple[Any, Any] | None:
    """The float32 values of the two elements that one word holds; None where they are widened one by one.

    Args:
        dtype: of the elements.
        word: 32 bits whose low ones hold them.
        converts: whether the device converts pairs of fp8_e4m3fn itself.
    """
    if dtype not in _WIDEN_PAIR or (dtype == "float8_e4m3fn" and not converts):
        return None
    return _WIDEN_PAIR[dtype](word)


def narrow_pair(dtype: str, low: Any, high: Any) -> Any:
    """Two float32 rounded to nearest even, as a word of two elements of 16 bits, or of two codes in 16 bits each."""
    return _NARROW_TWICE[dtype](low, high)


def widen(dtype: str, stored: Any) -> Any:
    """The float32 value of a stored element."""
    return _WIDEN[dtype](stored)


def narrow(dtype: str, value: Any) -> Any:
    """A float32 rounded to nearest even and stored as ``dtype``; types of 8 bits saturate."""
    return _NARROW[dtype](value)
