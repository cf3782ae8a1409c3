"""Every type through every family on the emulator, and every synchronisation dropped in turn.

    python -m ladder.emulator.matrix emulator.json               # all types, 20 schedules each: about half an hour
    python -m ladder.emulator.matrix emulator.json --types int4 nf4 --seeds 2

Each kernel is compared with its plan in NumPy and with the operator in float64; a fault on any schedule is a false alarm or a bug of the
kernel. Then each instruction that synchronises or copies is dropped from one kernel of each family.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.codegen.kernel import box_rows
from ladder.emulator.matrix_report import Dropped, MatrixReport, Row
from ladder.emulator.mutate import mutants
from ladder.emulator.report import Fault
from ladder.emulator.run import run
from ladder.emulator.tma import TensorMap
from ladder.emulator.translate import translate
from ladder.errors import EmulationError, LadderError
from ladder.scheduler.tiling import Tiling
from ladder.ttype import GroupedType, element_type

#: arrangement -> decisions that fix it, and (m, n, k) that reach its edges
FAMILIES: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "skinny": ({"family": "skinny"}, (5, 48, 200)),
    "ring": ({"family": "ring", "compute": "mma"}, (19, 72, 328)),
    "warpgroup": ({"family": "ring", "compute": "wgmma"}, (21, 64, 512)),
    "specialised": ({"family": "specialised"}, (21, 72, 328)),
    "scaled": ({"family": "specialised", "scale": "register", "split": 2}, (21, 72, 456)),
}
#: columns of a group of types that have none, where scales are to be applied in registers
SCALED = {"scaled": 64}
#: (m, n, k) with several revolutions of each ring, for dropping instructions
DEEP = {
    "skinny": (3, 32, 6144),
    "ring": (40, 64, 4096),
    "warpgroup": (16, 64, 4096),
    "specialised": (16, 64, 1024),
    "scaled": (40, 72, 1536),
}
#: columns of a group there; with one scale a channel no block ends with a flush, and other waits are needed
GROUPS = {
    "skinny": (128,),
    "ring": (128,),
    "warpgroup": (128, 4096),
    "specialised": (1024,),
    "scaled": (128,),
}
#: further decisions there: short rings, several CTAs to a cluster, several K slices to a CTA
SHORT: dict[str, dict[str, Any]] = {
    "specialised": {"tiling": Tiling(2, 4, 1, 1, 2), "depth": 4, "split": 1},
    "scaled": {"tiling": Tiling(1, 4, 1, 1, 4), "depth": 2},
}
ACTIVATIONS = ("float16", "bfloat16")
#: outputs in a store of 16 bytes
STORED_PIECE = 8
#: a kernel equals its plan up to the order of float32 sums and the rounding of outputs
SAME = 1e-3


@dataclass
class Problem:
    """A kernel with its operands."""

    plan: Any
    lowered: Any
    values: dict[str, Any]
    reference: npt.NDArray[Any]
    exact: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, weight: Any, activation: str, decisions: dict[str, Any], shape: Sequence[int]
    ) -> Problem:
        """Schedule, lower, and draw operands."""
        from ladder.graph import matmul
        from ladder.scheduler import schedule

        m, n, k = shape
        op = matmul(m, n, k, activation=activation, weight=weight)
        return cls.planned(schedule(op, "h200", **decisions), m)

    @classmethod
    def planned(cls, plan: Any, m: int) -> Problem:
        """Lower a plan, and draw operands of m tokens."""
        from ladder.codegen.lower import lower
        from ladder.graph.draw import activations, residuals, row_scales
        from ladder.ttype import quantize

        op = plan.op
        rng = np.random.default_rng(0)
        weights = quantize(rng.standard_normal((op.n, op.k)), op.weight)
        x = activations(op, rng, m)
        bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
        x_scale, residual = row_scales(op, rng, m), residuals(op, rng, m)
        stored = op.activation.pack(x)
        values = {
            "x": stored,
            "y": np.zeros((m, op.out_n), op.stored.dtype),
            "m": m,
            "x_stride_m": op.activation.items(op.k),
            "x_stride_k": 1,
            **dict.fromkeys(("y_stride_m", "residual_stride_m"), op.out_n),
            **dict.fromkeys(("y_pieces", "residual_pieces"), int(op.out_n % STORED_PIECE == 0)),
            **({} if bias is None else {"bias": bias}),
            **({} if x_scale is None else {"x_scale": x_scale}),
            **({} if residual is None else {"residual": residual}),
            **plan.packing.pack(weights),
        }
        operands = (weights, bias, x_scale, residual)
        reference, exact = plan.run(stored, *operands), op.reference(x, *operands)
        return cls(plan, lower(plan), values, reference, exact)

    def arguments(self, y: npt.NDArray[Any]) -> dict[str, Any]:
        """Arguments of the kernel by name, flat; results go to ``y``."""
        given = {**self.values, "y": y}
        made: dict[str, Any] = {}
        for p in self.lowered.parameters:
            if p.kind == "tensor map":
                x, (rows, columns) = given["x"], p.box
                box = (columns, box_rows(rows, len(x)))
                made[p.name] = TensorMap(x, x.shape[::-1], x.strides[:1], box, "128B")
            elif p.kind == "buffer":
                made[p.name] = np.ascontiguousarray(given[p.role]).reshape(-1)
            else:
                made[p.name] = given[p.role]
        return made

    def run(self, listing: Any, schedule: str, seed: int) -> tuple[npt.NDArray[Any], int]:
        """Run a listing of this kernel; returns the output and how often a dropped instruction was reached."""
        y = np.full_like(self.values["y"], np.nan)
        arguments = self.arguments(y)
        launch = self.lowered.launch
        report = run(
            listing,
            arguments,
            launch.grid_for(len(y)),
            launch.block,
            cluster=launch.cluster or (1, 1, 1),
            schedule=schedule,
            seed=seed,
        )
        return y, report.dropped


def relative(y: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    """Norm of the difference over the norm of the reference; infinite where something is not written."""
    a, b = y.astype(np.float64), reference.astype(np.float64)
    if not np.isfinite(a).all():
        return float("inf")
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-300))


def schedules(seeds: int) -> list[tuple[str, int]]:
    """Eager, lazy and some random schedules."""
    return [("eager", 0), ("lazy", 0), *(("random", seed) for seed in range(seeds))]


def check(
    name: str, activation: str, family: str, seeds: int, problem: Problem | None = None
) -> Row:
    """Run one kernel on some random schedules, eager and lazy."""
    return Case(name, activation, family, problem).extend(schedules(seeds)).row


@dataclass
class Case:
    """One kernel of the matrix; schedules are added to its row."""

    name: str
    activation: str
    family: str
    problem: Problem | None = None
    row: Row = field(init=False)

    def __post_init__(self) -> None:
        """Name the row."""
        shape = "x".join(map(str, FAMILIES[self.family][1]))
        self.row = Row(f"{self.name} {self.activation} {self.family} {shape}")

    def extend(self, more: Sequence[tuple[str, int]]) -> Case:
        """Run further schedules, unless there is no such kernel or it is at fault already."""
        if self.row.refused or self.row.fault:
            return self
        started = time.perf_counter()
        try:
            problem = self._built()
        except LadderError as refusal:
            self.row = replace(self.row, refused=str(refusal).splitlines()[0])
            return self
        kernel = translate(problem.lowered.listing)
        for schedule, seed in more:
            try:
                y, _ = problem.run(kernel, schedule, seed)
            except Fault as fault:
                self.row = replace(self.row, fault=f"{schedule} {seed}: {fault}")
                break
            self.row = replace(
                self.row,
                schedules=self.row.schedules + 1,
                plan_error=max(self.row.plan_error, relative(y, problem.reference)),
                error=max(self.row.error, relative(y, problem.exact)),
            )
        seconds = self.row.seconds + time.perf_counter() - started
        self.row = replace(self.row, seconds=round(seconds, 3))
        return self

    def _built(self) -> Problem:
        from ladder.registry import types

        decisions, shape = FAMILIES[self.family]
        weight = types[self.name]
        if self.family in SCALED and not isinstance(weight, GroupedType):
            weight = element_type(weight).grouped(SCALED[self.family])
        return self.problem or Problem.of(weight, self.activation, decisions, shape)


def drop(family: str) -> Iterator[Dropped]:
    """Drop each synchronisation and copy from kernels of a family."""
    from ladder.registry import types

    for group in GROUPS[family]:
        weight = types["int4"].grouped(group)
        decisions = {**FAMILIES[family][0], **SHORT.get(family, {})}
        problem = Problem.of(weight, "float16", decisions, DEEP[family])
        whole = _whole(problem, family)
        name = family if group == GROUPS[family][0] else f"{family}, group {group}"
        for mutant in mutants(problem.lowered.listing):
            yield Dropped(name, mutant.dropped, tuple(_verdicts(problem, mutant.listing, whole)))


def _whole(problem: Problem, family: str) -> npt.NDArray[Any]:
    """Output of the kernel with all its instructions; one that is at fault says nothing about what is dropped from it."""
    y, _ = problem.run(problem.lowered.listing, "random", 0)
    if relative(y, problem.reference) > SAME:
        raise EmulationError(
            f"the {family} kernel differs from its plan by {relative(y, problem.reference):.2g}",
            at=problem.plan.title,
            hint="mend the kernel before instructions are dropped from it",
        )
    return y


def _verdicts(problem: Problem, faulty: Any, whole: npt.NDArray[Any]) -> Iterator[str]:
    for schedule in ("random", "eager", "lazy"):
        try:
            y, reached = problem.run(faulty, schedule, 0)
        except Fault as fault:
            yield fault.kind
            continue
        right = np.array_equal(y, whole, equal_nan=True)
        yield "unreached" if not reached else "unseen" if right else "wrong"


#: schedules that a kernel runs on before the next kernel's turn
TURN = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and write the report; returns how many kernels were at fault."""
    from ladder.registry import types

    chosen = _parser().parse_args(arguments)
    report = MatrixReport(chosen.report, " ".join(sys.argv[1:] if arguments is None else arguments))
    if chosen.resume:
        report.read()
    end = time.monotonic() + 60 * chosen.minutes if chosen.minutes else float("inf")
    known = {row.case: row for row in report.rows}
    names = chosen.types or list(types)
    cases = [Case(n, a, f) for n in names for a in ACTIVATIONS for f in chosen.families]
    for case in cases:
        case.row = known.get(case.row.case, case.row)
    for family in () if chosen.keep_all or report.dropped else chosen.families:
        for verdict in drop(family):
            report.dropped.append(verdict)
            _say(str(verdict))
    every = schedules(chosen.seeds)
    for last in range(TURN, len(every) + TURN, TURN):
        for case in cases:
            if time.monotonic() < end and case.row.schedules < last:
                _say(str(case.extend(every[case.row.schedules : last]).row))
        report.rows = [case.row for case in cases]
        report.write()
    _say(report.summary())
    return sum(bool(row.fault) for row in report.rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--types", nargs="*", default=None)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=18, help="random schedules of a kernel")
    parser.add_argument("--minutes", type=float, default=0, help="begin nothing after this time")
    parser.add_argument("--resume", action="store_true", help="go on from the report")
    parser.add_argument("--keep-all", action="store_true", help="drop no instruction")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
