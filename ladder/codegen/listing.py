"""Instruction listing: the final device PrimFunc (what the CUDA printer gets) as plain lists, strings and numbers.

``acc[0] = acc[0] * T.float32(2)``  -->  ``["store", 3, ["mul", ["load", 3, 0], ["float", "0x1p+1", "float32"]], 0]``

The emulator runs a listing without TVM, so this module is the only place that knows both. Two equal functions give equal
listings: variables, buffers and opcodes are numbered in the order in which they are met. The format:

* ``vars[v] = [name, dtype]``, ``buffers[b] = {name, dtype, scope, size, align, offset}`` (size and offset in elements, size
  an expression), ``opcodes[o] = {text, entry, operands}`` with ``operands = [[name, rw, kind, registers, type, space]]``
  taken from TVM's own PTX table, ``text`` the instruction as PTX writes it, ``externs[name] = device text``.
* statements: ``["seq", s...]``, ``["let", v, e]``, ``["alloc", b]``, ``["view", b, pointer]``, ``["store", b, e, index]``,
  ``["eval", e]``, ``["if", e, s, s | null]``, ``["for", v, min, extent, step, s]``, ``["while", e, s]``, ``["break"]``,
  ``["continue"]``, ``["return"]``, ``["stage", name, s]``, ``["launch", tag, v, extent, s]`` and
  ``["ptx", o, [operand | null for the sink "_"], predicate | null, keep]``.
* expressions: ``["buffer", b]`` is the address of a buffer; an ``int32`` or ``bool`` literal is a JSON number or truth value; ``["int", value, dtype]``, ``["float", hex,
  dtype]``, ``["str", s]``, ``["var", v]``, ``["load", b, index]``, ``["ramp", base, stride, lanes]``, ``["broadcast", e,
  lanes]``, ``["cast", dtype, e]``, ``["select", e, e, e]``, ``["not", e]``, a binary operation by name (``["add", e, e]``)
  and ``["call", name, dtype, e...]`` with ``dtype`` ``""`` for an effect and ``"handle"`` for a pointer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.errors import LoweringError

FORMAT = "ladder.listing/1"
#: attribute key by which an emitter names the plan's stage that statements belong to
STAGE_KEY = "ladder.stage"

Json = Any
Node = Any

#: node class -> name in the listing, for nodes with two operands ``a`` and ``b``
BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Mod": "mod",
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Min": "min",
    "Max": "max",
    "EQ": "eq",
    "NE": "ne",
    "LT": "lt",
    "LE": "le",
    "GT": "gt",
    "GE": "ge",
    "And": "and",
    "Or": "or",
    "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
    "LShift": "shl",
    "RShift": "shr",
}

_PREFIXES = ("tirx.", "prim.")


def listing(function: Node) -> dict[str, Json]:
    """Return the listing of a device function after ``finalize_device_passes_tirx``.

    Args:
        function: ``tvm.tirx.PrimFunc`` with flat buffers, as handed to ``target.build.cuda``.

    Raises:
        LoweringError: when the function holds a node that the listing has no form for.
    """
    return _Dump(function).document()


class _Dump:
    """One walk over one function; keeps the tables that number variables, buffers and opcodes."""

    def __init__(self, function: Node) -> None:
        self.function = function
        self.vars: list[list[str]] = []
        self.buffers: list[dict[str, Json]] = []
        self.opcodes: list[dict[str, Json]] = []
        self.externs: dict[str, str] = {}
        self._numbers: dict[int, int] = {}
        self._buffer_numbers: dict[int, int] = {}
        self._opcode_numbers: dict[tuple[str, str], int] = {}

    def document(self) -> dict[str, Json]:
        function = self.function
        params = [self.var(p) for p in function.params]
        body = self.statement(function.body)
        attrs = function.attrs
        return {
            "format": FORMAT,
            "kernel": str(attrs["global_symbol"]),
            "arch": str(attrs["target"].attrs["arch"]),
            "params": params,
            "launch_params": [str(key) for key in attrs["tirx.kernel_launch_params"]],
            "vars": self.vars,
            "buffers": self.buffers,
            "opcodes": self.opcodes,
            "externs": self.externs,
            "body": body,
        }

    # ---- tables -------------------------------------------------------------------------------------------------

    def var(self, var: Node) -> int:
        key = hash(var)
        if key not in self._numbers:
            self._numbers[key] = len(self.vars)
            self.vars.append([str(var.name), _dtype(var.ty)])
        return self._numbers[key]

    def buffer(self, buffer: Node) -> int:
        key = hash(buffer)
        if key not in self._buffer_numbers:
            self._buffer_numbers[key] = len(self.buffers)
            self.buffers.append({})  # holds the number while the size is walked
            self.buffers[self._buffer_numbers[key]].update(self._describe(buffer))
        return self._buffer_numbers[key]

    def _describe(self, buffer: Node) -> dict[str, Json]:
        kind = buffer.ty
        if len(kind.shape) != 1 or len(kind.strides):
            raise _refuse("a buffer that is not flat", buffer)
        offset = kind.elem_offset
        return {
            "name": str(buffer.name),
            "dtype": str(kind.dtype),
            "scope": str(kind.storage_scope),
            "size": self.expression(kind.shape[0]),
            "align": int(kind.data_alignment),
            "offset": 0 if offset is None else self.expression(offset),
        }

    # ---- statements ---------------------------------------------------------------------------------------------

    def statement(self, node: Node) -> Json:
        kind = type(node).__name__
        handler = _STATEMENTS.get(kind)
        if handler is None:
            raise _refuse(f"statement {kind}", node)
        return handler(self, node)

    def seq(self, node: Node) -> Json:
        flat: list[Json] = []
        for child in node.seq:
            item = self.statement(child)
            if item[0] == "seq":
                flat.extend(item[1:])
            else:
                flat.append(item)
        return ["seq", *flat]

    def attr(self, node: Node) -> Json:
        key = str(node.attr_key)
        if key == "thread_extent":
            extent = self.expression(node.value)
            axis = node.node
            return [
                "launch",
                str(axis.thread_tag),
                self.var(axis.var),
                extent,
                self.statement(node.body),
            ]
        body = self.statement(node.body)
        if key == STAGE_KEY:
            value = node.value if hasattr(node.value, "value") else node.node
            return ["stage", str(getattr(value, "value", value)), body]
        return body

    def declare(self, node: Node) -> Json:
        return ["view", self.buffer(node.buffer), self.expression(node.data)]

    def if_(self, node: Node) -> Json:
        other = None if node.else_case is None else self.statement(node.else_case)
        return ["if", self.expression(node.condition), self.statement(node.then_case), other]

    def for_(self, node: Node) -> Json:
        step = 1 if node.step is None else self.expression(node.step)
        start, extent = self.expression(node.min), self.expression(node.extent)
        return ["for", self.var(node.loop_var), start, extent, step, self.statement(node.body)]

    def store(self, node: Node) -> Json:
        (index,) = node.indices
        value = self.expression(node.value)
        return ["store", self.buffer(node.buffer), value, self.expression(index)]

    def evaluate(self, node: Node) -> Json:
        value = node.value
        if type(value).__name__ == "Call" and value.op.name.startswith("tirx.ptx."):
            return self._ptx(value)
        return ["eval", self.expression(value)]

    # ---- PTX ----------------------------------------------------------------------------------------------------

    def _ptx(self, call: Node) -> Json:
        entry = _ptx_table()[call.op.name.removeprefix("tirx.ptx.")]
        slots = len(entry.slots)
        words = [str(a.value) for a in call.args[len(call.args) - slots - 1 :]]
        tokens, flags = words[:-1], [flag for flag in words[-1].split(",") if flag]
        operands = list(call.args[: len(call.args) - slots - 1])
        predicate = operands.pop() if "pred" in flags else None
        filled = [self.expression(operand) for operand in operands]
        for lane in sorted(int(f[1:]) for f in flags if f[0] == "s" and f[1:].isdigit()):
            filled.insert(lane, None)
        guard = None if predicate is None else self.expression(predicate)
        return ["ptx", self._opcode(entry, tokens), filled, guard, "keep" in flags]

    def _opcode(self, entry: Node, tokens: list[str]) -> int:
        text = ".".join([entry.ptx_name, *(t for t in tokens if t)])
        key = (entry.name, text)
        if key not in self._opcode_numbers:
            self._opcode_numbers[key] = len(self.opcodes)
            self.opcodes.append(
                {"text": text, "entry": entry.name, "operands": _operands(entry, tokens)}
            )
        return self._opcode_numbers[key]

    # ---- expressions --------------------------------------------------------------------------------------------

    def expression(self, node: Node) -> Json:
        if isinstance(node, (bool, int)):
            return node
        kind = type(node).__name__
        if kind in BINARY:
            return [BINARY[kind], self.expression(node.a), self.expression(node.b)]
        handler = _EXPRESSIONS.get(kind)
        if handler is None:
            raise _refuse(f"expression {kind}", node)
        return handler(self, node)

    def int(self, node: Node) -> Json:
        dtype, value = _dtype(node.ty), int(node.value)
        if dtype == "bool":
            return bool(value)
        return value if dtype == "int32" else ["int", value, dtype]

    def load(self, node: Node) -> Json:
        (index,) = node.indices
        return ["load", self.buffer(node.source), self.expression(index)]

    def call(self, node: Node) -> Json:
        name = str(node.op.name)
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        args = list(node.args)
        dtype = _dtype(node.ty)
        if name == "cuda.func_call":
            return self._extern(args, dtype)
        if name in ("call_pure_extern", "call_extern"):
            callee, *args = args
            name = f"extern.{callee.value}"
        return ["call", name, dtype, *map(self.expression, args)]

    def _extern(self, args: list[Node], dtype: str) -> Json:
        name, text = str(args[0].value), str(args[-1].value)
        if self.externs.setdefault(name, text) != text:
            raise LoweringError(
                f"device function {name!r} is given two different texts",
                at=self.function.attrs["global_symbol"],
                hint="one name, one text: take both from the intrinsics table",
            )
        return ["call", f"func.{name}", dtype, *map(self.expression, args[1:-1])]

    def variable(self, node: Node) -> Json:
        if hasattr(node.ty, "storage_scope") and hasattr(node.ty, "shape"):
            return ["buffer", self.buffer(node)]
        return ["var", self.var(node)]


_Handler = Callable[[_Dump, Node], Json]

_STATEMENTS: dict[str, _Handler] = {
    "SeqStmt": _Dump.seq,
    "AttrStmt": _Dump.attr,
    "DeclBuffer": _Dump.declare,
    "IfThenElse": _Dump.if_,
    "For": _Dump.for_,
    "BufferStore": _Dump.store,
    "Evaluate": _Dump.evaluate,
    "AllocBuffer": lambda d, n: ["alloc", d.buffer(n.buffer)],
    "Bind": lambda d, n: ["let", d.var(n.var), d.expression(n.value)],
    "While": lambda d, n: ["while", d.expression(n.condition), d.statement(n.body)],
    "Break": lambda _d, _n: ["break"],
    "Continue": lambda _d, _n: ["continue"],
    "Return": lambda _d, _n: ["return"],
}

_EXPRESSIONS: dict[str, _Handler] = {
    "IntImm": _Dump.int,
    "TensorLoad": _Dump.load,
    "Call": _Dump.call,
    "Var": _Dump.variable,
    "FloatImm": lambda _d, n: ["float", float(n.value).hex(), _dtype(n.ty)],
    "StringImm": lambda _d, n: ["str", str(n.value)],
    "Ramp": lambda d, n: ["ramp", d.expression(n.base), d.expression(n.stride), int(n.lanes)],
    "Broadcast": lambda d, n: ["broadcast", d.expression(n.value), int(n.lanes)],
    "Cast": lambda d, n: ["cast", _dtype(n.ty).split("x")[0], d.expression(n.value)],
    "Not": lambda d, n: ["not", d.expression(n.a)],
    "Select": lambda d, n: [
        "select",
        d.expression(n.condition),
        d.expression(n.true_value),
        d.expression(n.false_value),
    ],
}


def _dtype(kind: Node) -> str:
    """Name of a TVM type: a scalar's dtype, ``handle:dtype:scope`` for a typed pointer, ``""`` for none."""
    if hasattr(kind, "element_type"):
        element = getattr(kind.element_type, "dtype", "")
        if "TensorMap" in type(kind.element_type).__name__:
            element = "tensormap"
        return f"handle:{element}:{kind.storage_scope}"
    return str(getattr(kind, "dtype", ""))


def _operands(entry: Node, tokens: list[str]) -> list[Json]:
    from tvm.backend.cuda.ptx import table

    names = table.mods(entry, tokens)
    rows: list[Json] = []
    for slot, _, registers in table.operand_layout(entry, names):
        token = table.operand_type(slot, names) if slot.kind == "reg" else ""
        space = table.operand_space(slot, names) if slot.kind == "addr" else ""
        rows.append([slot.name, slot.rw, slot.kind, registers, token, space])
    return rows


def _ptx_table() -> Node:
    from ladder.codegen.tvm_api import PTX_TABLE

    return PTX_TABLE


def _refuse(what: str, node: Node) -> LoweringError:
    return LoweringError(
        f"the listing has no form for {what}",
        at=str(node)[:200],
        hint="extend ladder/codegen/listing.py and the emulator's translation together",
    )
