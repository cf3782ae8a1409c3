"""A results file for people (Markdown): bars met and not met, geometric means, and a table of all rows; and its plots.

python -m benchmarks.report benchmarks/results/h200-decode-2026-11-29-0c1793e83b21.json     # writes .md and plots anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import rows
from benchmarks.bars import BARS
from benchmarks.rows import Row, passes
from benchmarks.verdicts import (
    Table,
    Verdict,
    geometric_mean,
    judge,
    name_of,
    over_floor,
    ratio,
)

Cells = Sequence[object]

#: what means are made of: title, value of a row (None where it has none)
MEANS = (
    ("x cuBLAS", lambda row: ratio(row, "cublas_fp16")),
    ("x humming", lambda row: ratio(row, "humming")),
    ("% of bound", lambda row: None if row["share"] is None else 100 * row["share"]),
    ("x read floor", over_floor),
)


def summary(found: Sequence[Row]) -> str:
    """The whole report."""
    if not found:
        return "no rows\n"
    first = found[0]
    bad = [row for row in found if not passes(row)]
    lines = [
        f"# {first['device']}, {', '.join(suites_of(found))}, {first['date']}",
        "",
        f"Driver {first['driver']}, {first['toolkit']}, commit {first['commit']}, by `{first['command']}`.",
        "Microseconds of one launch; how they are made stands in docs/measuring.md.",
        "",
        f"* {len(found) - len(bad)} of {len(found)} rows measured, errors within their bars",
        *(f"* {name_of(row)}: {row.get('failure', 'error above the bar')}" for row in bad),
        "",
    ]
    for part in (_bars(found), _floors(found), _means(found), *_tables(found)):
        lines += [*part, ""]
    return "\n".join(lines)


def bars(found: Sequence[Row]) -> str:
    """The part that says which bars are met."""
    return "\n".join(_bars(found))


def suites_of(found: Iterable[Row]) -> list[str]:
    """Suites of some rows, in order."""
    return list(dict.fromkeys(row["suite"] for row in found))


def verdicts(found: Sequence[Row]) -> list[tuple[str, Verdict]]:
    """(suite, verdict) of every bar of the suites that the rows are of."""
    table = Table(found)
    return [(suite, judge(bar, table)) for suite in suites_of(found) for bar in BARS[suite]]


# -- parts --------------------------------------------------------------------------------------------------------


def _bars(found: Sequence[Row]) -> Iterator[str]:
    answers = verdicts(found)
    met = sum(verdict.met is True for _, verdict in answers)
    missed = sum(verdict.met is False for _, verdict in answers)
    yield f"## Bars: {met} met, {missed} not met, {len(answers) - met - missed} open"
    yield ""
    head = ("bar", "asks for", "limit", "found", "worst at", "values", "")
    yield from _markdown(head, (_bar(suite, verdict) for suite, verdict in answers))


def _bar(suite: str, verdict: Verdict) -> Cells:
    bar = verdict.bar
    sign = "<=" if bar.at_most else ">="
    name = bar.name if suite in bar.name else f"{suite} {bar.name}"
    limit = f"{sign} {bar.limit:g}"
    found = "" if verdict.found is None else f"{verdict.found:.4g}"
    words = {True: "met", False: "NOT MET", None: "open"}[verdict.met]
    if verdict.scaled is not None:
        limit += f" (here {verdict.scaled:.4g})"
        reached = verdict.found is not None and verdict.found <= verdict.scaled
        words += " (met here)" if reached and verdict.met is False else ""
    values = f"{verdict.measured}/{verdict.wanted}"
    return name, bar.what, limit, found, verdict.at, values, words


def _floors(found: Sequence[Row]) -> Iterator[str]:
    yield "## Reading alone"
    yield ""
    read = {row["bound_us"]: row["read_us"] for row in found if row["read_us"] is not None}
    lines = (
        (f"{bound * 4.65:.2f}", f"{bound:.2f}", f"{us:.2f}", f"{100 * bound / us:.0f}")
        for bound, us in sorted(read.items())
    )
    yield from _markdown(("MB", "bound us", "read us", "% of bound"), lines)


def _means(found: Sequence[Row]) -> Iterator[str]:
    yield "## Geometric means over shapes"
    yield ""
    groups: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in found:
        if "failure" not in row and not row["any_m"]:
            kind = row["weight"], row["activation"], row["launch"], row["m"]
            groups.setdefault(kind, []).append(row)
    head = ("weight", "activation", "launch", "M", "shapes", *(title for title, _ in MEANS))
    lines = (
        (*kind, len(same), *_mean_cells(same))
        for kind, same in sorted(groups.items(), key=_by_kind)
    )
    yield from _markdown(head, lines)


def _by_kind(item: tuple[tuple[str, str, str, int], list[Row]]) -> tuple[object, ...]:
    (weight, activation, launch, m), _ = item
    return weight != "int4", weight, activation != "float16", launch, m


def _mean_cells(same: Sequence[Row]) -> Iterator[str]:
    for _, value_of in MEANS:
        values = [value for value in map(value_of, same) if value]
        few = f" ({len(values)})" if len(values) < len(same) else ""
        yield f"{geometric_mean(values):.3g}{few}" if values else ""


def _tables(found: Sequence[Row]) -> Iterator[list[str]]:
    """A table for each suite and launch: plain and programmatic launches stand apart."""
    for suite in suites_of(found):
        for launch in ("plain", "pdl"):
            some = [row for row in found if (row["suite"], row["launch"]) == (suite, launch)]
            if some:
                yield [f"## {suite}, {launch} launches", "", *_markdown(HEAD, map(_row, some))]


HEAD = (
    *("weight", "N", "K", "M", "activation", "us", "error", "error bar"),
    *("cuBLAS fp16", "x", "humming", "x", "read", "x read", "bound", "%", "model", "plan"),
)


def _row(row: Row) -> Cells:
    peers = row["peers"]
    cells: list[object] = [row["weight"], row["n"], row["k"], row["m"], row["activation"]]
    cells += [_us(row["us"]), "" if row["error"] is None else f"{row['error']:.1e}"]
    cells.append(f"{row['bar']:.1e}")
    for peer in ("cublas_fp16", "humming"):
        cells += [_us(peers.get(peer)), _times(ratio(row, peer))]
    cells += [_us(row["read_us"]), _times(over_floor(row)), _us(row["bound_us"])]
    cells += ["" if row["share"] is None else f"{100 * row['share']:.0f}"]
    return [*cells, _us(row["predicted_us"]), row["plan"] or row.get("failure", "")]


def _markdown(head: Sequence[str], lines: Iterable[Cells]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for cells in lines:
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _us(us: float | None) -> str:
    return "" if us is None else f"{us:.2f}" if us < 100 else f"{us:.1f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


# -- files --------------------------------------------------------------------------------------------------------


def write(results: Path, found: Sequence[Row], *, plots: bool = True) -> list[Path]:
    """Write the report beside a results file, and plots where matplotlib is installed; returns what was written.

    Raises:
        ExperimentError: ``plots`` and there is no matplotlib.
    """
    from benchmarks.plots import draw

    drawn = draw(found, results) if plots and found else []
    text = summary(found)
    if drawn:
        pictures = "".join(f"![{path.stem}]({path.name})\n" for path in drawn)
        text += f"\n## Plots\n\n{pictures}"
    target = results.with_suffix(".md")
    target.write_text(text, encoding="utf-8")
    return [target, *drawn]


def main(
    results: Annotated[Path, typer.Argument(help="what benchmarks.bench wrote (JSON)")],
    *,
    plots: Annotated[bool, typer.Option(help="draw them; needs matplotlib")] = True,
) -> None:
    """Write the report and the plots of a results file anew; needs no GPU."""
    found = rows.read(results)
    for path in write(results, found, plots=plots):
        print(path)


if __name__ == "__main__":
    typer.run(main)
