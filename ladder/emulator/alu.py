"""Register instructions: from an opcode to a NumPy function of its source operands.

A function takes one array (or NumPy scalar) for each source register, in the dtype that carries the operand's PTX type, and returns
the destination, or a tuple of destinations. The meanings themselves are in :mod:`ladder.codegen.semantics`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ladder.codegen import semantics as s
from ladder.codegen.truth_tables import lop3_function
from ladder.emulator.report import Fault

Function = Callable[..., Any]
Builder = Callable[[list[str]], Function]

_U32, _U64 = np.uint32, np.uint64
_FLOATS = {"f32", "f64"}


def alu_function(text: str) -> Function | None:
    """Return the function of a register instruction given as PTX text, or None when it is no such instruction.

    Raises:
        Fault: ``unsupported`` when the mnemonic is known and the variant is not.
    """
    words = text.split(".")
    builder = _BUILDERS.get(words[0])
    if builder is None:
        return None
    function = builder(words)
    if function is None:
        raise Fault(f"unsupported: {text}", at="ladder.emulator.alu")
    out: Function | None = function
    return out


def _lop3(words: list[str]) -> Function | None:
    if words != ["lop3", "b32"]:
        return None
    return lambda a, b, c, table: lop3_function(int(table))(a, b, c)


def _prmt(words: list[str]) -> Function | None:
    return s.prmt if words == ["prmt", "b32"] else None


def _shf(words: list[str]) -> Function | None:
    if len(words) != 4 or words[3] != "b32":
        return None
    return functools.partial(s.shf, left=words[1] == "l", clamp=words[2] == "clamp")


def _shl(words: list[str]) -> Function | None:
    return s.shl if words[-1] == "b32" else None


def _shr(words: list[str]) -> Function | None:
    if words[-1] in ("b32", "u32"):
        return s.shr
    if words[-1] == "s32":
        return lambda a, n: a >> np.minimum(n, 31).astype(np.int32)
    return None


def _bitwise(function: Function) -> Builder:
    return lambda words: function if words[-1][0] == "b" else None  # type: ignore[return-value]


def _pair_type(words: list[str]) -> str:
    return next((w for w in words if w in ("f16x2", "bf16x2")), "")


def _arithmetic(name: str, plain: Function) -> Builder:
    def build(words: list[str]) -> Function | None:
        pair = _pair_type(words)
        plain_words = set(words[1:]) <= {
            "rn",
            pair,
            "f32",
            "f64",
            "u32",
            "s32",
            "u64",
            "s64",
            "lo",
            "ftz",
        }
        if not plain_words:
            return None
        if pair:
            return s.MEANINGS.get(f"{name}_{pair}")
        if name == "mul" and words[-1] not in _FLOATS and "lo" not in words:
            return None
        return plain

    return build  # type: ignore[return-value]


def _greatest(words: list[str]) -> Function | None:
    pair = _pair_type(words)
    if pair and words[1:] == ["NaN", pair]:
        return s.MEANINGS[f"max_nan_{pair}"]
    if words[1:] == ["s16x2"]:
        return s.MEANINGS["max_s16x2"]
    return _arithmetic("max", np.fmax)(words)


def _fma(words: list[str]) -> Function | None:
    if words[1:] == ["rn", "f32"]:
        return s.fma_f32
    pair = _pair_type(words)
    if words[1:] == ["rn", pair]:
        return s.MEANINGS[f"fma_{pair}"]
    return None


def _approximate(function: Function) -> Builder:
    """Fast functions of the device, by their exact results."""
    return lambda words: function if words[1:] == ["approx", "ftz", "f32"] else None  # type: ignore[return-value]


def _mad(words: list[str]) -> Function | None:
    if words[1:] in (["lo", "u32"], ["lo", "s32"], ["lo", "u64"], ["lo", "s64"]):
        return lambda a, b, c: a * b + c
    return None


def _mul_wide(words: list[str]) -> Function | None:
    if words[1] == "wide" and words[2] in ("u32", "s32"):
        dtype = _U64 if words[2] == "u32" else np.int64
        return lambda a, b: np.asarray(a).astype(dtype) * np.asarray(b).astype(dtype)
    if words[1] == "hi" and words[2] == "u32":
        return lambda a, b: ((np.asarray(a).astype(_U64) * b) >> _U64(32)).astype(_U32)
    return _arithmetic("mul", operator.mul)(words)


def _half_bits(x: Any) -> Any:
    return np.asarray(x, np.float32).astype(np.float16).view(np.uint16)


_CONVERSIONS: dict[str, Function] = {
    "rn.f16x2.e4m3x2": s.e4m3x2_to_f16x2,
    "rn.f16x2.e5m2x2": s.e5m2x2_to_f16x2,
    "rn.f16x2.f32": s.f32x2_to_f16x2,
    "rn.bf16x2.f32": s.f32x2_to_bf16x2,
    "f32.f16": s.f16_to_f32,
    "f32.bf16": s.bf16_to_f32,
    "rn.f16.f32": _half_bits,
    "rn.bf16.f32": s.bf16_bits,
    "rni.sat.s8.f32": s.f32_to_s8,
    "rn.satfinite.e4m3x2.f32": s.f32x2_to_e4m3x2,
    "rn.f32.s32": lambda x: np.asarray(x).astype(np.float32),
    "rn.f32.u32": lambda x: np.asarray(x).astype(np.float32),
    "rzi.s32.f32": lambda x: np.trunc(x).astype(np.int64).astype(np.int32),
    "rni.s32.f32": lambda x: np.rint(x).astype(np.int64).astype(np.int32),
    "u64.u32": lambda x: np.asarray(x).astype(_U64),
    "s64.s32": lambda x: np.asarray(x).astype(np.int64),
    "u32.u16": lambda x: np.asarray(x).astype(_U32),
    "u32.u64": lambda x: np.asarray(x).astype(_U32),
    "u16.u32": lambda x: np.asarray(x).astype(np.uint16),
}


def _cvt(words: list[str]) -> Function | None:
    return _CONVERSIONS.get(".".join(words[1:]))


_COMPARISONS: dict[str, Function] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


def _setp(words: list[str]) -> Function | None:
    if len(words) != 3 or words[1] not in _COMPARISONS:
        return None
    compare = _COMPARISONS[words[1]]
    return lambda a, b: np.asarray(compare(a, b)).astype(_U32)


def _selp(_words: list[str]) -> Function | None:
    return lambda a, b, p: np.where(np.asarray(p) != 0, a, b)


def _mov(words: list[str]) -> Function | None:
    if len(words) != 2:
        return None
    return _move if words[1] in ("b32", "u32", "s32", "f32", "b64", "u64", "b16", "u16") else None


def _move(*sources: Any) -> Any:
    """One source: a copy. Several: packed into the destination, the first one lowest."""
    if len(sources) == 1:
        return np.asarray(sources[0])[...]
    parts = np.stack(np.broadcast_arrays(*sources), -1)
    wide = {4: _U32, 8: _U64}[parts.itemsize * len(sources)]
    return np.ascontiguousarray(parts).view(wide)[..., 0]


def unpack(value: Any, count: int) -> tuple[Any, ...]:
    """``mov.b64 {lo, hi}, a``: a value as ``count`` parts, the lowest first."""
    words = np.ascontiguousarray(value)[..., None]
    part = np.dtype(f"uint{8 * words.itemsize // count}")
    pieces = words.view(part)
    return tuple(np.ascontiguousarray(pieces[..., i]) for i in range(count))


def _popc(_words: list[str]) -> Function | None:
    return lambda x: np.bitwise_count(x).astype(_U32) if hasattr(np, "bitwise_count") else _count(x)


def _count(x: Any) -> Any:
    bits = np.unpackbits(np.ascontiguousarray(x)[..., None].view(np.uint8), axis=-1)
    return bits.sum(-1).astype(_U32)


def _bfe(words: list[str]) -> Function | None:
    if words[-1] != "u32":
        return None

    def extract(a: Any, first: Any, length: Any) -> Any:
        n = np.minimum(np.asarray(length) & _U32(255), _U32(32)).astype(_U64)
        p = np.minimum(np.asarray(first) & _U32(255), _U32(63)).astype(_U64)
        return (np.asarray(a).astype(_U64) >> p & ((_U64(1) << n) - _U64(1))).astype(_U32)

    return extract


def _bfi(words: list[str]) -> Function | None:
    if words[-1] != "b32":
        return None

    def insert(a: Any, b: Any, first: Any, length: Any) -> Any:
        n = np.minimum(np.asarray(length) & _U32(255), _U32(32)).astype(_U64)
        p = np.minimum(np.asarray(first) & _U32(255), _U32(63)).astype(_U64)
        field = (((_U64(1) << n) - _U64(1)) << p).astype(_U64)
        moved = np.asarray(a).astype(_U64) << p & field
        return ((np.asarray(b).astype(_U64) & ~field) | moved).astype(_U32)

    return insert


def _dp4a(words: list[str]) -> Function | None:
    if words[1:] not in (["s32", "s32"], ["u32", "u32"]):
        return None
    part = np.int8 if words[1] == "s32" else np.uint8

    def dot(a: Any, b: Any, c: Any) -> Any:
        x = np.ascontiguousarray(a)[..., None].view(part).astype(np.int32)
        y = np.ascontiguousarray(b)[..., None].view(part).astype(np.int32)
        return ((x * y).sum(-1).astype(c.dtype) + c).astype(c.dtype)

    return dot


def _unary(name: str, plain: Function) -> Builder:
    return _arithmetic(name, plain)


_BUILDERS: dict[str, Any] = {
    "lop3": _lop3,
    "prmt": _prmt,
    "shf": _shf,
    "shl": _shl,
    "shr": _shr,
    "and": _bitwise(operator.and_),
    "or": _bitwise(operator.or_),
    "xor": _bitwise(operator.xor),
    "not": _bitwise(operator.invert),
    "add": _arithmetic("add", operator.add),
    "sub": _arithmetic("sub", operator.sub),
    "mul": _mul_wide,
    "mad": _mad,
    "min": _arithmetic("min", np.fmin),
    "max": _greatest,
    "neg": _unary("neg", operator.neg),
    "abs": _unary("abs", np.abs),
    "fma": _fma,
    "ex2": _approximate(s.MEANINGS["ex2_f32"]),
    "rcp": _approximate(s.MEANINGS["rcp_f32"]),
    "cvt": _cvt,
    "setp": _setp,
    "selp": _selp,
    "mov": _mov,
    "popc": _popc,
    "bfe": _bfe,
    "bfi": _bfi,
    "dp4a": _dp4a,
}
