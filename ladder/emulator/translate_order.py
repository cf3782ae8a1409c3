"""Atomics, fences, and loads and stores with memory order as Python text."""

from __future__ import annotations

from ladder.emulator.atomics import operation
from ladder.emulator.program import CARRIERS, DTYPES, Json, Opcode
from ladder.emulator.report import Fault
from ladder.emulator.translate_call import pointer
from ladder.emulator.translate_expr import expression, full
from ladder.emulator.translate_ptx import carried, deliver, home_name, lanes_of
from ladder.emulator.translate_scope import Scope, Value

ORDERS = ("acquire", "release", "acq_rel", "relaxed", "volatile")


def order_of(words: list[str]) -> str:
    """The memory order that an instruction names, or ""."""
    return next((w for w in words if w in ORDERS), "")


def atomic(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    """``atom`` and ``red`` on global or shared memory."""
    words, count = opcode.words, opcode.destinations
    dtype = CARRIERS[words[-1]]
    types = list(zip(opcode.types, operands, strict=True))[count:]
    target = pointer(scope, types[0][1])
    values = [
        carried(scope, t, expression(scope, node))
        for t, node in types[1:]
        if t.name != "cache_policy"
    ]
    update = "NONE" if "cas" in words else scope.constant(opcode.text, operation(opcode.text), "A")
    site = scope.site(opcode.text, home_name(scope, types[0][1]))
    rows = f"Update({update}, ({', '.join(values)},), {scope.dtype(dtype)})"
    shared = target.home == "shared" or (not target.is_pointer and "shared" in opcode.text)
    if shared:
        scope.narrowest = min(scope.narrowest, DTYPES[dtype].itemsize)
        code = f"atomic_shared(W, {scope.mask}, {site}, {target.code}, {rows})"
    else:
        parts = 1 if "cas" in words else len(values)
        scope.accesses(target.home, DTYPES[dtype].itemsize, writes=True)
        scope.concurrent = True
        order = order_of(words) or "relaxed"
        code = f"atomic_global(W, {scope.mask}, {site}, {order!r}, {_buffer(target)}, {target.code}, {rows})"
        if parts > 1 and count:
            raise Fault(f"unsupported: {opcode.text} with a result")
        scope.emit('yield "an atomic", None')
    if count == 1:
        deliver(scope, operands[:1], [dtype], code, single=True)
    else:
        scope.emit(code)


def _buffer(target: Value) -> str:
    if target.home in ("", "shared", "local"):
        raise Fault(f"unsupported: an atomic on {target.home or 'a generic address'}")
    return target.home


def fence(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    """``fence.acq_rel``, ``fence.sc`` and ``membar``; those of the CTA's scope add nothing to barriers."""
    if "cta" in opcode.words:
        return
    scope.emit(f"fence(W, {scope.mask}, {scope.site(opcode.text)})")


def ordered_load(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    """``ld`` with a memory order from global memory."""
    dtype, source = CARRIERS[opcode.words[-1]], pointer(scope, operands[1])
    site = scope.site(opcode.text, home_name(scope, operands[1]))
    if opcode.destinations != 1:
        raise Fault(f"unsupported: {opcode.text}")
    scope.accesses(source.home, DTYPES[dtype].itemsize)
    scope.concurrent = True
    scope.emit('yield "a load with memory order", None')
    code = (
        f"ordered_load(W, {scope.mask}, {site}, {order_of(opcode.words)!r}, "
        f"{_buffer(source)}, {source.code}, {scope.dtype(dtype)})"
    )
    deliver(scope, operands[:1], [dtype], code, single=True)


def ordered_store(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    """``st`` with a memory order to global memory."""
    dtype, target = CARRIERS[opcode.words[-1]], pointer(scope, operands[0])
    value = lanes_of(scope, opcode.types[1], operands[1])
    site = scope.site(opcode.text, home_name(scope, operands[0]))
    if len(opcode.types) != 2:
        raise Fault(f"unsupported: {opcode.text}")
    scope.accesses(target.home, DTYPES[dtype].itemsize, writes=True)
    scope.concurrent = True
    scope.emit(
        f"ordered_store(W, {scope.mask}, {site}, {order_of(opcode.words)!r}, "
        f"{_buffer(target)}, {target.code}, {value}, {scope.dtype(dtype)})"
    )
    scope.emit('yield "a store with memory order", None')


# ---- calls ---------------------------------------------------------------------------------------------------------


def thread_fence(scope: Scope, _call: Json) -> None:
    """``__threadfence()``."""
    scope.count("fence.acq_rel.gpu")
    scope.emit(f"fence(W, {scope.mask}, {scope.site('__threadfence')})")


def atomic_add(scope: Scope, node: Json, _lane: int) -> Value:
    """``atomicAdd(address, value)``: relaxed, returns the old value."""
    target, value = pointer(scope, node[3]), expression(scope, node[4])
    dtype = value.dtype
    site = scope.site("atomicAdd", home_name(scope, node[3]))
    held = scope.constant("atom.add", operation("atom.add.u32"), "A")
    rows = f"Update({held}, ({full(scope, value)},), {scope.dtype(dtype)})"
    scope.count("atom.add")
    if target.home == "shared":
        scope.narrowest = min(scope.narrowest, DTYPES[dtype].itemsize)
        code = f"atomic_shared(W, {scope.mask}, {site}, {target.code}, {rows})"
    else:
        scope.accesses(target.home, DTYPES[dtype].itemsize, writes=True)
        scope.concurrent = True
        scope.emit('yield "an atomic", None')
        code = f"atomic_global(W, {scope.mask}, {site}, 'relaxed', {_buffer(target)}, {target.code}, {rows})"
    return Value(scope.temp(code), "V", dtype)


def wait_until(scope: Scope, call: Json) -> None:
    """Poll a global word into a register until a condition holds, then acquire."""
    target, address, condition = call[3:6]
    source = pointer(scope, address)
    dtype = scope.buffer(target[1]).dtype
    site = scope.site("wait_until", home_name(scope, address))
    scope.accesses(source.home, DTYPES[dtype].itemsize)
    scope.concurrent = True
    arguments = f"{_buffer(source)}, {source.code}, {scope.dtype(dtype)}"
    outer = scope.mask
    mask = scope.temp(outer, "m")
    with scope.block(f"while {mask} is not False:"):
        scope.emit(f'yield f"{{{site}}}: polls", None')
        with scope.under(mask):
            code = f"ordered_load(W, {mask}, {site}, 'relaxed', {arguments})"
            deliver(scope, [target], [dtype], code, single=True)
            test = expression(scope, condition)
            scope.emit(f"{mask} = narrow({mask}, ~({full(scope, test)}))")
    scope.emit(f"ordered_load(W, {outer}, {site}, 'acquire', {arguments})")
    index = expression(scope, target[2])
    if index.code.isdigit():
        scope.known.add((target[1], int(index.code)))
