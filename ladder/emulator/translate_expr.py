"""Expressions of a listing as Python text.

``["add", ["var", 4], 1]``  -->  ``(v4 + 1)``; loads become lines of their own, so that they happen under the right mask.
"""

from __future__ import annotations

import numpy as np

from ladder.emulator.program import DTYPES, Json
from ladder.emulator.report import Fault
from ladder.emulator.translate_scope import Form, Kind, Scope, Value

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC = {"and": ("&", "and"), "or": ("|", "or")}
#: bit logic of two operands, as expressions and as calls
_LOGIC_OF_BITS = ("bitand", "bitor", "bitxor")
_LOGIC_CALLS = ("bitwise_and", "bitwise_or", "bitwise_xor")
#: floats that a conversion narrows to or arithmetic is done in
_FLOATS = ("float16", "bfloat16", "float32")
_DIVIDE = {"div": "tdiv", "mod": "tmod", "floordiv": "fdiv", "floormod": "fmod"}


def expression(scope: Scope, node: Json, lane: int = 0) -> Value:
    """Translate one expression; ``lane`` picks an element of a SIMD expression.

    Raises:
        Fault: ``unsupported`` for a form that has no translation.
    """
    if isinstance(node, bool):
        return Value(str(node), "U", "bool")
    if isinstance(node, int):
        return Value(str(node) if node >= 0 else f"({node})", "U", "int32")
    kind = node[0]
    if kind in _BINARY:
        return _binary(scope, node, lane)
    handler = scope.forms.get(kind)
    if handler is None:
        raise Fault(f"unsupported: expression {kind}", at=str(node)[:120])
    return handler(scope, node, lane)


# ---- leaves --------------------------------------------------------------------------------------------------------


def _int(_scope: Scope, node: Json, _lane: int) -> Value:
    return Value(str(node[1]) if node[1] >= 0 else f"({node[1]})", "U", node[2])


def _float(scope: Scope, node: Json, _lane: int) -> Value:
    value = DTYPES[node[2]].type(float.fromhex(node[1]))
    return Value(scope.constant(f"{node[2]} {node[1]}", value), "U", node[2])


def _var(scope: Scope, node: Json, _lane: int) -> Value:
    try:
        return scope.values[node[1]]
    except KeyError:
        name = scope.program.vars[node[1]][0]
        raise Fault(f"unsupported: variable {name} has no value here", at=str(node)) from None


def _ramp(scope: Scope, node: Json, lane: int) -> Value:
    base, stride = expression(scope, node[1]), expression(scope, node[2])
    kind: Kind = "V" if "V" in (base.kind, stride.kind) else "U"
    if lane == 0:
        return Value(base.code, kind, base.dtype)
    step = str(lane) if stride.code == "1" else f"({stride.code}) * {lane}"
    return Value(f"({base.code} + {step})", kind, base.dtype)


def _broadcast(scope: Scope, node: Json, lane: int) -> Value:
    return expression(scope, node[1], lane)


def simd(scope: Scope, node: Json) -> int:
    """Lanes of a SIMD expression, 1 for a scalar."""
    if not isinstance(node, list):
        return 1
    if node[0] in ("ramp", "broadcast"):
        return int(node[3] if node[0] == "ramp" else node[2])
    return max((simd(scope, child) for child in node[1:]), default=1)


# ---- operations ----------------------------------------------------------------------------------------------------


def wrapped(code: str, dtype: str) -> str:
    """Text of a uniform integer, reduced to its dtype's range as the hardware does."""
    bits = DTYPES[dtype].itemsize * 8
    if dtype.startswith("uint"):
        return f"({code} & {(1 << bits) - 1})"
    half = 1 << (bits - 1)
    return f"((({code}) + {half} & {2 * half - 1}) - {half})"


def _is_int(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _binary(scope: Scope, node: Json, lane: int) -> Value:
    name = node[0]
    if name in _LOGIC:
        return _logic(scope, node, lane)
    a, b = expression(scope, node[1], lane), expression(scope, node[2], lane)
    kind: Kind = "V" if "V" in (a.kind, b.kind) else "U"
    if name in _COMPARE:
        return Value(f"({a.code} {_COMPARE[name]} {b.code})", kind, "bool")
    if name in ("min", "max"):
        code = (
            f"np.{name}imum({a.code}, {b.code})" if kind == "V" else f"{name}({a.code}, {b.code})"
        )
        return Value(code, kind, a.dtype)
    if name in _DIVIDE:
        if not _is_int(a.dtype):
            return Value(_without_payload(a, "/", b), kind, a.dtype)
        return Value(f"{_DIVIDE[name]}({a.code}, {b.code})", kind, a.dtype)
    symbol = _ARITHMETIC.get(name) or _BITS[name]
    if kind == "V":
        _count_pipes(scope, node, a.dtype)
    if not _is_int(a.dtype) and name in _ARITHMETIC:
        return Value(_without_payload(a, symbol, b), kind, a.dtype)
    code = f"({a.code} {symbol} {b.code})"
    if kind == "U" and _is_int(a.dtype) and name in ("add", "sub", "mul", "shl"):
        code = wrapped(code, a.dtype)
    return Value(code, kind, a.dtype)


def _count_pipes(scope: Scope, node: Json, dtype: str) -> None:
    """Count an operation: bits of 32-bit registers on the alu, where logic of three operands is one lop3, and floats on the fma."""
    if dtype == "uint32" and node[0] in _LOGIC_OF_BITS:
        inside = sum(_lop3s(_operands(child)) for child in node[1:])
        scope.on_pipe("alu", _lop3s(_operands(node)) - inside)
    elif dtype == "uint32" and node[0] in ("shl", "shr"):
        scope.on_pipe("alu")
    elif dtype == "float32" and node[0] in _ARITHMETIC:
        scope.on_pipe("fma")


def _operands(node: Json) -> int:
    """Operands of a tree of bit logic; 1 for what is none."""
    if not isinstance(node, list):
        return 1
    if node[0] == "call" and node[1] in _LOGIC_CALLS:
        return sum(_operands(child) for child in node[3:])
    if node[0] in _LOGIC_OF_BITS:
        return sum(_operands(child) for child in node[1:])
    return 1


def _lop3s(operands: int) -> int:
    return operands // 2  # each takes three and leaves one


def _without_payload(a: Value, symbol: str, b: Value) -> str:
    """Text of a float operation; of a tree only the outermost result is rid of payloads, a NaN stays one on the way there."""
    inner = f" {symbol} ".join(v.code.removeprefix("canonical") for v in (a, b))
    return f"canonical({inner})"


def touches_memory(scope: Scope, node: Json) -> bool:
    """Whether an expression loads from global or shared memory, so that C would evaluate it only on its branch."""
    if not isinstance(node, list):
        return False
    if node[0] == "load" and scope.buffer(node[1]).space != "local":
        return True
    return any(touches_memory(scope, child) for child in node[1:])


def _logic(scope: Scope, node: Json, lane: int) -> Value:
    vector, scalar = _LOGIC[node[0]]
    a = expression(scope, node[1], lane)
    if touches_memory(scope, node[2]):
        short = ["select", node[1], node[2], False] if node[0] == "and" else None
        short = short or ["select", node[1], True, node[2]]
        return _select(scope, short, lane)
    b = expression(scope, node[2], lane)
    if "V" in (a.kind, b.kind):
        return Value(f"({a.code} {vector} {b.code})", "V", "bool")
    return Value(f"({a.code} {scalar} {b.code})", "U", "bool")


def _not(scope: Scope, node: Json, lane: int) -> Value:
    a = expression(scope, node[1], lane)
    return Value(f"(~{a.code})" if a.kind == "V" else f"(not {a.code})", a.kind, "bool")


def _cast(scope: Scope, node: Json, lane: int) -> Value:
    a, dtype = expression(scope, node[2], lane), node[1]
    if a.dtype == dtype:
        return a
    if a.kind == "V":
        code = f"({a.code}).astype({scope.dtype(dtype)})"
        narrowed = dtype in _FLOATS and a.dtype in _FLOATS
        return Value(f"canonical({code})" if narrowed else code, "V", dtype)
    if dtype == "bool":
        return Value(f"bool({a.code})", "U", dtype)
    if _is_int(dtype):
        return Value(wrapped(f"int({a.code})", dtype), "U", dtype)
    return Value(f"{scope.dtype(dtype)}.type({a.code})", "U", dtype)


def _select(scope: Scope, node: Json, lane: int) -> Value:
    condition = expression(scope, node[1], lane)
    if not (touches_memory(scope, node[2]) or touches_memory(scope, node[3])):
        a, b = expression(scope, node[2], lane), expression(scope, node[3], lane)
        return _choose(condition, a, b, scope)
    if condition.kind == "U":
        return _branch(scope, condition, node, lane)
    test = scope.temp(condition.code, "c")
    sides = []
    for side, text in ((node[2], test), (node[3], f"~{test}")):
        mask = scope.temp(f"narrow({scope.mask}, {text})", "m")
        mask = scope.temp(f"NONE if {mask} is False else {mask}", "m")
        with scope.under(mask):
            value = expression(scope, side, lane)
            sides.append(Value(scope.temp(value.code), value.kind, value.dtype))
    return _choose(Value(test, "V", "bool"), sides[0], sides[1], scope)


def _choose(condition: Value, a: Value, b: Value, scope: Scope) -> Value:
    if condition.kind == "U":
        if "V" in (a.kind, b.kind):
            code = f"({full(scope, a)} if {condition.code} else {full(scope, b)})"
            return Value(code, "V", a.dtype)
        return Value(f"({a.code} if {condition.code} else {b.code})", "U", a.dtype)
    one, other = (_typed(scope, v) for v in (a, b))
    return Value(f"np.where({condition.code}, {one}, {other})", "V", a.dtype)


def _typed(scope: Scope, value: Value) -> str:
    """Text whose NumPy dtype is the value's, also for a uniform integer."""
    if value.kind == "U" and (_is_int(value.dtype) or value.dtype == "bool"):
        return f"{scope.dtype(value.dtype)}.type({value.code})"
    return value.code


def _branch(scope: Scope, condition: Value, node: Json, lane: int) -> Value:
    name = scope.name()
    results = []
    for head, side in ((f"if {condition.code}:", node[2]), ("else:", node[3])):
        with scope.block(head):
            value = expression(scope, side, lane)
            scope.emit(f"{name} = {_full(scope, value)}")
        results.append(value)
    return Value(name, "V", results[0].dtype)


def _full(scope: Scope, value: Value) -> str:
    return (
        value.code if value.kind == "V" else f"vector(W, {value.code}, {scope.dtype(value.dtype)})"
    )


def full(scope: Scope, value: Value) -> str:
    """Text of the value as an array over lanes; a literal is made once."""
    if value.kind == "V":
        return value.code
    literal = value.code.lstrip("(-").rstrip(")")
    if literal.isdigit() and _is_int(value.dtype):
        array = np.full(32, int(value.code.strip("()")), DTYPES[value.dtype])
        return scope.constant(f"{value.dtype} {value.code}", array, "V")
    if value.code in scope.globals:
        array = np.full(32, scope.globals[value.code], DTYPES[value.dtype])
        return scope.constant(value.code, array, "V")
    return _full(scope, value)


# ---- loads ---------------------------------------------------------------------------------------------------------


def _load(scope: Scope, node: Json, lane: int) -> Value:
    buffer = scope.buffer(node[1])
    if buffer.space == "local":
        return register(scope, node[1], expression(scope, node[2], lane))
    count = simd(scope, node[2])
    together = count > 1 and node[2][0] == "ramp" and node[2][2] == 1
    if not together:
        return memory_load(scope, node[1], expression(scope, node[2], lane), 1)
    key = (id(node), scope.mask)
    if lane == 0 or key not in scope.vector_loads:
        scope.vector_loads[key] = memory_load(scope, node[1], expression(scope, node[2], 0), count)
    return Value(f"{scope.vector_loads[key].code}[{lane}]", "V", buffer.dtype)


def memory_load(scope: Scope, number: int, index: Value, count: int) -> Value:
    """Emit a load of ``count`` elements from a global or shared buffer."""
    buffer = scope.buffer(number)
    pointer = scope.pointer(number, index)
    dtype = scope.dtype(buffer.dtype)
    width = buffer.itemsize * count
    if buffer.space == "shared":
        scope.narrowest = min(scope.narrowest, width)
        scope.count(f"ld.shared.{8 * width}")
        site = scope.site("load", buffer.name)
        code = f"load_shared(W, {scope.mask}, {site}, {pointer.code}, {dtype}, {count})"
    else:
        scope.count(f"ld.global.{8 * width}")
        site = scope.site("load", buffer.name)
        scope.accesses(pointer.home, width)
        code = f"load_global(W, {scope.mask}, {site}, {pointer.home}, {pointer.code}, {dtype}, {count})"
    return Value(scope.temp(code), "V", buffer.dtype)


def _is_set(scope: Scope, number: int, index: int) -> bool:
    return (number, index) in scope.known or not scope.options.detect


def register(scope: Scope, number: int, index: Value) -> Value:
    """Read a register; one that may be unset is checked when the kernel runs."""
    buffer = scope.buffer(number)
    name = f"r{number}"
    scope.deferred.touch(number, index.code)
    if number in scope.fragile:
        site = scope.site("register", buffer.name)
        scope.emit(f"fragile_read(W, {site}, h{number}, {index.code})")
    if index.kind == "V":
        scope.doubtful.add(number)
        site = scope.site("register", buffer.name)
        return Value(
            scope.temp(f"gather(W, {scope.mask}, {site}, {name}, d{number}, {index.code})"),
            "V",
            buffer.dtype,
        )
    if index.code.isdigit() and _is_set(scope, number, int(index.code)):
        return Value(f"{name}[{index.code}]", "V", buffer.dtype)
    scope.doubtful.add(number)
    site = scope.site("register", buffer.name)
    code = f"register(W, {scope.mask}, {site}, {name}, d{number}, {index.code})"
    return Value(scope.temp(code), "V", buffer.dtype)


_BINARY = {*_ARITHMETIC, *_BITS, *_COMPARE, *_LOGIC, *_DIVIDE, "min", "max"}
#: forms that need no call; the others are in :mod:`ladder.emulator.translate_call`
FORMS: dict[str, Form] = {
    "int": _int,
    "float": _float,
    "var": _var,
    "ramp": _ramp,
    "broadcast": _broadcast,
    "not": _not,
    "cast": _cast,
    "select": _select,
    "load": _load,
}
