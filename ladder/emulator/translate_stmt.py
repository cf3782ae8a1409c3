"""Statements of a listing as Python lines: control flow under masks, registers, stores, synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ladder.emulator import translate_async, translate_order
from ladder.emulator.program import Json, statements
from ladder.emulator.report import Fault
from ladder.emulator.translate_call import put_off
from ladder.emulator.translate_expr import expression, full, simd
from ladder.emulator.translate_ptx import grouped, groups, instruction, write_register
from ladder.emulator.translate_scope import Scope, Value
from ladder.emulator.warp import LANES


def statement(scope: Scope, node: Json) -> None:
    """Translate one statement.

    Raises:
        Fault: ``unsupported`` for a form that has no translation.
    """
    handler = _FORMS.get(node[0])
    if handler is None:
        raise Fault(f"unsupported: statement {node[0]}", at=str(node)[:120])
    handler(scope, node)


# ---- sequences -----------------------------------------------------------------------------------------------------


def _seq(scope: Scope, node: Json) -> None:
    children = node[1:]
    at = 0
    while at < len(children):
        run = _run(scope, children, at)
        if run > 1:
            grouped(scope, children[at : at + run])
        else:
            statement(scope, children[at])
        at += run


def _run(scope: Scope, children: Sequence[Json], first: int) -> int:
    """Length of the run of one groupable opcode in which no instruction reads what an earlier one writes."""
    head = children[first]
    if head[0] != "ptx" or head[3] is not None or not groups(scope.program.opcodes[head[1]]):
        return 1
    count = scope.program.opcodes[head[1]].destinations
    written: list[Json] = []
    length = 0
    for child in children[first:]:
        if child[0] != "ptx" or child[1] != head[1] or child[3] is not None:
            break
        targets, rest = child[2][:count], child[2][count:]
        if any(_reads(part, target) for part in rest for target in written):
            break
        written += targets
        length += 1
    return max(1, length)


def _reads(node: Json, target: Json) -> bool:
    if node == target:
        return True
    if not isinstance(node, list):
        return False
    if node[0] == "load" and target is not None and node[1] == target[1]:
        return not (isinstance(node[2], int) and isinstance(target[2], int))
    return any(_reads(child, target) for child in node[1:])


# ---- names and registers -------------------------------------------------------------------------------------------


def _let(scope: Scope, node: Json) -> None:
    value = expression(scope, node[2])
    name = scope.program.vars[node[1]][0]
    label = "".join(c if c.isalnum() else "_" for c in name)
    code = scope.temp(value.code, f"{label}_")
    scope.values[node[1]] = Value(code, value.kind, value.dtype, value.home)


def _alloc(scope: Scope, node: Json) -> None:
    number = node[1]
    buffer = scope.buffer(number)
    if buffer.space == "shared":
        base = scope.allocations[number].base
        scope.homes[number] = Value(str(base), "U", "handle", "shared")
        return
    if buffer.space != "local" or not isinstance(buffer.size, int):
        raise Fault(f"unsupported: buffer {buffer.name} in scope {buffer.scope}")
    scope.deferred.settle()
    scope.emit(f"r{number} = [None] * {buffer.size}")
    scope.known -= {pair for pair in scope.known if pair[0] == number}
    scope.emit(f"d{number} = [None] * {buffer.size}")
    if number in scope.fragile:
        scope.emit(f"h{number} = [-1] * {buffer.size}")


def _view(scope: Scope, node: Json) -> None:
    buffer = scope.buffer(node[1])
    source = expression(scope, node[2])
    if not source.is_pointer or source.home == "local":
        raise Fault(f"unsupported: {buffer.name} is a view of {source.code}")
    offset = expression(scope, buffer.offset)
    code = source.code
    if offset.code != "0":
        code = f"({code} + ({offset.code}) * {buffer.itemsize})"
    if not code.isdigit():
        code = scope.temp(code, "a")
    scope.homes[node[1]] = Value(code, source.kind, "handle", source.home)


def _store(scope: Scope, node: Json) -> None:
    number, value, index = node[1:]
    buffer = scope.buffer(number)
    count = simd(scope, index)
    scope.vector_loads.clear()
    if buffer.space == "local":
        _store_registers(scope, number, value, index, count)
    elif count == 1 or (index[0] == "ramp" and index[2] == 1):
        _store_memory(scope, number, value, index, count)
    else:
        raise Fault(f"unsupported: a scattered vector store to {buffer.name}")
    scope.vector_loads.clear()


def _store_registers(scope: Scope, number: int, value: Json, index: Json, count: int) -> None:
    if put_off(scope, number, value, index):
        return
    values = [expression(scope, value, lane) for lane in range(count)]
    if count > 1:
        values = [Value(scope.temp(full(scope, v)), "V", v.dtype) for v in values]
    for lane, one in enumerate(values):
        place = expression(scope, index, lane)
        if count > 1 and isinstance(index[1], int) and index[2] == 1:
            place = Value(str(index[1] + lane), "U", "int32")
        write_register(scope, number, place, full(scope, one))


def _store_memory(scope: Scope, number: int, value: Json, index: Json, count: int) -> None:
    buffer = scope.buffer(number)
    values = [expression(scope, value, lane).code for lane in range(count)]
    place = scope.pointer(number, expression(scope, index, 0))
    site = scope.site("store", buffer.name)
    width = buffer.itemsize * count
    scope.count(f"st.{buffer.space}.{8 * width}")
    rows = f"({', '.join(values)},), {scope.dtype(buffer.dtype)}"
    if buffer.space == "shared":
        scope.narrowest = min(scope.narrowest, width)
        scope.emit(f"store_shared(W, {scope.mask}, {site}, {place.code}, {rows})")
    else:
        scope.accesses(place.home, width, writes=True)
        scope.emit(f"store_global(W, {scope.mask}, {site}, {place.home}, {place.code}, {rows})")


# ---- control flow --------------------------------------------------------------------------------------------------


def _if(scope: Scope, node: Json) -> None:
    condition = expression(scope, node[1])
    scope.flush_counts()
    before = set(scope.known)
    after = []
    one = f"({condition.code})[0]" if _of_whole_warps(scope, node[1]) else condition.code
    if condition.kind == "U" or one != condition.code:
        heads = ((f"if {one}:", node[2]), ("else:", node[3]))
        for head, body in heads:
            scope.known = set(before)
            if body is not None:
                with scope.block(head):
                    statement(scope, body)
            after.append(scope.known)
    else:
        test = scope.temp(condition.code, "c")
        outer = scope.mask
        for text, body in ((test, node[2]), (f"~{test}", node[3])):
            scope.known = set(before)
            if body is not None:
                scope.mask = scope.temp(f"narrow({outer}, {text})", "m")
                with scope.block(f"if {scope.mask} is not False:"):
                    statement(scope, body)
                scope.mask = outer
            after.append(scope.known)
    scope.known = after[0] & after[1]


def _of_whole_warps(scope: Scope, condition: Json) -> bool:
    """Whether a condition sends all lanes of a warp one way: it compares a thread's number with a multiple of 32.

    What one warp does in such a branch needs no mask, and may be done together.
    """
    sides = {"lt": (1, 2), "ge": (1, 2), "le": (2, 1), "gt": (2, 1)}
    if scope.mask != "None" or not isinstance(condition, list) or condition[0] not in sides:
        return False
    thread, bound = (condition[place] for place in sides[condition[0]])
    extent = scope.extents.get("threadIdx.x")
    if not (isinstance(bound, int) and isinstance(extent, int)) or bound % LANES or extent % LANES:
        return False
    is_name = isinstance(thread, list) and thread[0] == "var"
    return is_name and scope.values[thread[1]].code == "W.thread_x"


def _for(scope: Scope, node: Json) -> None:
    start, extent, step = (expression(scope, part) for part in node[2:5])
    name = scope.name("i")
    scope.flush_counts()
    before = set(scope.known)
    if "V" in (start.kind, extent.kind, step.kind):
        _masked_for(scope, node, (start, extent, step), name)
        scope.known = before
        return
    dtype = scope.program.vars[node[1]][1]
    scope.values[node[1]] = Value(name, "U", dtype)
    stop = f"({start.code}) + ({extent.code})"
    outer, scope.masked_loop = scope.masked_loop, scope.mask != "None"
    with scope.block(f"for {name} in range({start.code}, {stop}, {step.code}):"):
        statement(scope, node[5])
    scope.masked_loop = outer
    runs = isinstance(node[3], int) and node[3] >= 1 and not _leaves(node[5])
    scope.known = scope.known if runs else before


def _leaves(node: Json) -> bool:
    return any(inner[0] in ("break", "continue", "return") for inner in statements(node))


def _masked_for(scope: Scope, node: Json, bounds: tuple[Value, Value, Value], name: str) -> None:
    start, extent, step = bounds
    dtype = scope.program.vars[node[1]][1]
    if _leaves(node[5]):
        raise Fault("unsupported: break or continue in a loop whose bounds differ between lanes")
    scope.emit(f"{name} = {full(scope, Value(start.code, start.kind, dtype))}")
    stop = scope.temp(f"{name} + {extent.code}")
    outer = scope.mask
    mask = scope.temp(f"narrow({outer}, {name} < {stop})", "m")
    scope.values[node[1]] = Value(name, "V", dtype)
    with scope.block(f"while {mask} is not False:"), scope.under(mask):
        statement(scope, node[5])
        scope.emit(f"{name} = {name} + {step.code}")
        scope.emit(f"{mask} = narrow({mask}, {name} < {stop})")


def _while(scope: Scope, node: Json) -> None:
    scope.flush_counts()
    before = set(scope.known)
    outer = scope.mask
    mask = scope.temp(outer, "m")
    with scope.block("while True:"):
        scope.mask = mask
        condition = expression(scope, node[1])
        if condition.kind == "U":
            scope.emit(f"if not {condition.code}: break")
        else:
            scope.emit(f"{mask} = narrow({mask}, {condition.code})")
            scope.emit(f"if {mask} is False: break")
        scope.mask = outer if condition.kind == "U" else mask
        statement(scope, node[2])
        scope.emit('yield "a while loop", None')
    scope.mask, scope.known = outer, before


def _jump(scope: Scope, node: Json) -> None:
    if scope.mask != "None":
        raise Fault(f"unsupported: {node[0]} in a branch that only some lanes take")
    scope.emit({"break": "break", "continue": "continue", "return": "return"}[node[0]])


# ---- scopes and calls ----------------------------------------------------------------------------------------------


def _stage(scope: Scope, node: Json) -> None:
    outer, scope.stage = scope.stage, node[1]
    statement(scope, node[2])
    scope.stage = outer


def _dropped(scope: Scope, _node: Json) -> None:
    """Where :mod:`ladder.emulator.mutate` left an instruction out."""
    scope.emit("W.machine.dropped += 1")


def _launch(scope: Scope, node: Json) -> None:
    tag, var, extent, body = node[1:]
    scope.extents[tag] = extent
    kind, _, axis = tag.partition(".")
    if kind == "threadIdx":
        scope.values[var] = Value(f"W.thread_{axis}", "V", "int32")
    elif kind == "clusterCtaIdx":
        scope.values[var] = Value(f"P.rank_{axis}", "U", "int32")
    elif kind == "blockIdx":
        scope.values[var] = Value(f"P.block_{axis}", "U", "int32")
    else:
        raise Fault(f"unsupported: launch axis {tag}", at=scope.program.kernel)
    statement(scope, body)


def _eval(scope: Scope, node: Json) -> None:
    call = node[1]
    if not isinstance(call, list):
        return
    handler = _EFFECTS.get(call[1]) if call[0] == "call" else None
    if handler is not None:
        handler(scope, call)
        return
    expression(scope, call)


def _cta_sync(scope: Scope, _call: Json) -> None:
    scope.count("bar.sync")
    scope.emit(f"yield from bar_sync(W, {scope.mask}, {scope.site('__syncthreads')})")


def _warp_sync(scope: Scope, _call: Json) -> None:
    scope.count("bar.warp.sync")
    scope.emit(f"warp_sync(W, {scope.mask}, {scope.site('__syncwarp')})")


_EFFECTS: dict[str, Callable[[Scope, Json], None]] = {
    **translate_async.EFFECTS,
    "cuda.cta_sync": _cta_sync,
    "cuda.warp_sync": _warp_sync,
    "cuda.thread_fence": translate_order.thread_fence,
    "cuda.wait_until": translate_order.wait_until,
    "cuda.__syncthreads": _cta_sync,
}

_FORMS: dict[str, Callable[[Scope, Json], None]] = {
    "seq": _seq,
    "let": _let,
    "alloc": _alloc,
    "view": _view,
    "store": _store,
    "eval": _eval,
    "ptx": instruction,
    "if": _if,
    "for": _for,
    "while": _while,
    "break": _jump,
    "continue": _jump,
    "return": _jump,
    "stage": _stage,
    "dropped": _dropped,
    "launch": _launch,
}
