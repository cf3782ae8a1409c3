"""``ladder bench``: how long a compiled kernel takes, beside what the cost model said; or whole suites beside their peers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder.cli.kernels import Problem, Seed, call
from ladder.cli.options import Json
from ladder.cli.show import Screen
from ladder.errors import LaunchError

Folder = Annotated[
    Path | None, typer.Argument(help="an artifact that `ladder compile` wrote", show_default=False)
]
TokenCounts = Annotated[
    list[int], typer.Option("-m", help="tokens; give it several times for several rows", min=1)
]
Repeats = Annotated[int, typer.Option("--repeats", help="replays of the graph", min=1)]
Suites = Annotated[
    list[str],
    typer.Option(
        "--suite",
        help="instead of a folder: base, decode, prefill, dense or sweep of this checkout",
    ),
]
Artifacts = Annotated[
    Path | None,
    typer.Option("--artifacts", help="of a suite: what `python -m benchmarks.build` wrote"),
]
COLUMNS = ("m", "us", "least_us", "most_us", "predicted_us", "gb_per_s", "tera_ops", "error")

#: options that only a folder takes, and that only suites take
OF_FOLDER = ("m", "repeats", "seed", "json")
OF_SUITES = ("artifacts",)


def bench(
    context: typer.Context,
    folder: Folder = None,
    m: TokenCounts = [1],  # noqa: B006 - typer reads the default, nothing writes to it
    repeats: Repeats = 20,
    seed: Seed = 0,
    suite: Suites = [],  # noqa: B006
    artifacts: Artifacts = None,
    *,
    json: Json = False,
) -> None:
    """Time a compiled kernel on this machine's GPU, with weights that do not fit its cache; or the suites of the project."""
    if (folder is None) == (not suite):
        raise typer.BadParameter("give the folder of a kernel, or --suite NAME")
    _refuse_ignored(context, OF_FOLDER if suite else OF_SUITES)
    if folder is None:
        run_suites(suite, artifacts)
    else:
        _bench_folder(folder, m, repeats, seed, as_json=json)


def _refuse_ignored(context: typer.Context, names: tuple[str, ...]) -> None:
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"-{name}" if len(name) == 1 else f"--{name}"
            takes = "a suite" if names is OF_FOLDER else "a folder"
            raise typer.BadParameter(f"{takes} takes no {option}")


def run_suites(suites: list[str], artifacts: Path | None) -> None:
    """Run ``python -m benchmarks.bench`` (which has more options) of the checkout that is the current folder.

    Raises:
        LaunchError: the current folder is no checkout, or torch is missing.
        typer.Exit: always: 0, or 1 where a row failed.
    """
    root = Path.cwd()
    if not (root / "benchmarks" / "bench.py").is_file():
        raise LaunchError(
            "there are no benchmarks here: they are no part of the installed package",
            at=root,
            hint="run it in the root of a checkout",
        )
    if importlib.util.find_spec("torch") is None:
        raise LaunchError(
            "the suites are timed with torch, which is missing",
            at="ladder bench --suite",
            hint="install torch; compiling alone needs none: python -m benchmarks.build",
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.import_module("benchmarks.bench").main(suites=suites, artifacts=artifacts)


def _bench_folder(folder: Path, m: list[int], repeats: int, seed: int, *, as_json: bool) -> None:
    from ladder.runtime.load import load

    screen = Screen(as_json=as_json)
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
    error = problem.error(call(kernel, problem, packed))
    timing = time_kernel(kernel, problem.x, packed, repeats=repeats)
    return row(kernel.plan, m, timing, packed.nbytes, error)


def row(plan: Any, m: int, timing: Any, weight_bytes: int, error: float) -> dict[str, Any]:
    """One line of the table; rates count weights, activations, residual and outputs once, and 2*m*n*k operations."""
    op = plan.op
    outputs = m * op.out_n * op.stored.bits // 8
    moved = weight_bytes + m * op.k * op.activation.bits // 8 + outputs * (1 + op.residual)
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
