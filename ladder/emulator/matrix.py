"""Every type through every family on the emulator, and every synchronisation dropped in turn.

    python -m ladder.emulator.matrix emulator.json               # all types, 20 random schedules each: about half an hour
    python -m ladder.emulator.matrix emulator.json --types int4 nf4 --seeds 2

Each kernel is compared with its plan in NumPy and with the operator in float64; a fault on any schedule is a false alarm or a bug of the
kernel. Then each instruction that synchronises or copies is dropped from one kernel of each family.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.mutate import mutants
from ladder.emulator.report import Fault
from ladder.emulator.run import run
from ladder.emulator.translate import translate
from ladder.errors import LadderError

#: arrangement -> decisions that fix it, and (m, n, k) that reach its edges
FAMILIES: dict[str, tuple[dict[str, str], tuple[int, int, int]]] = {
    "skinny": ({"family": "skinny"}, (5, 48, 200)),
    "ring": ({"family": "ring", "compute": "mma"}, (19, 72, 328)),
    "warpgroup": ({"compute": "wgmma"}, (21, 64, 512)),
}
#: (m, n, k) with several revolutions of each ring, for dropping instructions
DEEP = {"skinny": (3, 32, 6144), "ring": (40, 64, 4096), "warpgroup": (16, 64, 4096)}
ACTIVATIONS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Row:
    """One kernel over its schedules.

    Attributes:
        case: type, activation, family and shape in words.
        schedules: how many ran.
        fault: the first fault, or "".
        plan_error: largest relative error against the plan in NumPy.
        error: largest relative error against the operator in float64.
        refused: why there is no such kernel, or "".
        seconds: that all schedules took.
    """

    case: str
    schedules: int = 0
    fault: str = ""
    plan_error: float = 0.0
    error: float = 0.0
    refused: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Dropped:
    """What one dropped instruction led to on the random, eager and lazy schedule.

    Verdicts are kinds of fault, ``wrong`` numbers, ``unseen``, or ``unreached`` when no warp came to it.
    """

    family: str
    instruction: str
    verdicts: tuple[str, ...]


@dataclass
class Problem:
    """A kernel with its operands."""

    plan: Any
    lowered: Any
    values: dict[str, Any]
    reference: npt.NDArray[Any]
    exact: npt.NDArray[np.float64]
    kernel: Any = field(default=None)

    @classmethod
    def of(
        cls, weight: Any, activation: str, decisions: dict[str, str], shape: Sequence[int]
    ) -> Problem:
        """Schedule, lower, and draw operands."""
        from ladder.codegen.lower import lower
        from ladder.graph import matmul
        from ladder.scheduler import schedule
        from ladder.ttype import quantize

        m, n, k = shape
        op = matmul(m, n, k, activation=activation, weight=weight)
        plan = schedule(op, "h200", **decisions)
        rng = np.random.default_rng(0)
        weights = quantize(rng.standard_normal((n, k)), op.weight)
        x = rng.standard_normal((m, k)).astype(op.activation.dtype)
        strides = {"m": m, "x_stride_m": k, "x_stride_k": 1, "y_stride_m": n}
        values = {
            "x": x,
            "y": np.zeros((m, n), op.out.dtype),
            **strides,
            **plan.packing.pack(weights),
        }
        reference = plan.run(x, weights)
        return cls(plan, lower(plan), values, reference, op.reference(x, weights))  # type: ignore[arg-type]

    def run(self, listing: Any, schedule: str, seed: int) -> tuple[npt.NDArray[Any], int]:
        """Run a listing of this kernel; returns the output and how often a dropped instruction was reached."""
        y = np.full_like(self.values["y"], np.nan)
        given = {**self.values, "y": y}
        arguments = {
            p.name: np.ascontiguousarray(given[p.role]).reshape(-1)
            if p.kind == "buffer"
            else given[p.role]
            for p in self.lowered.parameters
        }
        launch = self.lowered.launch
        report = run(
            listing, arguments, launch.grid_for(len(y)), launch.block, schedule=schedule, seed=seed
        )
        return y, report.dropped


def relative(y: npt.NDArray[Any], reference: npt.NDArray[Any]) -> float:
    """Norm of the difference over the norm of the reference; infinite where something is not written."""
    a, b = y.astype(np.float64), reference.astype(np.float64)
    if not np.isfinite(a).all():
        return float("inf")
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-300))


def schedules(seeds: int) -> list[tuple[str, int]]:
    """Some random schedules, eager and lazy."""
    return [*(("random", seed) for seed in range(seeds)), ("eager", 0), ("lazy", 0)]


def check(name: str, activation: str, family: str, seeds: int) -> Row:
    """Run one kernel on all schedules."""
    from ladder.registry import types

    decisions, shape = FAMILIES[family]
    case = f"{name} {activation} {family} {'x'.join(map(str, shape))}"
    try:
        problem = Problem.of(types[name], activation, decisions, shape)
    except LadderError as refusal:
        return Row(case, refused=str(refusal).splitlines()[0])
    kernel, started = translate(problem.lowered.listing), time.perf_counter()
    plan_error = error = 0.0
    done = 0
    for schedule, seed in schedules(seeds):
        try:
            y, _ = problem.run(kernel, schedule, seed)
        except Fault as fault:
            return Row(case, done, f"{schedule} {seed}: {fault}", plan_error, error)
        done += 1
        plan_error = max(plan_error, relative(y, problem.reference))
        error = max(error, relative(y, problem.exact))
    return Row(case, done, "", plan_error, error, "", round(time.perf_counter() - started, 3))


def drop(family: str) -> Iterator[Dropped]:
    """Drop each synchronisation and copy from a kernel of a family."""
    from ladder.registry import types

    decisions = FAMILIES[family][0]
    problem = Problem.of(types["int4"].grouped(128), "float16", decisions, DEEP[family])
    for mutant in mutants(problem.lowered.listing):
        verdicts = []
        for schedule in ("random", "eager", "lazy"):
            try:
                y, reached = problem.run(mutant.listing, schedule, 0)
            except Fault as fault:
                verdicts.append(fault.kind)
                continue
            right = relative(y, problem.reference) == 0
            verdicts.append("unreached" if not reached else "unseen" if right else "wrong")
        yield Dropped(family, mutant.dropped, tuple(verdicts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and write the report; returns how many rows are bad."""
    from ladder.registry import types

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--types", nargs="*", default=None)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--keep-all", action="store_true", help="drop no instruction")
    chosen = parser.parse_args(arguments)
    rows, dropped = [], []
    for name in chosen.types or list(types):
        for activation in ACTIVATIONS:
            for family in chosen.families:
                rows.append(check(name, activation, family, chosen.seeds))
                _say(str(rows[-1]))
    for family in () if chosen.keep_all else chosen.families:
        for verdict in drop(family):
            dropped.append(verdict)
            _say(str(verdict))
    chosen.report.write_text(
        json.dumps(
            {"rows": [asdict(r) for r in rows], "dropped": [asdict(d) for d in dropped]}, indent=1
        )
    )
    bad = sum(bool(row.fault) for row in rows)
    unseen = sum("unseen" in d.verdicts for d in dropped)
    ran = sum(not row.refused for row in rows)
    _say(f"{ran} kernels, {bad} with a fault; {len(dropped)} dropped, {unseen} unseen")
    return bad


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
