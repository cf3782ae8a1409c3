"""``ladder bench``: how long a compiled kernel takes, beside what the cost model said."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ladder.cli.kernels import Folder, Problem, Seed
from ladder.cli.options import Json
from ladder.cli.show import Screen

TokenCounts = Annotated[
    list[int], typer.Option("-m", help="tokens; give it several times for several rows", min=1)
]
Repeats = Annotated[int, typer.Option("--repeats", help="replays of the graph", min=1)]
COLUMNS = ("m", "us", "least_us", "most_us", "predicted_us", "gb_per_s", "tera_ops", "error")


def bench(
    folder: Folder,
    m: TokenCounts = [1],  # noqa: B006 - typer reads the default, nothing writes to it
    repeats: Repeats = 20,
    seed: Seed = 0,
    *,
    json: Json = False,
) -> None:
    """Time a compiled kernel on this machine's GPU, with weights that do not fit its cache."""
    from ladder.runtime.load import load

    screen = Screen(as_json=json)
    kernel = load(folder)
    _ = kernel.launcher.driver  # without a GPU, say so before the work begins
    rows = []
    for count in m:
        with screen.working(f"timing m = {count}"):
            rows.append(_row(kernel, count, repeats, seed))
    record = {
        "operator": str(kernel.plan.op),
        "device": kernel.launcher.driver.device_name(0),
        "driver": kernel.launcher.driver.version(),
        "toolchain": kernel.toolchain,
        "rows": rows,
    }
    screen.data(record)
    screen.text(f"{record['operator']} on {record['device']}, driver {record['driver']}")
    screen.table(COLUMNS, [[row[column] for column in COLUMNS] for row in rows])


def _row(kernel: Any, m: int, repeats: int, seed: int) -> dict[str, Any]:
    from ladder.runtime.timing import time_kernel

    problem = Problem.random(kernel, m, seed)
    packed = kernel.pack(problem.weights)
    error = problem.error(kernel(problem.x, packed, bias=problem.bias))
    timing = time_kernel(kernel, problem.x, packed, repeats=repeats)
    return row(kernel.plan, m, timing, packed.nbytes, error)


def row(plan: Any, m: int, timing: Any, weight_bytes: int, error: float) -> dict[str, Any]:
    """One line of the table; rates count weights, activations and outputs once, and 2*m*n*k operations."""
    op = plan.op
    moved = weight_bytes + m * op.k * op.activation.bits // 8 + m * op.n * op.out.bits // 8
    return {
        "m": m,
        "us": timing.median_us,
        "least_us": timing.least_us,
        "most_us": timing.most_us,
        "predicted_us": predicted_us(plan, m),
        "gb_per_s": moved / timing.median_us / 1e3,
        "tera_ops": 2 * m * op.n * op.k / timing.median_us / 1e6,
        "error": error,
    }


def predicted_us(plan: Any, m: int) -> float:
    """What the cost model says, in microseconds."""
    from ladder.scheduler.cost import estimate
    from ladder.scheduler.planset import PlanSet

    chosen = plan.plan_for(m) if isinstance(plan, PlanSet) else plan
    return float(estimate(chosen, m).us)
