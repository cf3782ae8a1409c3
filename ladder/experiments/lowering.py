"""Which kernels run for a point, and what each should take; and the point's result by their NumPy meaning or the emulator.

=========  =================================  ===========================================================
placement  what lies in memory                what runs at each call
=========  =================================  ===========================================================
offline    numbers, decoded once before       a product with a dense weight
global     codes, and room for the numbers    a kernel that decodes all of them, the product with a dense weight
shared     codes                              one kernel; codes become numbers in shared memory
register   codes                              one kernel; codes become numbers in registers
=========  =================================  ===========================================================

Quantised activations add a kernel of their own (source "global"), or nothing where the operator that makes them quantises in
its epilogue ("source"): of that only the absence of a kernel is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.checks import one_of
from ladder.errors import ExperimentError, LadderError
from ladder.experiments.sweep import Point, Sweep
from ladder.graph import MatMul, dequantize, matmul, quantize_activations
from ladder.graph.quantize_activations import TARGETS, QuantizeActivations
from ladder.runtime.tuning.problem import plan_digest
from ladder.scheduler.cost import Cost
from ladder.scheduler.search import schedule
from ladder.ttype import GroupedType, Quantized, element_type, quantize

PLACES = one_of(("numpy", "emulator"))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a point.

    Attributes:
        name: "matmul", "dequantize" or "quantize".
        plan: its plan.
        cost: what it should take.
    """

    name: str
    plan: Any
    cost: Cost

    @cached_property
    def digest(self) -> str:
        """See :func:`~ladder.runtime.tuning.problem.plan_digest`."""
        return plan_digest(self.plan)

    @property
    def dram_bytes(self) -> int:
        """Bytes that it moves from and to memory, by the model."""
        return int(sum(bound.amount for bound in self.cost.bounds if bound.name == "BW dram"))


@dataclass(frozen=True)
class Lowering:
    """What runs for a point.

    Attributes:
        point: the point.
        op: the operator, with the weight's codes.
        kernels: in the order in which they run.
        weight_bytes: of the weight in memory between calls.
        modelled_only: what of it no kernel does yet; empty where all of it runs.
    """

    point: Point
    op: MatMul
    kernels: tuple[Kernel, ...]
    weight_bytes: int
    modelled_only: str = ""

    @property
    def us(self) -> float:
        """Microseconds of all kernels, one after the other."""
        return sum(kernel.cost.us for kernel in self.kernels)

    @property
    def limit(self) -> str:
        """What bounds the kernel that takes longest."""
        longest = max(self.kernels, key=lambda kernel: kernel.cost.us)
        name = longest.cost.limit.name
        return name if len(self.kernels) == 1 else f"{longest.name}: {name}"

    @property
    def dram_bytes(self) -> int:
        """Bytes moved from and to memory in a call."""
        return sum(kernel.dram_bytes for kernel in self.kernels)

    @property
    def product(self) -> Any:
        """The plan of the matmul."""
        return self.kernels[-1].plan


Scheduled = Callable[..., Any]


class Scheduler:
    """The package's scheduler, which remembers its answers: points of a sweep share many."""

    def __init__(self) -> None:
        self._known: dict[Any, Kernel] = {}

    def kernel(self, name: str, op: Any, device: Any, **decisions: Any) -> Kernel:
        """The kernel of an operator.

        Raises:
            LadderError: no plan does it.
        """
        key = (name, op, device, tuple(decisions.items()))
        if key not in self._known:
            plan = schedule(op, device, **decisions)
            self._known[key] = Kernel(name, plan, plan.cost())
        return self._known[key]

    def product(self, op: MatMul, point: Point) -> Kernel:
        """The product of a point that converts within it.

        What the search picks of all plans, it picks of those that convert where that plan does, too: one search less.

        Raises:
            LadderError: no plan does it.
        """
        if not point.fixed:
            with suppress(LadderError):  # another placement may do what the free search cannot
                free = self.kernel("matmul", op, point.device)
                if free.plan.convert == point.placement:
                    return free
        decisions = dict(point.fixed)
        return self.kernel("matmul", op, point.device, placement=point.placement, **decisions)


def operator(point: Point, sweep: Sweep) -> MatMul:
    """The product of a point, with the weight's codes.

    Raises:
        LadderError: types or extents do not go together.
    """
    is_quantised = point.activation in TARGETS
    return matmul(
        point.m,
        point.n,
        point.k,
        activation=point.activation,
        weight=point.type_of(sweep.scale, sweep.zero),
        out=sweep.compute if is_quantised else point.activation,
        activation_scale=is_quantised,
    )


def lower(point: Point, sweep: Sweep, scheduler: Scheduler | None = None) -> Lowering:
    """The kernels of a point of a sweep.

    Raises:
        LadderError: the point cannot be had; the error says why.
    """
    asked = scheduler or Scheduler()
    op = operator(point, sweep)
    before, missing = _inputs(point, sweep, asked)
    kernels, nbytes = _LOWERED[point.placement](point, op, asked)
    return Lowering(point, op, (*before, *kernels), nbytes, missing)


def choice(point: Point, sweep: Sweep, scheduler: Scheduler) -> Lowering:
    """What the scheduler does where nothing is fixed; it keeps codes in memory, and has one kernel.

    Raises:
        LadderError: it finds no plan either.
    """
    op = operator(point, sweep)
    before, missing = _inputs(point, sweep, scheduler)
    product = scheduler.kernel("matmul", op, point.device)
    return Lowering(point, op, (*before, product), product.plan.packing.nbytes, missing)


def kernels_of(sweep: Sweep) -> Iterator[Kernel]:
    """All kernels that the points of a sweep run, each once; points that cannot be had run none."""
    scheduler = Scheduler()
    seen: set[str] = set()
    for point in sweep.points():
        try:
            found = lower(point, sweep, scheduler)
        except LadderError:  # the point's row says why
            continue
        fresh = [kernel for kernel in found.kernels if kernel.digest not in seen]
        seen.update(kernel.digest for kernel in fresh)
        yield from fresh


def _inputs(point: Point, sweep: Sweep, asked: Scheduler) -> tuple[tuple[Kernel, ...], str]:
    """What makes activations of the type that is multiplied."""
    if point.activation not in TARGETS:
        return (), ""
    if point.source == "source":
        return (), "x quantised by its source operator"
    op = _quantisation(point, sweep.compute)
    return (asked.kernel("quantize", op, point.device),), ""


def _quantisation(point: Point, source: Any) -> QuantizeActivations:
    return quantize_activations(point.m, point.k, source=source, target=point.activation)


Lowered = tuple[tuple[Kernel, ...], int]


def _in_kernel(point: Point, op: MatMul, asked: Scheduler) -> Lowered:
    product = asked.product(op, point)
    return (product,), product.plan.packing.nbytes


def _dense(point: Point, op: MatMul, asked: Scheduler) -> Kernel:
    if op.activation_scale:
        raise ExperimentError(
            f"a weight of {op.activation} alone has no scales",
            at=f"placement {point.placement!r} with activations of {op.activation}",
            hint="convert such weights in shared memory or in registers, where scales stay apart",
        )
    dense = matmul(op.m, op.n, op.k, activation=op.activation, weight=op.activation, out=op.out)
    return asked.kernel("matmul", dense, point.device, **dict(point.fixed))


def _offline(point: Point, op: MatMul, asked: Scheduler) -> Lowered:
    product = _dense(point, op, asked)
    return (product,), product.plan.packing.nbytes


def _global(point: Point, op: MatMul, asked: Scheduler) -> Lowered:
    decode = dequantize(op.n, op.k, weight=op.weight, compute=op.activation)
    first = asked.kernel("dequantize", decode, point.device)
    product = _dense(point, op, asked)
    return (first, product), first.plan.packing.nbytes + product.plan.packing.nbytes


#: placement -> its kernels and the bytes of its weight
_LOWERED: Mapping[str, Callable[[Point, MatMul, Scheduler], Lowered]] = MappingProxyType(
    {"offline": _offline, "global": _global, "shared": _in_kernel, "register": _in_kernel}
)


# -- results ------------------------------------------------------------------------------------------------------


def run(
    lowering: Lowering, x: NDArray[Any], weights: Quantized, device: str = "numpy"
) -> NDArray[Any]:
    """The result of a point: x ``[m, k]``, weights ``[n, k]`` -> y ``[m, n]``, whatever the placement.

    Args:
        lowering: of a point.
        x: of the activation type; where the point quantises activations, of the operator's output type.
        weights: the codes; where they are converted offline, that is done here.
        device: "numpy" (the plans' meaning) or "emulator" (their kernels' instructions on the CPU).

    Raises:
        ExperimentError: the device is another one.
        LadderError: operands do not fit, or a kernel cannot be compiled.
    """
    if not PLACES.fits(device):
        raise ExperimentError(
            f"no place is called {device!r}", at="run", hint="points run by 'numpy' or 'emulator'"
        )
    placement = lowering.point.placement
    if placement == "offline":
        weights = offline(weights, lowering.op)
    given, x_scale = _quantised(lowering, x, device)
    if device == "emulator":
        return _emulated(lowering, given, weights, x_scale)
    if placement == "global":
        weights = lowering.kernels[0].plan.dense(weights)
    y: NDArray[Any] = lowering.product.run(given, weights, x_scale=x_scale)
    return y


def _quantised(
    lowering: Lowering, x: NDArray[Any], device: str
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """x as the product takes it: codes and scales of its rows, or x itself and None."""
    if not lowering.op.activation_scale:
        return x, None
    first = lowering.kernels[0]
    if first.name != "quantize":  # the operator that makes x does it, by the same meaning
        codes, scales = _quantisation(lowering.point, lowering.op.out).reference(x)
    elif device == "emulator":
        from ladder.runtime.build import compile_plan

        codes, scales = compile_plan(first.plan)(x, device="emulator")
    else:
        codes, scales = first.plan.run(x)
    return codes, scales


def offline(weights: Quantized, op: MatMul) -> Quantized:
    """A weight decoded once and for all: dense, of the activation's type."""
    dense = GroupedType(element_type(op.activation), scale=None)
    return quantize(weights.dequantize(), dense)


def _emulated(
    lowering: Lowering, x: NDArray[Any], weights: Quantized, x_scale: NDArray[Any] | None
) -> NDArray[Any]:
    from ladder.runtime.build import compile_plan

    product = compile_plan(lowering.product)
    if lowering.point.placement == "global":
        decode = compile_plan(lowering.kernels[0].plan)
        packed = decode(decode.pack(weights), device="emulator")
    else:
        packed = product.pack(weights)
    return np.asarray(product(x, packed, x_scale, device="emulator"))
