"""What one CTA of a plan does, counted by the emulator beside what the cost model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ladder.emulator.matrix import Problem
from ladder.emulator.run import run
from ladder.scheduler.plan import Plan
from ladder.scheduler.search import FIXABLE, schedule
from ladder.scheduler.work import LANES, WARPGROUP_WARPS, work

#: instructions of the load and store unit, by the start of their counter
_LSU = tuple(
    f"op.{name}"
    for name in ("ld.", "st.", "ldmatrix", "stmatrix", "cp.async.ca", "cp.async.cg", "shfl")
)


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity of one CTA.

    Attributes:
        quantity: what is counted, with its unit.
        model: by the cost model; None where it has no such figure.
        emulated: by the emulator.
    """

    quantity: str
    model: float | None
    emulated: float

    def __str__(self) -> str:
        model = "" if self.model is None else f"{self.model:,.0f}"
        ratio = "" if not self.model else f"{self.emulated / self.model:.2f}"
        emulated = f"{self.emulated:,.0f}" if self.emulated >= 100 else f"{self.emulated:.3g}"
        return f"{self.quantity:<44} {model:>14} {emulated:>14} {ratio:>6}".rstrip()


def beside_cost(plan: Plan) -> tuple[Line, ...]:
    """Run the first CTA of a plan with full tiles on the emulator, and count.

    The kernel is made again for as many channels as one CTA has; K and all decisions stay.

    Raises:
        LoweringError: TVM is missing.
        Fault: the kernel is wrong.
    """
    most = plan.m_range[1]
    tokens = plan.tiling.tokens if most is None else max(1, min(plan.tiling.tokens, most))
    op = replace(plan.op, m=tokens, n=min(plan.op.n, plan.tiling.channels))
    decisions = {name: getattr(plan, name) for name in FIXABLE if name != "packing"}
    # as many rows of activations are loaded as before
    decisions["m_range"] = (tokens, tokens)
    single = schedule(op, plan.device, **decisions)
    assert isinstance(single, Plan)  # the operator has its m
    problem = Problem.planned(single, tokens)
    launch = problem.lowered.launch
    report = run(
        problem.lowered.listing,
        problem.arguments(np.zeros_like(problem.values["y"])),
        launch.grid_for(tokens),
        launch.block,
        cluster=launch.cluster or (1, 1, 1),
        detect=False,
        counters=True,
    )
    # a cluster runs as a whole; its CTAs do alike
    counters = {name: number / single.split for name, number in report.counters.items()}
    return _lines(single, counters)


def _lines(plan: Plan, counters: Mapping[str, float]) -> tuple[Line, ...]:
    model = work(plan)
    count = _Counts(counters)
    products = count.of("op.mma.sync") + count.of("op.wgmma.mma_async") / WARPGROUP_WARPS
    loaded = count.of("global.cp.async.bytes", "global.load.bytes", "shared.bulk.bytes")
    shared = sum(
        n for name, n in counters.items() if name.startswith("shared.") and name.endswith(".bytes")
    )
    lines = [
        Line("products", model.products, products),
        *_decode(plan, count),
        Line("lsu, lane instructions", model.lsu, count.of(*_LSU) * LANES),
        Line("shared memory, bytes", model.shared_bytes, shared),
        Line("loaded from L2, bytes", model.weight_bytes + model.activation_bytes, loaded),
        Line("stored, bytes", None, count.of("global.store.bytes")),
        Line("barriers, warps", None, count.of("op.bar.sync", "op.barrier.cta.sync")),
    ]
    for kind in ("load", "ldmatrix", "store", "cp.async"):
        if counters.get(f"shared.{kind}.requests"):
            name = f"bank conflicts of shared {kind}, wavefronts"
            lines.append(Line(name, None, counters[f"shared.{kind}.conflicts"]))
    for kind in ("load", "store", "cp.async"):
        if requests := counters.get(f"global.{kind}.requests"):
            sectors = counters[f"global.{kind}.sectors"]
            lines.append(Line(f"sectors per request of global {kind}", None, sectors / requests))
    return tuple(lines)


def _decode(plan: Plan, count: _Counts) -> list[Line]:
    """Instructions of decoding by pipe, per 8 codes."""
    pipes = plan.program.pipes()
    cut, tiling = plan.packing.geometry, plan.tiling
    repeats = tiling.warps_m if plan.convert == "register" else 1
    eights = tiling.channels * cut.blocks / plan.split * cut.block_k / 8 * repeats
    # zeros that come off in registers: one fma of two lanes for each of the four registers that hold 8 codes
    by_fma = plan.zero == "register" and plan.has_zeros
    zeros = 4.0 if by_fma else 0.0
    model = {"alu": pipes.get("alu", 0.0), "fma": pipes.get("fma", 0.0) + zeros}
    return [
        Line(f"decode, {pipe} lane instructions per 8 codes", expected, found)
        for pipe, expected in model.items()
        if (found := count.of(f"pipe.{pipe}.decode") * LANES / eights) or expected
    ]


@dataclass(frozen=True)
class _Counts:
    counters: Mapping[str, float]

    def of(self, *starts: str) -> float:
        """Sum of the counters that begin like this."""
        return sum(n for name, n in self.counters.items() if name.startswith(starts))


def table(lines: tuple[Line, ...]) -> list[str]:
    """Lines for people, with a head."""
    return [f"{'one CTA':<44} {'cost model':>14} {'emulator':>14} {'ratio':>6}", *map(str, lines)]


def record(lines: tuple[Line, ...]) -> list[dict[str, Any]]:
    """Lines for JSON."""
    return [{f.name: getattr(line, f.name) for f in fields(line)} for line in lines]
