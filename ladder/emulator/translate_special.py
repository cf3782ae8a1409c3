"""PTX instructions that touch memory, other lanes or other warps, by the start of their text."""

from __future__ import annotations

from ladder.emulator.program import CARRIERS, DTYPES, Json, Opcode
from ladder.emulator.report import Fault
from ladder.emulator.translate_call import pointer
from ladder.emulator.translate_expr import expression
from ladder.emulator.translate_order import (
    atomic,
    fence,
    order_of,
    ordered_load,
    ordered_store,
)
from ladder.emulator.translate_ptx import (
    Emit,
    address,
    carried,
    deliver,
    home_name,
    lanes_of,
)
from ladder.emulator.translate_scope import Scope


def _cp_async(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    types = opcode.types
    target = address(scope, types[0], operands[0])
    source = pointer(scope, operands[1])
    if source.home in ("", "shared", "local"):
        raise Fault(f"unsupported: source of {opcode.text}", at=str(operands[1])[:120])
    size = expression(scope, operands[2])
    named = {t.name: node for t, node in zip(types, operands, strict=True)}
    kept = named.get("src_size")
    extra = "" if kept is None else f", {expression(scope, kept).code}"
    scope.narrowest = min(scope.narrowest, int(size.code))
    scope.accesses(source.home, int(size.code))
    site = scope.site(opcode.text, home_name(scope, operands[0]))
    scope.emit(
        f"cp_async(W, {scope.mask}, {site}, {target}, {source.home}, {source.code}, {size.code}{extra})"
    )


def _commit(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.emit(f"commit_group(W, {scope.mask}, {scope.site(opcode.text)})")


def _wait_group(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    pending = expression(scope, operands[0]).code
    scope.emit(f"wait_group(W, {scope.mask}, {scope.site(opcode.text)}, {pending})")
    scope.emit('yield "cp.async.wait_group", None')


def _wait_all(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.emit(f"wait_all(W, {scope.mask}, {scope.site(opcode.text)})")
    scope.emit('yield "cp.async.wait_all", None')


def _barrier(function: str) -> Emit:
    def emit(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
        numbers = ", ".join(expression(scope, node).code for node in operands)
        site = scope.site(opcode.text)
        scope.emit(f"yield from {function}(W, {scope.mask}, {site}, {numbers})")

    return emit


def _warp_barrier(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.emit(f"warp_sync(W, {scope.mask}, {scope.site(opcode.text)})")


def _nothing(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    """Hints, and fences whose effect the model has already."""


def _load(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    if order_of(opcode.words) and "shared" not in opcode.text:
        ordered_load(scope, opcode, operands)
        return
    count, words = opcode.destinations, opcode.words
    kind = opcode.types[0].type
    memory = CARRIERS[words[-1]]
    source = pointer(scope, operands[count])
    width = count * DTYPES[memory].itemsize
    site = scope.site(opcode.text, home_name(scope, operands[count]))
    dtype = scope.dtype(memory)
    if source.home == "shared" or (not source.is_pointer and "shared" in opcode.text):
        scope.narrowest = min(scope.narrowest, width)
        code = f"load_shared(W, {scope.mask}, {site}, {source.code}, {dtype}, {count})"
    elif source.home not in ("", "local"):
        scope.accesses(source.home, width)
        code = (
            f"load_global(W, {scope.mask}, {site}, {source.home}, {source.code}, {dtype}, {count})"
        )
    else:
        raise Fault(f"unsupported: address of {opcode.text}", at=str(operands[count])[:120])
    carrier = memory if kind == words[-1] else CARRIERS.get(kind, memory)
    if DTYPES[carrier].itemsize != DTYPES[memory].itemsize:
        carrier = memory
    deliver(scope, operands[:count], [carrier] * count, code, single=count == 1)


def _store(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    if order_of(opcode.words) and "shared" not in opcode.text:
        ordered_store(scope, opcode, operands)
        return
    target = pointer(scope, operands[0])
    values = [
        carried(scope, t, expression(scope, node))
        for t, node in zip(opcode.types[1:], operands[1:], strict=True)
        if t.kind == "reg" and t.name != "cache_policy"
    ]
    memory = CARRIERS[opcode.words[-1]]
    site = scope.site(opcode.text, home_name(scope, operands[0]))
    width = len(values) * DTYPES[memory].itemsize
    rows = f"({', '.join(values)},), {scope.dtype(memory)}"
    if target.home == "shared" or (not target.is_pointer and "shared" in opcode.text):
        scope.narrowest = min(scope.narrowest, width)
        scope.emit(f"store_shared(W, {scope.mask}, {site}, {target.code}, {rows})")
    elif target.home not in ("", "local"):
        scope.accesses(target.home, width, writes=True)
        scope.emit(f"store_global(W, {scope.mask}, {site}, {target.home}, {target.code}, {rows})")
    else:
        raise Fault(f"unsupported: address of {opcode.text}", at=str(operands[0])[:120])


def _stmatrix(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    target = address(scope, opcode.types[0], operands[0])
    registers = [
        lanes_of(scope, t, node) for t, node in zip(opcode.types[1:], operands[1:], strict=True)
    ]
    site = scope.site(opcode.text, home_name(scope, operands[0]))
    transpose = "trans" in opcode.words
    scope.emit(
        f"stmatrix(W, {scope.mask}, {site}, {target}, ({', '.join(registers)},), {transpose})"
    )


def _movmatrix(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    source = lanes_of(scope, opcode.types[1], operands[1])
    code = f"movmatrix(W, {scope.mask}, {scope.site(opcode.text)}, {source})"
    deliver(scope, operands[:1], ["uint32"], code, single=True)


def _shfl(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    mode = next(w for w in opcode.words if w in ("up", "down", "bfly", "idx"))
    count = opcode.destinations
    value, lane, control, members = (
        lanes_of(scope, t, node)
        for t, node in zip(opcode.types[count:], operands[count:], strict=True)
    )
    site = scope.site(opcode.text)
    code = f"shuffle(W, {scope.mask}, {site}, {mode!r}, {value}, {lane}, {control}, {members})"
    result = scope.temp(code)
    deliver(scope, operands[:1], ["uint32"], f"{result}[0]", single=True)
    if count == 2:
        deliver(scope, operands[1:2], ["uint32"], f"{result}[1].astype(np.uint32)", single=True)


def _vote(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    mode = next(w for w in opcode.words if w in ("all", "any", "uni", "ballot"))
    value, members = (
        lanes_of(scope, t, node) for t, node in zip(opcode.types[1:], operands[1:], strict=True)
    )
    code = f"vote(W, {scope.mask}, {scope.site(opcode.text)}, {mode!r}, {value}, {members})"
    deliver(scope, operands[:1], ["uint32"], code, single=True)


def _redux(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    mode, kind = opcode.words[-2:]
    if kind != "u32":
        raise Fault(f"unsupported: {opcode.text}")
    value, members = (
        lanes_of(scope, t, node) for t, node in zip(opcode.types[1:], operands[1:], strict=True)
    )
    code = f"redux(W, {scope.mask}, {scope.site(opcode.text)}, {mode!r}, {value}, {members})"
    deliver(scope, operands[:1], ["uint32"], code, single=True)


def _elect(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    members = expression(scope, operands[-1]).code
    code = f"elect(W, {scope.mask}, {scope.site(opcode.text)}, {members})"
    deliver(scope, operands[:-1], ["uint32"] * len(operands[:-1]), code)


#: start of the instruction's text -> how it is translated; the longest start counts
SPECIAL: dict[str, Emit] = {
    "cp.async.ca": _cp_async,
    "cp.async.cg": _cp_async,
    "cp.async.commit_group": _commit,
    "cp.async.wait_group": _wait_group,
    "cp.async.wait_all": _wait_all,
    "bar.sync": _barrier("bar_sync"),
    "bar.cta.sync": _barrier("bar_sync"),
    "barrier.sync": _barrier("bar_sync"),
    "barrier.cta.sync": _barrier("bar_sync"),
    "bar.arrive": _barrier("bar_arrive"),
    "bar.cta.arrive": _barrier("bar_arrive"),
    "barrier.arrive": _barrier("bar_arrive"),
    "barrier.cta.arrive": _barrier("bar_arrive"),
    "bar.warp.sync": _warp_barrier,
    "ld": _load,
    "st": _store,
    "stmatrix": _stmatrix,
    "movmatrix": _movmatrix,
    "shfl": _shfl,
    "vote": _vote,
    "redux": _redux,
    "elect": _elect,
    "prefetch": _nothing,
    "griddepcontrol": _nothing,
    "setmaxnreg": _nothing,
    "fence.acq_rel": fence,
    "fence.sc": fence,
    "membar": fence,
    "atom": atomic,
    "red": atomic,
}
