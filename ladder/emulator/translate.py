"""From a listing to a Python function that runs one warp.

The function is a generator ``kernel(W, P, N)`` of a warp, the arguments and the counters of straight runs; it yields where
the warp may stop. ``Translation.text`` is its source, to be read when something looks wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ladder.emulator import (
    async_copy,
    atomics,
    barriers,
    bulk,
    cluster,
    exchange,
    lanes,
    mbarrier,
    memory,
    mma,
    tma,
    translate_async,
    translate_call,
    translate_expr,
    translate_order,
    translate_special,
    wgmma,
)
from ladder.emulator.program import DTYPES, Json, Program, statements
from ladder.emulator.report import Fault
from ladder.emulator.translate_scope import Options, Scope, Value
from ladder.emulator.translate_stmt import statement
from ladder.emulator.warp import LANES, Allocation, Steps, Warp

FORMS = {**translate_expr.FORMS, **translate_call.FORMS}
CALLS = {
    **translate_call.CALLS,
    **translate_async.CALLS,
    "cuda.atomic_add": translate_order.atomic_add,
}
SPECIAL = {**translate_special.SPECIAL, **translate_async.SPECIAL}

#: names that translated code may use
RUNTIME: dict[str, Any] = {
    "np": np,
    "NONE": None,
    **{
        function.__name__: function
        for function in (
            lanes.narrow,
            lanes.merge,
            lanes.also,
            lanes.canonical,
            lanes.inside,
            lanes.register,
            lanes.gather,
            lanes.scatter,
            lanes.tdiv,
            lanes.tmod,
            lanes.fdiv,
            lanes.fmod,
            lanes.uniform,
            memory.vector,
            memory.load_shared,
            memory.store_shared,
            memory.load_global,
            memory.store_global,
            async_copy.cp_async,
            async_copy.commit_group,
            async_copy.wait_group,
            async_copy.wait_all,
            barriers.bar_sync,
            barriers.bar_arrive,
            barriers.warp_sync,
            atomics.Update,
            atomics.atomic_global,
            atomics.atomic_shared,
            atomics.fence,
            atomics.ordered_load,
            atomics.ordered_store,
            exchange.ldmatrix,
            exchange.stmatrix,
            exchange.movmatrix,
            exchange.shuffle,
            exchange.cuda_shuffle,
            exchange.vote,
            exchange.redux,
            exchange.elect,
            mma.mma,
            mma.mma_batch,
            mbarrier.mbarrier_init,
            mbarrier.mbarrier_inval,
            mbarrier.mbarrier_arrive,
            mbarrier.mbarrier_transaction,
            mbarrier.mbarrier_wait,
            mbarrier.mbarrier_test,
            mbarrier.cp_async_arrive,
            bulk.bulk_load,
            bulk.bulk_store,
            bulk.bulk_reduce,
            bulk.bulk_exchange,
            bulk.bulk_commit,
            bulk.bulk_wait,
            tma.tensor_load,
            tma.tensor_store,
            wgmma.Run,
            wgmma.fragile_read,
            wgmma.fragile_write,
            wgmma.encode_descriptor,
            wgmma.wgmma,
            wgmma.wgmma_fence,
            wgmma.wgmma_commit,
            wgmma.wgmma_wait,
            cluster.cluster_arrive,
            cluster.cluster_wait,
            cluster.cluster_sync,
            cluster.fence_proxy,
            cluster.fence_mbarrier_init,
            cluster.mapa,
            cluster.store_async,
        )
    },
}


@dataclass(frozen=True)
class Parameter:
    """A kernel argument: its name, dtype, and whether it is a pointer."""

    name: str
    dtype: str
    is_pointer: bool


@dataclass(frozen=True)
class Translation:
    """A kernel ready to run.

    Attributes:
        kernel: name.
        text: Python source.
        function: generator function of (warp, arguments, run counts).
        parameters: in the order of the kernel's signature.
        allocations: shared buffers.
        granule: bytes of the narrowest access to shared memory.
        extents: launch axis -> expression of its extent.
        histograms: instructions of each straight run.
        written: parameters that the kernel writes, and the bytes of the narrowest access to each.
        concurrent: whether CTAs may wait for each other.
    """

    kernel: str
    text: str
    function: Callable[[Warp, Any, list[int]], Steps]
    parameters: tuple[Parameter, ...]
    allocations: tuple[Allocation, ...]
    granule: int
    extents: Mapping[str, Json]
    histograms: tuple[Counter[str], ...]
    written: Mapping[int, int]
    concurrent: bool


def translate(listing: Mapping[str, Json], options: Options | None = None) -> Translation:
    """Translate a listing.

    Raises:
        Fault: ``unsupported`` for an instruction or a form that the emulator does not know.
    """
    program, options = Program(listing), options or Options()
    tracked: frozenset[int] = frozenset()
    while True:
        scope = Scope(program, options, tracked, FORMS, CALLS, SPECIAL)
        parameters = _parameters(scope)
        if _threads(program.body) % LANES:
            scope.mask = scope.temp("W.start", "m")
        statement(scope, program.body)
        scope.deferred.settle()
        scope.flush_counts()
        if scope.doubtful <= tracked:
            break
        tracked |= scope.doubtful
    text = "\n".join(["def kernel(W, P, N):", *scope.lines, "    if False: yield", ""])
    names = {**RUNTIME, **scope.globals}
    exec(compile(text, f"<emulated {program.kernel}>", "exec"), names)  # noqa: S102  our own text
    return Translation(
        program.kernel,
        text,
        names["kernel"],
        parameters,
        tuple(scope.allocations.values()),
        scope.narrowest,
        scope.extents,
        tuple(scope.histograms),
        {int(home[1:]): scope.global_widths[home] for home in sorted(scope.global_written)},
        scope.concurrent,
    )


def _threads(body: Json) -> int:
    """Threads of a CTA by the kernel's launch extents."""
    launches = (node for node in statements(body) if node[0] == "launch")
    extents = [extent for _, axis, _, extent, _ in launches if axis.startswith("threadIdx")]
    return math.prod(extent for extent in extents if isinstance(extent, int))


def _parameters(scope: Scope) -> tuple[Parameter, ...]:
    """Bind the kernel's arguments to local names."""
    parameters = []
    for number in sorted(scope.fragile):
        # A fence names the fragments of the whole kernel, also those that are declared further down.
        scope.emit(f"h{number} = []")
    for position, number in enumerate(scope.program.params):
        name, dtype = scope.program.vars[number]
        local = f"p{position}"
        scope.emit(f"{local} = P.arguments[{position}]")
        pointer = dtype.startswith("handle")
        if pointer:
            scope.values[number] = Value("0", "U", "handle", local)
            dtype = dtype.split(":")[1]
        elif dtype in DTYPES:
            scope.values[number] = Value(local, "U", dtype)
        else:
            raise Fault(f"unsupported: parameter {name} of type {dtype}", at=scope.program.kernel)
        parameters.append(Parameter(name, dtype, pointer))
    return tuple(parameters)
