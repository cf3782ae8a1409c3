"""``ladder tune``: measure the plans that the scheduler finds best, keep the fastest, and say how far the choice was off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.cli.build import build
from ladder.cli.options import Activation, Json, Launch, Zero, device_of, takes, weight_type
from ladder.cli.show import Screen
from ladder.cli.tune_watch import watching
from ladder.errors import TuningError

if TYPE_CHECKING:
    from ladder.runtime.tuning.database import Database
    from ladder.runtime.tuning.kernels import Kernels
    from ladder.runtime.tuning.problem import Problem
    from ladder.runtime.tuning.record import Machine
    from ladder.runtime.tuning.report import Result

WHAT = "What"
HOW = "How"
MAKE = "Kernels"

#: spellings of a zero point's convention, beside its own names
ZEROS = {"zeros": Zero.integer, "": Zero.none}

COLUMNS = ("n", "k", "m", "weight", "untuned_us", "best_us", "gap", "failed", "best")


def _option(*names: str, text: str, panel: str, least: float | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=least)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The options that say what is tuned, and how."""

    shapes: Annotated[
        list[str],
        _option("--shapes", "-s", text="NxK, a model, catalog, or a .json file", panel=WHAT),
    ]
    weights: Annotated[
        list[str], _option("--weights", "-w", text="ELEMENT[:GROUP[:ZERO[:SCALE]]]", panel=WHAT)
    ]
    ms: Annotated[str, _option("--ms", "-m", text="tokens, 1,8,16", panel=WHAT)] = "1,8,16,32,64"
    activation: Annotated[
        Activation,
        _option("--activation", "-a", text="type of x, and of y but for 8 bits", panel=WHAT),
    ] = Activation.float16
    bias: Annotated[bool, _option("--bias", text="add bias[n]", panel=WHAT)] = False
    launch: Annotated[Launch, _option("--launch", text="how kernels are launched", panel=WHAT)] = (
        Launch.plain
    )
    device: Annotated[str, _option("--device", "-d", text="name, or a device file", panel=WHAT)] = (
        "h200"
    )
    count: Annotated[int, _option("--count", text="plans of a problem", panel=HOW, least=1)] = 12
    limit: Annotated[
        float, _option("--limit", text="seconds that measuring a plan may take", panel=HOW, least=1)
    ] = 120.0
    gpu: Annotated[int, _option("--gpu", text="number of the GPU", panel=HOW, least=0)] = 0
    again: Annotated[bool, _option("--again", text="measure what is known, too", panel=HOW)] = False
    jobs: Annotated[int, _option("--jobs", text="processes that compile", panel=MAKE, least=1)] = (
        os.cpu_count() or 1
    )
    build: Annotated[
        Path | None,
        _option("--build", text="compile into this folder, measure nothing", panel=MAKE),
    ] = None
    kernels: Annotated[
        Path | None, _option("--kernels", text="measure what --build compiled", panel=MAKE)
    ] = None

    def problems(self) -> tuple[Problem, ...]:
        """All shapes with all weights and M; those that share a packed weight are neighbours.

        Raises:
            LadderError: an option names something unknown.
        """
        from ladder.graph import matmul
        from ladder.runtime.tuning.problem import Problem
        from ladder.runtime.tuning.shapes import shapes
        from ladder.ttype import compute_type, float16

        device = device_of(self.device)
        kind = compute_type(self.activation.value)
        # Quantised activations have a scale a row, and outputs are not quantised.
        quantised = kind.bits < float16.bits
        more: dict[str, Any] = {"bias": self.bias, "activation_scale": quantised}
        out = float16 if quantised else kind
        tokens = tokens_of(self.ms)
        return tuple(
            Problem(
                matmul(m, n, k, activation=kind, weight=wt, out=out, **more),
                device,
                self.launch.value,
            )
            for wt in map(spelled_weight, words_of(self.weights))
            for n, k in shapes(words_of(self.shapes))
            for m in tokens
        )


@takes(Tuning)
def tune(
    request: Tuning,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="add the choices to a table, to be shipped")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="write every time to a JSON file")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list what would be measured; needs no GPU")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the best plans of matmuls on this machine's GPU; what is measured is kept, and a run that ended goes on."""
    screen = Screen(as_json=json)
    problems = request.problems()
    if not problems:
        raise TuningError(
            "there is nothing to tune",
            at="--shapes, --weights",
            hint="for example --shapes 4096x4096 --weights int4:128",
        )
    if dry_run:
        _list(screen, problems, request.count)
    elif request.build is not None:
        wanted = (c for problem in problems for c in problem.candidates(request.count))
        build(screen, wanted, request.build, request.jobs)
    else:
        _measure(screen, problems, request, (out, report))


def _list(screen: Screen, problems: Sequence[Problem], count: int) -> None:
    rows: list[dict[str, str | int | float]] = []
    for problem in problems:
        for candidate in problem.candidates(count):
            row: dict[str, str | int | float] = {"operator": str(problem), "rank": candidate.rank}
            row["estimate_us"] = round(candidate.estimate_us, 3)
            row["plan"] = candidate.plan.brief
            rows.append(row)
    screen.data(rows)
    screen.table(("operator", "rank", "estimate_us", "plan"), [list(row.values()) for row in rows])


def _measure(
    screen: Screen,
    problems: Sequence[Problem],
    request: Tuning,
    files: tuple[Path | None, Path | None],
) -> None:
    from ladder.runtime.tuning.database import tuned
    from ladder.runtime.tuning.report import document

    database = tuned()
    with _ready(request, database) as (machine, kernels, measurer, locks):
        from ladder.runtime.tuning.tuner import Tuner

        journal = database.journal(problems[0].device.name)
        with watching(len(problems) * request.count, request.count) as watch:
            tuner = Tuner(
                journal=journal,
                machine=machine,
                kernels=kernels,
                measurer=measurer,
                locks=locks,
                count=request.count,
                watch=watch,
                again=request.again,
            )
            results = tuner.run(problems)
    command = " ".join(["ladder", *sys.argv[1:]])
    found = document(results, machine, command)
    out, report = files
    if report is not None:
        _write(report, found)
    if out is not None:
        _ship(out, database, results, machine, command)
    screen.data(found)
    _show(screen, results, found["summary"])
    if not all(result.complete and result.times for result in results):
        raise typer.Exit(1)


@contextmanager
def _ready(request: Tuning, database: Database) -> Iterator[tuple[Machine, Kernels, Any, Path]]:
    """The machine, its kernels, a measuring process and the folder of locks; given back when this ends."""
    from ladder.runtime.tuning.gpu import gpu_measurer, this_machine
    from ladder.runtime.tuning.journal import FORMAT
    from ladder.runtime.tuning.kernels import build_of, kernels_from, on_disk
    from ladder.runtime.tuning.worker import Worker
    from ladder.settings import Settings

    brought = request.kernels
    settings = Settings.read()
    machine = this_machine(device_of(request.device), request.gpu, *build_of(settings, brought))
    folder = database.journal(request.device).path.parent
    assert folder.name == FORMAT
    locks = folder / "locks"
    with (
        on_disk(settings) as stored,
        closing(kernels_from(brought, stored, request.jobs)) as kernels,
    ):
        make = gpu_measurer(stored, brought, request.gpu)
        gpu_lock = locks / f"gpu-{machine.place}.lock"
        with closing(Worker(make, request.limit, gpu_lock)) as worker:
            yield machine, kernels, worker, locks


def _ship(
    out: Path, database: Database, results: Sequence[Result], machine: Machine, command: str
) -> None:
    """Put the choices of a run into a table, over those that stand there."""
    from ladder.runtime.tuning.database import read_table, write_table

    entries = {entry.problem: entry for entry in read_table(out)} if out.exists() else {}
    for result in results:
        problem = result.problem
        choice = database.journal(problem.device.name).choice(problem.key)
        if result.complete and choice is not None:
            entries[problem.key] = choice
    note = f"Measured on {machine.gpu}, driver {machine.driver}, {machine.toolkit}: `{command}`"
    write_table(out, entries.values(), note)


def _write(path: Path, found: Any) -> None:
    import json

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise TuningError(f"the report cannot be written: {error}", at=str(path)) from error


def _show(screen: Screen, results: Sequence[Result], summary: Any) -> None:
    from ladder.runtime.tuning.report import slowdown

    rows = []
    for result in results:
        op = result.problem.op
        best = result.skipped or ("" if result.best is None else result.briefs[result.best])
        times = [result.untuned_us, result.best_us, slowdown(result.gap)]
        rows.append([op.n, op.k, op.m, str(op.weight), *times, len(result.failures), best])
    screen.table(COLUMNS, rows)
    if summary["compared"]:
        screen.text(
            f"untuned plans: median {slowdown(summary['median_gap'])}, worst"
            f" {slowdown(summary['worst_gap'])} ({summary['worst']}); {summary['within_promise']} of"
            f" {summary['compared']} within {slowdown(summary['promised_gap'])} of the best measured"
        )


def spelled_weight(text: str) -> Any:
    """``int4:128:integer`` -> the grouped type; ``mxfp4`` has its groups already, ``int8`` alone has no scale.

    Raises:
        TuningError: it is spelled in another way.
        TypeDeclarationError: a part of it is unknown.
    """
    name, *parts = text.split(":")
    group, zero, scale = (*parts, *("", "", "")[len(parts) :])[:3]
    known: dict[str, Zero] = {**{found.value: found for found in Zero}, **ZEROS}
    if len(parts) > 3 or zero not in known:
        raise TuningError(
            f"a weight is spelled ELEMENT[:GROUP[:ZERO[:SCALE]]], found {text!r}",
            at="--weights",
            hint=f"for example int4:128:integer; zeros: {', '.join(known)}",
        )
    return weight_type(name, group or None, scale or None, known[zero])


def words_of(given: Sequence[str]) -> list[str]:
    """Words that commas part, of options that may be repeated."""
    return [word for text in given for word in text.split(",") if word]


def tokens_of(text: str) -> tuple[int, ...]:
    """Numbers of tokens that commas part, each once.

    Raises:
        TuningError: a word is no integer from 1 on, or there is none.
    """
    try:
        tokens = tuple(dict.fromkeys(int(word) for word in text.split(",") if word))
    except ValueError:
        tokens = ()
    if not tokens or min(tokens) < 1:
        raise TuningError(
            f"tokens are integers from 1 on, found {text!r}", at="--ms", hint="for example 1,8,16"
        )
    return tokens
