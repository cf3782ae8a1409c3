"""PTX instructions as Python text: register instructions by their function, the others by a table of forms.

``["ptx", o, [d, a, b, c, 234], null, false]`` of ``lop3.b32``  -->  ``r3[0] = A7(r1[0], K4, K5, 234)``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ladder.emulator.alu import alu_function, unpack
from ladder.emulator.mma import Shape
from ladder.emulator.program import CARRIERS, DTYPES, Json, Opcode, Operand
from ladder.emulator.report import Fault, Site
from ladder.emulator.translate_call import pointer
from ladder.emulator.translate_expr import expression, full
from ladder.emulator.translate_scope import Scope, Value

Emit = Callable[[Scope, Opcode, list[Json]], None]


def instruction(scope: Scope, node: Json) -> None:
    """Translate one ``ptx`` statement.

    Raises:
        Fault: ``unsupported`` when the instruction has no meaning here.
    """
    opcode = scope.program.opcodes[node[1]]
    guard = node[3]
    if guard is None:
        _issue(scope, opcode, node[2])
        return
    condition = expression(scope, guard)
    test = f"{condition.code}" if condition.dtype == "bool" else f"({condition.code} != 0)"
    if condition.kind == "U":
        with scope.block(f"if {test}:"):
            known = set(scope.known)
            _issue(scope, opcode, node[2])
            scope.known = known
        return
    mask = scope.temp(f"narrow({scope.mask}, {test})", "m")
    with scope.block(f"if {mask} is not False:"), scope.under(mask):
        _issue(scope, opcode, node[2])


def _issue(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    scope.count(opcode.text)
    special = _special(scope, opcode.text)
    if special is not None:
        special(scope, opcode, operands)
        return
    if opcode.text.startswith("mov.") and opcode.destinations > 1:
        held = scope.constant(f"unpack {opcode.destinations}", unpack, "A")
        _, source = sources(scope, opcode, operands)[0]
        _deliver(scope, opcode, operands, f"{held}({source}, {opcode.destinations})")
        return
    function = alu_function(opcode.text)
    if function is None:
        raise Fault(f"unsupported: {opcode.text}", at=f"table entry {opcode.entry}")
    held = scope.constant(opcode.text, function, "A")
    values = sources(scope, opcode, operands)
    texts = ", ".join(text for _, text in values)
    code = f"{held}({texts})"
    if not any(value.kind == "V" for value, _ in values):
        code = f"vector(W, uniform({held}, {texts}), None)"
    _deliver(scope, opcode, operands, code)


# ---- operands ------------------------------------------------------------------------------------------------------


def sources(scope: Scope, opcode: Opcode, operands: list[Json]) -> list[tuple[Value, str]]:
    """Source operands as (value, text in the dtype that carries the operand's type)."""
    found = []
    for operand, node in list(zip(opcode.types, operands, strict=True))[opcode.destinations :]:
        value = expression(scope, node)
        found.append((value, carried(scope, operand, value)))
    return found


def carried(scope: Scope, operand: Operand, value: Value) -> str:
    """Text of a source operand as the dtype that carries its PTX type; the bits stay."""
    if operand.kind == "imm":
        return value.code
    dtype = CARRIERS.get(operand.type)
    if dtype is None:
        raise Fault(f"unsupported: operand type {operand.type}", at=operand.name)
    carrier = DTYPES[dtype]
    if value.kind == "U":
        if value.dtype.startswith(("int", "uint")) or value.dtype == "bool":
            mask = (1 << 8 * carrier.itemsize) - 1
            unsigned = f"np.uint{8 * carrier.itemsize}"
            if value.code.strip("()-").isdigit():
                bits = int(value.code.strip("()")) & mask
                key = f"{dtype} {bits}"
                number = DTYPES[f"uint{8 * carrier.itemsize}"].type(bits)
                return scope.constant(key, number.view(carrier))
            return f"{unsigned}({value.code} & {mask}).view({scope.dtype(dtype)})"
        return value.code if value.dtype == dtype else f"({value.code}).view({scope.dtype(dtype)})"
    if value.dtype == dtype:
        return value.code
    if value.dtype == "bool":
        return f"({value.code}).astype({scope.dtype(dtype)})"
    if DTYPES[value.dtype].itemsize != carrier.itemsize:
        raise Fault(
            f"unsupported: {value.dtype} as operand of type {operand.type}", at=operand.name
        )
    return f"({value.code}).view({scope.dtype(dtype)})"


def lanes_of(scope: Scope, operand: Operand, node: Json) -> str:
    """Text of a source operand as an array over lanes, as its carrier."""
    value = expression(scope, node)
    if value.kind == "V":
        return carried(scope, operand, value)
    text = carried(scope, operand, value)
    return full(scope, Value(text, "U", CARRIERS[operand.type]))


def assign(scope: Scope, node: Json, code: str, dtype: str) -> None:
    """Write a register, or drop the value where the destination is the sink."""
    if node is None:
        return
    if node[0] != "load" or scope.buffer(node[1]).space != "local":
        raise Fault("unsupported: a destination that is no register", at=str(node)[:120])
    number, index = node[1], expression(scope, node[2])
    target = scope.buffer(number).dtype
    if target != dtype:
        if DTYPES[target].itemsize != DTYPES[dtype].itemsize:
            code = f"({code}).astype({scope.dtype(target)})"
        else:
            code = f"({code}).view({scope.dtype(target)})"
    write_register(scope, number, index, code)


def write_register(scope: Scope, number: int, index: Value, code: str) -> None:
    """Emit the write of an array to a register under the current mask."""
    name = f"r{number}"
    scope.deferred.touch(number, index.code)
    scope.deferred.written(number, index.code)
    if number in scope.fragile:
        site = scope.site("register", scope.buffer(number).name)
        scope.emit(f"fragile_write(W, {site}, h{number}, {index.code})")
    if index.kind == "V":
        site = scope.site("register", scope.buffer(number).name)
        scope.emit(f"scatter(W, {scope.mask}, {site}, {name}, d{number}, {index.code}, {code})")
        return
    place = f"{name}[{index.code}]"
    if not index.code.isdigit():
        site = scope.site("register", scope.buffer(number).name)
        place = f"{name}[inside({site}, {name}, {index.code})]"
    if scope.mask == "None":
        scope.emit(f"{place} = {code}")
        if number in scope.tracked:
            scope.emit(f"d{number}[{index.code}] = True")
    else:
        scope.emit(f"{place} = merge({scope.mask}, {code}, {place})")
        if number in scope.tracked:
            scope.emit(f"d{number}[{index.code}] = also({scope.mask}, d{number}[{index.code}])")
    if index.code.isdigit():
        scope.known.add((number, int(index.code)))


def _deliver(scope: Scope, opcode: Opcode, operands: list[Json], code: str) -> None:
    """Assign what a call returns to the destinations."""
    count = opcode.destinations
    types = [CARRIERS[o.type] for o in opcode.types[:count]]
    deliver(scope, operands[:count], types, code, single=count == 1)


def deliver(
    scope: Scope, targets: Sequence[Json], dtypes: Sequence[str], code: str, *, single: bool = False
) -> None:
    """Assign the elements of a sequence, or one value, to registers."""
    if single:
        assign(scope, targets[0], _simple(scope, code), dtypes[0])
        return
    result = scope.temp(code)
    for i, (target, dtype) in enumerate(zip(targets, dtypes, strict=True)):
        assign(scope, target, f"{result}[{i}]", dtype)


def _simple(scope: Scope, code: str) -> str:
    return code if scope.mask == "None" else scope.temp(code)


# ---- tensor cores and matrices -------------------------------------------------------------------------------------


def grouped(scope: Scope, nodes: Sequence[Json]) -> None:
    """Translate several instructions of one opcode, none of which reads what another writes."""
    opcode = scope.program.opcodes[nodes[0][1]]
    for _ in nodes:
        scope.count(opcode.text)
    _GROUPS[opcode.words[0]](scope, opcode, [node[2] for node in nodes])


def groups(opcode: Opcode) -> bool:
    """Whether several instructions of this opcode may be translated together."""
    return opcode.words[0] in _GROUPS


def _mma(scope: Scope, opcode: Opcode, rows: list[list[Json]]) -> None:
    shape = Shape.parse(opcode.text, Site(-1, opcode.text, stage=scope.stage))
    if all(_in_place(scope, opcode, shape, row) for row in rows):
        scope.emit(f"W.meet({scope.mask}, {scope.site(opcode.text)})")
        for row in rows:
            _put_off(scope, opcode, shape, row)
        return
    held = scope.constant(opcode.text, shape, "M")
    site = scope.site(opcode.text)
    types, count = opcode.types, opcode.destinations
    texts = []
    for row in rows:
        parts = [
            lanes_of(scope, operand, node)
            for operand, node in zip(types[count:], row[count:], strict=True)
        ]
        texts.append(f"({', '.join(parts)})")
    code = f"mma(W, {scope.mask}, {site}, {held}, ({', '.join(texts)},))"
    dtypes = [CARRIERS[o.type] for o in types[:count]]
    targets = [node for row in rows for node in row[:count]]
    deliver(scope, targets, dtypes * len(rows), code)


def _in_place(scope: Scope, opcode: Opcode, shape: Shape, row: list[Json]) -> bool:
    """Whether an mma adds to registers of one buffer that surely hold values, under no mask."""
    count = opcode.destinations
    target, rest = row[:count], row[len(row) - count :]
    if target != rest or shape.d == "f16" or scope.mask != "None" or not scope.options.together:
        return False
    if any(node is None or not isinstance(node[2], int) for node in target):
        return False
    places = [(node[1], node[2]) for node in target]
    known = all(place in scope.known for place in places) or not scope.options.detect
    return known and len({number for number, _ in places}) == 1


def _put_off(scope: Scope, opcode: Opcode, shape: Shape, row: list[Json]) -> None:
    """Take the fragments of an mma; its product waits."""
    deferred, count = scope.deferred, opcode.destinations
    target = tuple((node[1], node[2]) for node in row[:count])
    if not deferred.joins(target):
        for number, index in target:
            deferred.touch(number, str(index))
    sides = (shape.a_registers, shape.b_registers)
    taken, first = [], count
    for side, registers in enumerate(sides):
        nodes = row[first : first + registers]
        types = opcode.types[first : first + registers]
        texts = [lanes_of(scope, t, node) for t, node in zip(types, nodes, strict=True)]
        key = tuple(_value_key(scope, node, text) for node, text in zip(nodes, texts, strict=True))
        taken.append((side, key, f"({', '.join(texts)},)"))
        first += registers
    deferred.accepts(shape)
    a, b = (deferred.fragment(*fragment) for fragment in taken)
    deferred.product(a, b, target)


def _value_key(scope: Scope, node: Json, text: str) -> object:
    """What tells one operand's value from another: the register and its version, a name that is set once, or nothing."""
    if isinstance(node, list) and node[0] == "load" and isinstance(node[2], int):
        return scope.deferred.version((node[1], node[2]))
    return text if text.isidentifier() else object()


def _ldmatrix(scope: Scope, opcode: Opcode, rows: list[list[Json]]) -> None:
    count = opcode.destinations
    addresses = [address(scope, opcode.types[count], row[count]) for row in rows]
    scope.narrowest = min(scope.narrowest, 16)
    site = scope.site(opcode.text, _home_name(scope, rows[0][count]))
    transpose = "trans" in opcode.words
    if "b16" not in opcode.words or "m8n8" not in opcode.words:
        raise Fault(f"unsupported: {opcode.text}")
    code = f"ldmatrix(W, {scope.mask}, {site}, ({', '.join(addresses)},), {count}, {transpose})"
    targets = [node for row in rows for node in row[:count]]
    deliver(scope, targets, ["uint32"] * len(targets), code)


_GROUPS: dict[str, Callable[[Scope, Opcode, list[list[Json]]], None]] = {
    "mma": _mma,
    "ldmatrix": _ldmatrix,
}


def address(scope: Scope, operand: Operand, node: Json) -> str:
    """Text of a shared address in bytes."""
    value = pointer(scope, node)
    if value.is_pointer and value.home != "shared":
        raise Fault(f"bounds: a shared operand points into {value.home}", at=operand.name)
    return value.code


def _home_name(scope: Scope, node: Json) -> str:
    """Name of the buffer that an address expression starts from, or ""."""
    if not isinstance(node, list):
        return ""
    if node[0] in ("load", "buffer") and scope.buffer(node[1]).space != "local":
        return scope.buffer(node[1]).name
    for child in node[1:]:
        name = _home_name(scope, child)
        if name:
            return name
    return ""


def home_name(scope: Scope, node: Json) -> str:
    """Name of the buffer that an address expression starts from, or ""."""
    return _home_name(scope, node)


def _special(scope: Scope, text: str) -> Emit | None:
    words = text.split(".")
    if words[0] in _GROUPS:
        return lambda scope, opcode, operands: _GROUPS[opcode.words[0]](scope, opcode, [operands])
    for count in range(len(words), 0, -1):
        found = scope.special.get(".".join(words[:count]))
        if found is not None:
            return found
    return None
