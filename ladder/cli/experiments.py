"""``ladder experiment``: a sweep as tidy rows, tables and pictures; modelled everywhere, measured where a GPU is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.checks import shown
from ladder.cli.build import build as build_kernels
from ladder.cli.options import Activation, Json, Zero, parse_group, takes
from ladder.cli.show import Screen
from ladder.cli.tune import spelled_weight, tokens_of, words_of
from ladder.errors import ExperimentError

if TYPE_CHECKING:
    from ladder.experiments import Row, Study, Sweep

AXES = "Axes"
FILES = "Files"
MEASURE = "Measure"
OWN = "sweep"

COLUMNS = (
    *("device", "n", "k", "m", "weight", "placement", "modelled_us", "price", "limit"),
    *("measured_us", "status"),
)


def _option(*names: str, text: str, panel: str = AXES, least: int | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=least)


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The options that replace axes of a study, or make up a sweep of one's own."""

    shapes: Annotated[
        list[str] | None, _option("--shapes", "-s", text="NxK, a model, or a .json file")
    ] = None
    weights: Annotated[
        list[str] | None, _option("--weights", "-w", text="ELEMENT[:GROUP[:ZERO[:SCALE]]]")
    ] = None
    groups: Annotated[
        list[str] | None, _option("--groups", "-g", text="128, channel, ..., of bare elements")
    ] = None
    ms: Annotated[str | None, _option("--ms", "-m", text="tokens, 1,8,16")] = None
    placements: Annotated[
        list[str] | None,
        _option("--placements", "-p", text="offline, global, shared, register"),
    ] = None
    devices: Annotated[list[str] | None, _option("--devices", "-d", text="names")] = None
    activations: Annotated[
        list[str] | None, _option("--activations", "-a", text="types of x, also int8, fp8_e4m3fn")
    ] = None
    sources: Annotated[
        list[str] | None, _option("--sources", text="where x is quantised: global, source")
    ] = None
    compute: Annotated[
        Activation | None, _option("--compute", text="type of y where x is quantised")
    ] = None
    zero: Annotated[Zero | None, _option("--zero", text="of groups that --groups gives")] = None
    fix: Annotated[
        list[str] | None, _option("--fix", text="a decision of every plan, such as family=ring")
    ] = None

    def given(self) -> dict[str, Any]:
        """Axes that an option replaces.

        Raises:
            LadderError: an option is spelled wrongly, or names something unknown.
        """
        from ladder.runtime.tuning.shapes import shapes

        found: dict[str, Any] = {}
        if self.shapes:
            found["shapes"] = shapes(words_of(self.shapes))
        if self.weights:
            found["weights"] = tuple(map(spelled_weight, words_of(self.weights)))
        if self.groups:
            found["groups"] = tuple(map(parse_group, words_of(self.groups)))
        if self.ms:
            found["ms"] = tokens_of(self.ms)
        for name in ("placements", "devices", "activations", "sources"):
            if getattr(self, name):
                found[name] = tuple(words_of(getattr(self, name)))
        if self.compute is not None:
            found["compute"] = self.compute.value
        if self.zero is not None:
            found["zero"] = None if self.zero is Zero.none else self.zero.value
        if self.fix:
            found["fixed"] = (dict(map(_decision, self.fix)),)
        return found


@takes(Axes)
def experiment(  # noqa: PLR0913 - one argument to each option
    axes: Axes,
    *,
    study: Annotated[
        str, typer.Argument(help=f"placement, bits, or {OWN} for axes of your own")
    ] = OWN,
    rows: Annotated[
        Path | None,
        _option("--rows", text="read these rows instead of making them", panel=FILES),
    ] = None,
    out: Annotated[
        Path | None, _option("--out", "-o", text="write rows: .csv or .parquet", panel=FILES)
    ] = None,
    figure: Annotated[
        Path | None, _option("--figure", text="draw them: .svg; needs matplotlib", panel=FILES)
    ] = None,
    table: Annotated[
        bool, _option("--table", text="print the table of the study's page", panel=FILES)
    ] = False,
    measure: Annotated[
        bool, _option("--measure", text="time every point on this machine's GPU", panel=MEASURE)
    ] = False,
    gpu: Annotated[int, _option("--gpu", text="number of the GPU", panel=MEASURE, least=0)] = 0,
    build: Annotated[
        Path | None,
        _option("--build", text="compile into this folder, make no rows", panel=MEASURE),
    ] = None,
    kernels: Annotated[
        Path | None, _option("--kernels", text="measure what --build compiled", panel=MEASURE)
    ] = None,
    jobs: Annotated[
        int, _option("--jobs", text="processes that compile", panel=MEASURE, least=1)
    ] = os.cpu_count() or 1,
    json: Json = False,
) -> None:
    """Vary decisions that are usually the scheduler's, and say what each costs beside its choice."""
    from ladder.experiments import agreement, kernels_of, read, write

    screen = Screen(as_json=json)
    chosen = _study(study)
    if kernels is not None and not measure:
        raise ExperimentError(
            "kernels are brought along to be measured", at="--kernels", hint="add --measure"
        )
    if build is not None:
        _alone(measure=measure, rows=rows, out=out, figure=figure, table=table)
        build_kernels(screen, kernels_of(_sweep(chosen, axes.given())), build, jobs)
        return
    if rows is not None:
        found = _read(read(rows), axes, measure=measure)
    else:
        sweep = _sweep(chosen, axes.given())
        found = _measured(screen, sweep, gpu, kernels, jobs) if measure else _made(screen, sweep)
    if out is not None:
        write(found, out)
    if figure is not None:
        from ladder.experiments.figures import draw

        draw("m" if chosen is None else chosen.figure, found, figure)
    screen.data([row.as_dict() for row in found])
    if table and chosen is not None:
        screen.text(chosen.table(found))
    else:
        screen.table(COLUMNS, [[getattr(row, name) for name in COLUMNS] for row in found])
        _summary(screen, found, agreement(found))


def _alone(**others: Any) -> None:
    """Refuse options that ask for rows beside --build."""
    given = [f"--{name}" for name, value in others.items() if value]
    if given:
        raise ExperimentError(
            f"--build compiles kernels and makes no rows for {', '.join(given)}",
            at="--build",
            hint="build first; then leave out --build, and measure by --measure --kernels FOLDER",
        )


def _study(name: str) -> Study | None:
    """A study that is shipped, or None for axes of one's own."""
    from ladder.experiments import STUDIES

    if name == OWN:
        return None
    if name not in STUDIES:
        raise ExperimentError(
            f"no experiment is called {shown(name)}",
            at="ladder experiment",
            hint=f"{', '.join(STUDIES)}, or {OWN} with --shapes, --weights and --ms",
        )
    return STUDIES[name]


def _sweep(study: Study | None, given: dict[str, Any]) -> Sweep:
    from ladder.experiments import Sweep

    if study is not None:
        return replace(study.make(), **given)
    missing = [f"--{name}" for name in ("shapes", "weights", "ms") if name not in given]
    if missing:
        raise ExperimentError(
            f"axes are missing: {', '.join(missing)}",
            at="ladder experiment",
            hint="for example --shapes 8192x8192 --weights int4:128 --ms 1,64",
        )
    return Sweep(**given)


def _made(screen: Screen, sweep: Sweep) -> list[Row]:
    from ladder.experiments import rows

    with screen.working(f"modelling {sweep.name}"):
        return list(rows(sweep))


def _measured(
    screen: Screen, sweep: Sweep, ordinal: int, folder: Path | None, jobs: int
) -> list[Row]:
    from ladder.experiments import rows
    from ladder.experiments.gpu import gpu_measure

    total = sum(1 for _ in sweep.points())
    found: list[Row] = []
    with gpu_measure(sweep.devices[0], ordinal, folder, jobs) as measuring:
        made = rows(sweep, measuring)
        for number in range(1, total + 1):
            with screen.working(f"measuring point {number} of {total}"):
                found.append(next(made))
            screen.done(f"{number}/{total} {_line(found[-1])}")
    return found


def _line(row: Row) -> str:
    """A point and its time, or why it has none."""
    us = row.reason or row.note if row.measured_us is None else f"{row.measured_us} us"
    return f"{row.device} {row.n}x{row.k} m{row.m} {row.weight} {row.placement}: {us}"


def _read(found: list[Row], axes: Axes, *, measure: bool) -> list[Row]:
    if axes.given() or measure:
        raise ExperimentError(
            "rows that are read have their axes and measurements",
            at="--rows",
            hint="leave out --rows, or the other options",
        )
    return found


def _summary(screen: Screen, found: Sequence[Row], tau: float | None) -> None:
    refused = [row for row in found if row.status != "ok"]
    for reason in dict.fromkeys(row.reason for row in refused):
        screen.text(f"refused: {reason}")
    agreed = "" if tau is None else f"; Kendall tau of model and measurement {tau:.3f}"
    measured = sum(row.measured_us is not None for row in found)
    without = Counter(row.note for row in found if row.note and row.measured_us is None)
    for note, count in without.items():
        screen.text(f"{count} of {len(found)} points: {note}")
    screen.text(f"{len(found)} points, {len(refused)} refused, {measured} measured{agreed}")


def _decision(text: str) -> tuple[str, Any]:
    name, is_there, word = text.partition("=")
    if not (name and is_there and word):
        raise ExperimentError(
            f"a decision is spelled name=value, found {shown(text)}",
            at="--fix",
            hint="for example --fix family=ring --fix depth=3",
        )
    if word in ("true", "false"):
        return name, word == "true"
    return name, int(word) if word.isdecimal() else word
