"""Pointers and calls inside expressions: ``address_of``, shuffles, device functions, math functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ladder.emulator import intrinsics
from ladder.emulator.program import DTYPES, Json
from ladder.emulator.report import Fault
from ladder.emulator.translate_defer import COSTLY
from ladder.emulator.translate_expr import expression, full, wrapped
from ladder.emulator.translate_scope import Form, Scope, Value

#: CUDA math functions; device versions may differ from these by a few ulp
MATH: dict[str, Callable[..., Any]] = {
    "expf": np.exp,
    "exp2f": np.exp2,
    "logf": np.log,
    "log2f": np.log2,
    "sqrtf": np.sqrt,
    "rsqrtf": lambda x: (1 / np.sqrt(x)).astype(np.float32),
    "tanhf": np.tanh,
    "fabsf": np.abs,
    "fmaxf": np.fmax,
    "fminf": np.fmin,
    "floorf": np.floor,
    "ceilf": np.ceil,
    "truncf": np.trunc,
    "rintf": np.rint,
    "__expf": np.exp,
    "hexp": np.exp,
    "__popc": lambda x: np.bitwise_count(x).astype(np.uint32),
}


def pointer(scope: Scope, node: Json) -> Value:
    """Translate an address: a pointer, or a shared address held in an integer.

    The space of an integer address is the instruction's affair.
    """
    if node[0] == "call" and node[1] == "cuda.cvta_generic_to_shared":
        value = pointer(scope, node[3])
        if value.home not in ("shared", ""):
            raise Fault(
                f"bounds: a shared address made of a pointer into {value.home}", at=str(node)[:120]
            )
        return replace(value, dtype="handle", home="shared")
    if node[0] == "call" and node[1] == "ptx.addr":
        base, offset = pointer(scope, node[3]), expression(scope, node[4])
        return replace(base, code=f"({base.code} + {offset.code})")
    return expression(scope, node)


def _call(scope: Scope, node: Json, lane: int) -> Value:
    name = node[1]
    if name in scope.calls:
        return scope.calls[name](scope, node, lane)
    if name.startswith("func."):
        return _device_function(scope, node, lane)
    if name.startswith("extern."):
        return _math(scope, node, lane)
    raise Fault(f"unsupported: call of {name}", at=str(node)[:120])


def _buffer(scope: Scope, node: Json, _lane: int) -> Value:
    return _pointer_to(scope, node[1], Value("0", "U", "int32"))


def _pointer_to(scope: Scope, number: int, index: Value) -> Value:
    if scope.buffer(number).space == "local":
        return Value(f"({number}, {index.code})", "U", "handle", "local")
    return scope.pointer(number, index)


def _address_of(scope: Scope, node: Json, _lane: int) -> Value:
    load = node[3]
    if load[0] != "load":
        return expression(scope, load)
    return _pointer_to(scope, load[1], expression(scope, load[2]))


def _same(scope: Scope, node: Json, lane: int) -> Value:
    return expression(scope, node[3], lane)


def _byte_offset(scope: Scope, node: Json, _lane: int) -> Value:
    base, offset = expression(scope, node[3]), expression(scope, node[4])
    kind = "V" if "V" in (base.kind, offset.kind) else "U"
    return replace(base, code=f"({base.code} + {offset.code})", kind=kind)  # type: ignore[arg-type]


def _to_shared(scope: Scope, node: Json, _lane: int) -> Value:
    value = pointer(scope, node)
    if value.kind == "V":
        return Value(f"({value.code}).astype({scope.dtype('uint32')})", "V", "uint32")
    return Value(value.code, "U", "uint32")


def _reinterpret(scope: Scope, node: Json, lane: int) -> Value:
    value, dtype = expression(scope, node[3], lane), node[2]
    if value.is_pointer or dtype.startswith("handle"):
        return value
    if value.dtype == dtype:
        return value
    if value.kind == "U":
        code = f"{scope.dtype(value.dtype)}.type({value.code}).view({scope.dtype(dtype)})"
        if dtype.startswith(("int", "uint")):
            code = f"int({code})"
        return Value(code, "U", dtype)
    return Value(f"({value.code}).view({scope.dtype(dtype)})", "V", dtype)


def _if_then_else(scope: Scope, node: Json, lane: int) -> Value:
    return expression(scope, ["select", *node[3:6]], lane)


def _bit_call(name: str) -> Form:
    return lambda scope, node, lane: expression(scope, [name, node[3], node[4]], lane)


def _bit_not(scope: Scope, node: Json, lane: int) -> Value:
    a = expression(scope, node[3], lane)
    code = f"(~{a.code})" if a.kind == "V" else wrapped(f"~{a.code}", a.dtype)
    return Value(code, a.kind, a.dtype)


def _shuffle(mode: str) -> Form:
    def translate(scope: Scope, node: Json, lane: int) -> Value:
        members, value, source, width = (expression(scope, a, lane) for a in node[3:7])
        scope.count(f"shfl.sync.{mode}.b32")
        site = scope.site(f"shfl.sync.{mode}")
        code = (
            f"cuda_shuffle(W, {scope.mask}, {site}, {mode!r}, {full(scope, value)}, "
            f"{source.code}, {width.code}, {members.code})"
        )
        if mode == "idx" and source.kind == "U" and width.code == "32":
            return Value(scope.temp(f"{code}[0].item()"), "U", value.dtype)
        return Value(scope.temp(code), "V", value.dtype)

    return translate


def _arguments(
    scope: Scope, nodes: list[Json], lane: int, carriers: Sequence[str | None] = ()
) -> tuple[str, bool]:
    """Text of the arguments, each in the dtype that its parameter has, and whether one is a vector."""
    values = [expression(scope, node, lane) for node in nodes]
    wanted = carriers or [None] * len(values)
    codes = [_argument(scope, v, c or v.dtype) for v, c in zip(values, wanted, strict=True)]
    return ", ".join(codes), any(value.kind == "V" for value in values)


def _argument(scope: Scope, value: Value, dtype: str) -> str:
    target = scope.dtype(dtype)
    if value.kind == "V":
        if value.dtype == dtype:
            return value.code
        same = DTYPES[value.dtype].itemsize == DTYPES[dtype].itemsize
        return f"({value.code}).{'view' if same else 'astype'}({target})"
    if not value.dtype.startswith(("int", "uint")):
        return value.code if value.dtype == dtype else f"({value.code}).view({target})"
    own = DTYPES[value.dtype]
    if value.code.isdigit():
        number = own.type(int(value.code))
        number = (
            number.view(dtype)
            if own.itemsize == DTYPES[dtype].itemsize
            else DTYPES[dtype].type(number)
        )
        return scope.constant(f"{dtype} {value.dtype} {value.code}", number)
    code = f"{scope.dtype(value.dtype)}.type({value.code})"
    return code if value.dtype == dtype else f"{code}.view({target})"


def _device_function(scope: Scope, node: Json, lane: int) -> Value:
    name = node[1].removeprefix("func.")
    text = scope.program.externs[name]
    if not node[2] and intrinsics.orders_only(text):
        return Value("NONE", "U", "")
    meaning = intrinsics.meaning(name, text)
    held = scope.constant(name, meaning.function, "F")
    codes, vector = _arguments(scope, node[3:], lane, meaning.carriers)
    scope.count(f"func.{name}")
    dtype = node[2]
    if vector:
        return Value(scope.temp(f"{held}({codes})"), "V", dtype)
    result = f"uniform({held}, {codes})"
    code = f"int({result})" if dtype.startswith(("int", "uint")) else result
    return Value(scope.temp(code), "U", dtype)


def put_off(scope: Scope, number: int, value: Json, index: Json) -> bool:
    """Let ``register = device function`` wait, where it is worth it and safe."""
    if not (isinstance(value, list) and value[0] == "call" and value[1].startswith("func.")):
        return False
    name = value[1].removeprefix("func.")
    safe = scope.mask == "None" and isinstance(index, int)
    if not (safe and scope.options.together) or number in scope.tracked:
        return False
    if value[2] != scope.buffer(number).dtype:
        return False
    meaning = intrinsics.meaning(name, scope.program.externs[name])
    if meaning.function not in COSTLY:
        return False
    values = [expression(scope, node) for node in value[3:]]
    if not any(v.kind == "V" for v in values):
        return False
    texts = [
        (_argument(scope, v, carrier or v.dtype), v.kind == "V")
        for v, carrier in zip(values, meaning.carriers, strict=True)
    ]
    scope.count(f"func.{name}")
    held = scope.constant(name, meaning.function, "F")
    if number in scope.fragile:  # refused where it stands in the text, not where it is done
        site = scope.site("register", scope.buffer(number).name)
        scope.emit(f"fragile_write(W, {site}, h{number}, {index})")
    scope.deferred.call(held, (number, index), texts)
    scope.known.add((number, index))
    return True


def _math(scope: Scope, node: Json, lane: int) -> Value:
    name = node[1].removeprefix("extern.")
    if name not in MATH:
        raise Fault(f"unsupported: device math function {name}", at=str(node)[:120])
    held = scope.constant(name, MATH[name], "F")
    codes, vector = _arguments(scope, node[3:], lane)
    scope.count(f"func.{name}")
    if vector:
        return Value(scope.temp(f"{held}({codes})"), "V", node[2])
    return Value(f"uniform({held}, {codes})", "U", node[2])


#: calls by name; those with memory order are in :mod:`ladder.emulator.translate_order`
CALLS: dict[str, Form] = {
    "address_of": _address_of,
    "buffer_data": _same,
    "handle_add_byte_offset": _byte_offset,
    "cuda.cvta_generic_to_shared": _to_shared,
    "reinterpret": _reinterpret,
    "if_then_else": _if_then_else,
    "likely": _same,
    "bitwise_and": _bit_call("bitand"),
    "bitwise_or": _bit_call("bitor"),
    "bitwise_xor": _bit_call("bitxor"),
    "shift_left": _bit_call("shl"),
    "shift_right": _bit_call("shr"),
    "bitwise_not": _bit_not,
    "cuda.__shfl_sync": _shuffle("idx"),
    "cuda.__shfl_up_sync": _shuffle("up"),
    "cuda.__shfl_down_sync": _shuffle("down"),
    "cuda.__shfl_xor_sync": _shuffle("bfly"),
}

FORMS: dict[str, Form] = {"call": _call, "buffer": _buffer}
