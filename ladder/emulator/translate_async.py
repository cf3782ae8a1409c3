"""Asynchronous instructions as Python text: mbarriers, bulk and tensor copies, wgmma, clusters, proxy fences."""

from __future__ import annotations

from ladder.emulator.atomics import operation
from ladder.emulator.program import CARRIERS, Json, Opcode
from ladder.emulator.report import Fault, Site
from ladder.emulator.translate_call import pointer
from ladder.emulator.translate_expr import expression
from ladder.emulator.translate_ptx import Emit, carried, deliver, home_name
from ladder.emulator.translate_scope import Scope, Value
from ladder.emulator.wgmma import Shape


def named(opcode: Opcode, operands: list[Json]) -> dict[str, list[Json]]:
    """Operands by the names of the instruction table."""
    found: dict[str, list[Json]] = {}
    for operand, node in zip(opcode.types, operands, strict=True):
        found.setdefault(operand.name, []).append(node)
    return found


def shared(scope: Scope, node: Json) -> str:
    """Text of a shared address."""
    value = pointer(scope, node)
    if value.is_pointer and value.home != "shared":
        raise Fault(f"bounds: a shared operand points into {value.home}", at=str(node)[:120])
    return value.code


def _head(scope: Scope, opcode: Opcode, node: Json = None) -> str:
    name = "" if node is None else home_name(scope, node)
    return f"W, {scope.mask}, {scope.site(opcode.text, name)}"


def _plain(function: str, *arguments: str) -> Emit:
    """An instruction without operands, or with one immediate."""

    def emit(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
        values = [expression(scope, node).code for node in operands]
        text = ", ".join([_head(scope, opcode), *values, *arguments])
        scope.emit(f"{function}({text})")

    return emit


# ---- mbarrier ------------------------------------------------------------------------------------------------------


def _mbarrier_init(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    scope.narrowest = min(scope.narrowest, 8)
    count = expression(scope, operands[1]).code
    head = _head(scope, opcode, operands[0])
    scope.emit(f"mbarrier_init({head}, {shared(scope, operands[0])}, {count})")


def _mbarrier_arrive(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    words, parts = opcode.words, named(opcode, operands)
    count, nbytes = "1", "NONE"
    if "expect_tx" in words:
        amount = parts.get("tx_count") or parts["count"]
        nbytes = expression(scope, amount[0]).code
    elif "count" in parts:
        count = expression(scope, parts["count"][0]).code
    head = _head(scope, opcode, parts["addr"][0])
    flags = f"drop={'arrive_drop' in words}, relaxed={'relaxed' in words}"
    code = f"mbarrier_arrive({head}, {shared(scope, parts['addr'][0])}, {count}, {nbytes}, {flags})"
    if opcode.destinations:
        deliver(scope, operands[:1], ["uint64"], code, single=True)
    else:
        scope.emit(code)
    scope.emit('yield "arrived", None')


def _mbarrier_transaction(*, expect: bool) -> Emit:
    def emit(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
        amount = expression(scope, operands[1]).code
        head = _head(scope, opcode, operands[0])
        place = shared(scope, operands[0])
        scope.emit(f"mbarrier_transaction({head}, {place}, {amount}, expect={expect})")

    return emit


def _mbarrier_wait(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    parts = named(opcode, operands)
    place, head = shared(scope, parts["addr"][0]), _head(scope, opcode, parts["addr"][0])
    phase = expression(scope, (parts.get("phase") or parts.get("phaseParity") or parts["state"])[0])
    by_state = "parity" not in opcode.words
    arguments = f"{head}, {place}, {phase.code}, state={by_state}"
    if opcode.words[1] == "test_wait":
        scope.emit('yield "mbarrier.test_wait", None')
        deliver(scope, operands[:1], ["uint32"], f"mbarrier_test({arguments})", single=True)
        return
    scope.emit(f"yield from mbarrier_wait({arguments})")
    deliver(scope, operands[:1], ["uint32"], "vector(W, 1, np.uint32)", single=True)


def _mbarrier_inval(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    head = _head(scope, opcode, operands[0])
    scope.emit(f"mbarrier_inval({head}, {shared(scope, operands[0])})")


def _cp_async_arrive(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    head, place = _head(scope, opcode, operands[0]), shared(scope, operands[0])
    scope.emit(f"cp_async_arrive({head}, {place}, counted={'noinc' in opcode.words})")


# ---- bulk and tensor copies ----------------------------------------------------------------------------------------


def _home(value: Value, node: Json) -> str:
    if value.home in ("", "shared", "local"):
        raise Fault("unsupported: a bulk copy of a generic address", at=str(node)[:120])
    return value.home


def _bulk(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    words, parts = opcode.words, named(opcode, operands)
    scope.narrowest = min(scope.narrowest, 16)
    size = expression(scope, parts["size"][0]).code
    target, source = parts["dst_mem"][0], parts["src_mem"][0]
    if "bulk_group" in words:
        place = pointer(scope, target)
        home = _home(place, target)
        scope.accesses(home, 16, writes=True)
        head = _head(scope, opcode, source)
        scope.emit(f"bulk_store({head}, {home}, {place.code}, {shared(scope, source)}, {size})")
        return
    barrier = shared(scope, parts["mbar"][0])
    head = _head(scope, opcode, target)
    if "global" not in words:
        arguments = f"{shared(scope, target)}, {shared(scope, source)}, {size}, {barrier}"
        scope.emit(f"bulk_exchange({head}, {arguments})")
    else:
        place = pointer(scope, source)
        home = _home(place, source)
        scope.accesses(home, 16)
        ranks = _ranks(scope, parts)
        arguments = f"{shared(scope, target)}, ({home}, {place.code}), {size}, {barrier}{ranks}"
        scope.emit(f"bulk_load({head}, {arguments})")
    scope.emit('yield "a bulk copy", None')


def _ranks(scope: Scope, parts: dict[str, list[Json]]) -> str:
    mask = parts.get("cta_mask")
    return "" if not mask else f", {expression(scope, mask[0]).code}"


def _bulk_reduce(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    parts = named(opcode, operands)
    scope.narrowest = min(scope.narrowest, 16)
    if "global" not in opcode.words:
        raise Fault(f"unsupported: {opcode.text}")
    place = pointer(scope, parts["dst_mem"][0])
    home = _home(place, parts["dst_mem"][0])
    scope.accesses(home, 16, writes=True)
    scope.concurrent = True
    head = _head(scope, opcode, parts["src_mem"][0])
    source = shared(scope, parts["src_mem"][0])
    size = expression(scope, parts["size"][0]).code
    update = _update(scope, opcode, CARRIERS[opcode.words[-1]])
    scope.emit(f"bulk_reduce({head}, {home}, {place.code}, {source}, {size}, {update})")


def _update(scope: Scope, opcode: Opcode, dtype: str) -> str:
    held = scope.constant(opcode.text, operation(opcode.text), "A")
    return f"Update({held}, (), {scope.dtype(dtype)})"


def _tensor(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    words, parts = opcode.words, named(opcode, operands)
    scope.narrowest = min(scope.narrowest, 16)
    home = _home(pointer(scope, parts["tmap"][0]), parts["tmap"][0])
    first = "".join(f"{expression(scope, node).code}, " for node in parts["coords"])
    if "bulk_group" in words:
        source = parts["src_mem"][0]
        scope.accesses(home, 1, writes=True)
        update = ""
        if "reduce" in words:
            scope.concurrent = True
            dtype = scope.tensor_dtype(home)
            update = f", {_update_of(scope, opcode, dtype)}"
        head = _head(scope, opcode, source)
        scope.emit(f"tensor_store({head}, {home}, ({first}), {shared(scope, source)}{update})")
        return
    scope.accesses(home, 1)
    target, barrier = parts["dst_mem"][0], shared(scope, parts["mbar"][0])
    head = _head(scope, opcode, target)
    ranks = _ranks(scope, parts)
    scope.emit(f"tensor_load({head}, {shared(scope, target)}, {home}, ({first}), {barrier}{ranks})")
    scope.emit('yield "a tensor copy", None')


def _update_of(scope: Scope, opcode: Opcode, dtype: str) -> str:
    name = next(
        w for w in opcode.words if w in ("add", "min", "max", "and", "or", "xor", "inc", "dec")
    )
    text = f"red.{name}.{ {'float16': 'f16', 'bfloat16': 'bf16'}.get(dtype, dtype) }"
    held = scope.constant(text, operation(text), "A")
    carrier = {"float16": "uint16", "bfloat16": "uint16"}.get(dtype, dtype)
    return f"Update({held}, (), {scope.dtype(carrier)})"


# ---- wgmma ---------------------------------------------------------------------------------------------------------


def _wgmma(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    parts = named(opcode, operands)
    shape = Shape.parse(opcode.text, Site(-1, opcode.text, stage=scope.stage))
    held = scope.constant(opcode.text, shape, "M")
    scope.deferred.settle()
    d = _registers(parts["d"])
    scope.narrowest = min(scope.narrowest, 16)
    a = _registers(parts["a"]) if "a" in parts else expression(scope, parts["a_desc"][0]).code
    b = expression(scope, parts["b_desc"][0]).code
    names = ("scale_d", "scale_a", "scale_b", "trans_a", "trans_b")
    options = "".join(f"{expression(scope, parts[n][0]).code}, " for n in names if n in parts)
    scope.emit(f"wgmma({_head(scope, opcode)}, {held}, {d}, {a}, {b}, ({options}))")
    for node in parts["d"]:
        scope.known.add((node[1], node[2]))


def _registers(nodes: list[Json]) -> str:
    """Text of a fragment: runs of registers that stand side by side in one buffer."""
    runs: list[tuple[int, int, int]] = []
    for node in nodes:
        if node[0] != "load" or not isinstance(node[2], int):
            raise Fault("unsupported: a wgmma operand that is no register", at=str(node)[:120])
        number, index = node[1:]
        if runs and runs[-1][0] == number and runs[-1][2] == index:
            runs[-1] = (number, runs[-1][1], index + 1)
        else:
            runs.append((number, index, index + 1))
    texts = [f"Run(r{number}, h{number}, slice({first}, {end}))" for number, first, end in runs]
    return f"({', '.join(texts)},)"


def _wgmma_fence(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.deferred.settle()
    states = "".join(f"h{number}, " for number in sorted(scope.fragile))
    scope.emit(f"wgmma_fence({_head(scope, opcode)}, ({states}))")


def _wgmma_wait(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    pending = expression(scope, operands[0]).code
    scope.emit(f"wgmma_wait({_head(scope, opcode)}, {pending})")
    scope.emit('yield "wgmma.wait_group", None')


# ---- clusters ------------------------------------------------------------------------------------------------------


def _cluster_arrive(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.emit(f"cluster_arrive({_head(scope, opcode)}, relaxed={'relaxed' in opcode.words})")


def _cluster_wait(scope: Scope, opcode: Opcode, _operands: list[Json]) -> None:
    scope.emit(f"yield from cluster_wait({_head(scope, opcode)})")


def _mapa(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    place, rank = shared(scope, operands[1]), expression(scope, operands[2]).code
    code = f"mapa({_head(scope, opcode, operands[1])}, {place}, {rank})"
    if opcode.words[-1] == "u64":
        code = f"{code}.astype(np.uint64)"
    deliver(scope, operands[:1], [CARRIERS[opcode.words[-1]]], code, single=True)


def _store_async(scope: Scope, opcode: Opcode, operands: list[Json]) -> None:
    types = list(zip(opcode.types, operands, strict=True))
    dtype = CARRIERS[opcode.words[-1]]
    values = [carried(scope, t, expression(scope, n)) for t, n in types if t.kind == "reg"]
    parts = named(opcode, operands)
    scope.narrowest = min(scope.narrowest, 4)
    place, barrier = shared(scope, parts["addr"][0]), shared(scope, parts["mbar"][0])
    update = ""
    if opcode.words[0] == "red":
        update = f", {_update(scope, opcode, dtype)}"
    row = f"({', '.join(values)},), {scope.dtype(dtype)}"
    scope.emit(f"store_async({_head(scope, opcode)}, {place}, {row}, {barrier}{update})")
    scope.emit('yield "an asynchronous store", None')


# ---- calls ---------------------------------------------------------------------------------------------------------


def call_wait(scope: Scope, call: Json) -> None:
    """``T.cuda.mbarrier_wait(pointer, parity)``."""
    scope.count("mbarrier.try_wait.parity")
    site = scope.site("mbarrier_wait", home_name(scope, call[3]))
    parity = expression(scope, call[4]).code
    scope.emit(
        f"yield from mbarrier_wait(W, {scope.mask}, {site}, {shared(scope, call[3])}, {parity})"
    )


def call_cluster_sync(scope: Scope, _call: Json) -> None:
    """``T.cuda.cluster_sync()``."""
    scope.count("barrier.cluster.sync")
    scope.emit(f"yield from cluster_sync(W, {scope.mask}, {scope.site('cluster_sync')})")


def call_descriptor(scope: Scope, call: Json) -> None:
    """``T.cuda.wgmma.encode_matrix_descriptor(address_of(desc), pointer, ldo, sdo, swizzle)``."""
    target = call[3]
    while target[0] == "call":
        target = target[3]
    site = scope.site("encode_matrix_descriptor", home_name(scope, call[4]))
    numbers = ", ".join(expression(scope, node).code for node in call[5:8])
    code = f"encode_descriptor(W, {scope.mask}, {site}, {shared(scope, call[4])}, {numbers})"
    deliver(scope, [target], ["uint64"], code, single=True)


def call_warpgroup_sync(scope: Scope, call: Json) -> None:
    """``T.cuda.warpgroup_sync(barrier)``: a named barrier of 128 threads."""
    number = expression(scope, call[3]).code
    site = scope.site("warpgroup_sync")
    scope.emit(f"yield from bar_sync(W, {scope.mask}, {site}, {number}, 128)")


def elect(scope: Scope, _node: Json, _lane: int) -> Value:
    """``T.cuda.elect_sync()``: 1 in one lane of the warp."""
    scope.count("elect.sync")
    code = f"elect(W, {scope.mask}, {scope.site('elect.sync')})[1]"
    return Value(scope.temp(code), "V", "uint32")


def special_register(_scope: Scope, node: Json, _lane: int) -> Value:
    """``T.cuda.mov_sreg(bits, name)``."""
    name = node[4][1].lstrip("%")
    code = {
        "cluster_ctarank": "P.rank",
        "cluster_nctarank": "P.ranks",
        **{f"clusterid.{axis}": f"P.cluster_{axis}" for axis in "xyz"},
        **{f"ctaid.{axis}": f"P.block_{axis}" for axis in "xyz"},
    }.get(name)
    if code is None:
        raise Fault(f"unsupported: special register {name}")
    return Value(code, "U", node[2])


SPECIAL: dict[str, Emit] = {
    "mbarrier.init": _mbarrier_init,
    "mbarrier.inval": _mbarrier_inval,
    "mbarrier.arrive": _mbarrier_arrive,
    "mbarrier.arrive_drop": _mbarrier_arrive,
    "mbarrier.expect_tx": _mbarrier_transaction(expect=True),
    "mbarrier.complete_tx": _mbarrier_transaction(expect=False),
    "mbarrier.try_wait": _mbarrier_wait,
    "mbarrier.test_wait": _mbarrier_wait,
    "cp.async.mbarrier.arrive": _cp_async_arrive,
    "cp.async.bulk": _bulk,
    "cp.async.bulk.tensor": _tensor,
    "cp.async.bulk.commit_group": _plain("bulk_commit"),
    "cp.async.bulk.wait_group": _plain("bulk_wait", "read=False"),
    "cp.async.bulk.wait_group.read": _plain("bulk_wait", "read=True"),
    "cp.async.bulk.prefetch": lambda _scope, _opcode, _operands: None,
    "cp.reduce.async.bulk": _bulk_reduce,
    "cp.reduce.async.bulk.tensor": _tensor,
    "fence.proxy.async": _plain("fence_proxy"),
    "fence.mbarrier_init": _plain("fence_mbarrier_init"),
    "wgmma.mma_async": _wgmma,
    "wgmma.fence": _wgmma_fence,
    "wgmma.commit_group": _plain("wgmma_commit"),
    "wgmma.wait_group": _wgmma_wait,
    "barrier.cluster.arrive": _cluster_arrive,
    "barrier.cluster.wait": _cluster_wait,
    "mapa": _mapa,
    "st.async": _store_async,
    "red.async": _store_async,
}

EFFECTS = {
    "cuda.mbarrier_wait": call_wait,
    "cuda.mbarrier_wait_acquire_cluster": call_wait,
    "cuda.cluster_sync": call_cluster_sync,
    "cuda.wgmma_encode_matrix_descriptor": call_descriptor,
    "cuda.warpgroup_sync": call_warpgroup_sync,
}

CALLS = {"cuda.elect_sync": elect, "cuda.mov_sreg": special_register}
