"""Time every case of some suites on this machine's GPU, beside cuBLAS and humming-kernels, and check every output.

    python -m benchmarks.bench --suite decode --artifacts build/bench   # writes benchmarks/results/h200-decode-DATE-COMMIT.json

Needs torch; TVM only without ``--artifacts``. How each number is made: docs/measuring.md. A row that fails is recorded
with its reason and the run goes on; the exit code is 1 if a row failed or its error is above the bar that
:mod:`benchmarks.bar` derives.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from benchmarks import report, rows, store
from benchmarks.build import build_all
from benchmarks.grid import (
    DEVICE,
    Case,
    Filter,
    Only,
    Quick,
    Suite,
    asked,
    parse_filter,
    select,
)
from ladder.errors import LaunchError

if TYPE_CHECKING:
    from benchmarks.measure import Bench

RESULTS = Path("benchmarks/results")
#: what a run can do without
PARTS = ("humming", "host")

#: one group: cases that share a packed weight
Group = list[Case]


@dataclass
class Run:
    """Rows in the order of the cases, written after every group, so that a run that is cut short leaves what it had."""

    machine: rows.Machine
    cases: Sequence[Case]
    out: Path
    console: Console
    _rows: dict[Case, rows.Row] = field(default_factory=dict)

    @property
    def found(self) -> list[rows.Row]:
        """The rows so far."""
        return [self._rows[case] for case in self.cases if case in self._rows]

    def add(self, case: Case, row: rows.Row) -> None:
        """Keep a row and print it in one line."""
        self._rows[case] = row
        name = (
            f"{row['weight']} {row['n']}x{row['k']} m{row['m']} {row['activation']} {row['launch']}"
        )
        if "failure" in row:
            self.console.print(f"{name}: {row['failure']}", markup=False, highlight=False)
            return
        peers = " ".join(f"{peer} {us}" for peer, us in row["peers"].items())
        mark = "" if rows.passes(row) else "  ABOVE THE BAR"
        line = f"{case}: {row['us']} us, error {row['error']:.2g}, {peers}{mark}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def fail(self, cases: Sequence[Case], reason: str) -> None:
        """Record cases that did not run."""
        for case in cases:
            self.add(case, rows.failed(self.machine, case, reason))

    def write(self) -> None:
        """Write what there is."""
        rows.write(self.out, self.found)


def groups(cases: Sequence[Case]) -> Iterator[Group]:
    """Neighbours that share a packed weight."""
    for _, group in itertools.groupby(cases, lambda case: case.packed):
        yield list(group)


def run_all(
    run: Run, bench: Bench, cases: Sequence[Case], index: store.Index, until: float
) -> None:
    """Measure all cases, group by group; those that the time does not suffice for are recorded as such."""
    for group in groups(cases):
        ready = [case for case in group if index.built(case.name)]
        for case in group:
            if not index.built(case.name):
                run.fail([case], index.failure(case.name))
        if time.monotonic() > until:
            run.fail(ready, "not run: the time given by --seconds was used up")
        elif bench.broken:
            run.fail(ready, f"not run: the device failed in {bench.broken}")
        elif ready:
            measure_group(run, bench, ready)
        run.write()


def measure_group(run: Run, bench: Bench, group: Group) -> None:
    """Measure the cases of one packed weight, those of one M together."""
    try:
        weights = bench.weights(group)
    except Exception as error:  # noqa: BLE001 - recorded; the run goes on with other weights
        run.fail(group, f"{type(error).__name__}: {error}")
        bench.note_failure(group[0])
        return
    for _, same in itertools.groupby(group, lambda case: case.m):
        together = list(same)
        try:
            for case, measured in bench.measure(weights, together).items():
                run.add(case, rows.row(run.machine, case, measured))
        except Exception as error:  # noqa: BLE001 - recorded; the run goes on with other rows
            run.fail(together, f"{type(error).__name__}: {error}")
            bench.note_failure(together[0])


def driver_version() -> str:
    """The driver's version, as nvidia-smi prints it; where it is missing, the CUDA version that the driver has."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        from ladder.runtime.driver import driver_version as cuda_version

        return f"CUDA {cuda_version()}"


def file_name(machine: rows.Machine, suites: Sequence[str]) -> str:
    """``h200-decode-prefill-2026-11-29-0c1793e83b21.json``."""
    device = machine.device.split()[-1].lower()
    names = "-".join(dict.fromkeys(suites))
    return f"{device}-{names}-{machine.date[:10]}-{machine.commit.rstrip('+')}.json"


def open_index(artifacts: Path | None, cases: Sequence[Case], console: Console) -> tuple[Path, Any]:
    """The folder of kernels and its index; without a folder the kernels are compiled here and now."""
    if artifacts is not None:
        return artifacts, store.Index.load(artifacts)
    from ladder.codegen.toolchain import toolchain_version

    folder = Path(tempfile.mkdtemp(prefix="ladder-bench-"))
    index = store.Index(store.commit(), toolchain_version(), store.command())
    index.kernels = build_all(cases, DEVICE, folder, os.cpu_count() or 1, console)
    index.save(folder)
    return folder, index


def refuse_without_gpu() -> None:
    """Say so before minutes of compiling.

    Raises:
        LaunchError: torch finds no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise LaunchError(
            "torch finds no GPU to time the suites on",
            at=f"torch {torch.__version__}",
            hint="run it where there is one, with torch for CUDA; compiling alone needs none: python -m benchmarks.build",
        )


def main(
    out: Annotated[
        Path | None, typer.Option("--out", help="results file; named after device, date and commit")
    ] = None,
    artifacts: Annotated[
        Path | None, typer.Option("--artifacts", help="what benchmarks.build wrote; else build now")
    ] = None,
    suites: Suite = ["base"],  # noqa: B006 - typer reads the default, nothing writes to it
    only: Only = [],  # noqa: B006
    humming: Annotated[
        list[str], typer.Option("--humming", help="time humming for these alone, like --only")
    ] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option("--seconds", help="start no weight after this")] = 540.0,
    without: Annotated[
        list[str], typer.Option("--without", help=f"leave out: {' or '.join(PARTS)}")
    ] = [],  # noqa: B006
    *,
    quick: Quick = False,
) -> None:
    """Time the suites, write the rows and a summary beside them."""
    until = time.monotonic() + seconds
    console = Console(stderr=True)
    for part in without:
        if part not in PARTS:
            raise typer.BadParameter(f"{part!r} is none of {', '.join(PARTS)}")
    cases = asked(only, quick=quick, suites=suites)
    wanted: Filter = parse_filter(humming)
    from benchmarks.measure import Bench  # needs torch and a GPU: fail before anything is compiled

    refuse_without_gpu()
    folder, index = open_index(artifacts, cases, console)
    bench = Bench(folder, index, console)
    machine = rows.Machine(
        bench.device_name,
        driver_version(),
        index.toolkit,
        index.commit,
        store.command(),
        rows.Machine.now(),
    )
    out = out or RESULTS / file_name(machine, suites)
    run = Run(machine, cases, out, console)
    built = [case for case in cases if index.built(case.name)]
    if "host" not in without and built:
        bench.host_times(built[0], machine, out.with_name("host.json"))
    if "humming" not in without:
        bench.add_humming(select(built, wanted))
    run_all(run, bench, cases, index, until)
    plots = importlib.util.find_spec("matplotlib") is not None
    if not plots:
        console.print(
            "matplotlib is not installed: python -m benchmarks.report draws the plots elsewhere"
        )
    for path in report.write(out, run.found, plots=plots):
        console.print(str(path), markup=False, highlight=False)
    print(report.bars(run.found))
    raise typer.Exit(0 if all(rows.passes(row) for row in run.found) else 1)


if __name__ == "__main__":
    typer.run(main)
