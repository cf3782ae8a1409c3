"""Plots of a results file, as SVG: roofline with the decode ceiling, sweep over M, part of the bound per format.

matplotlib is asked for only here: ``pip install 'ladder[plot]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.grid import Shape
from benchmarks.rows import Row
from ladder.experiments.figures import drawing, grid, save

Axes = Any

#: the ceilings that are drawn: title -> the cost model's bounds, of which the largest counts
CEILINGS = {
    "memory": ("BW dram",),
    "decode": ("P_D alu", "P_D fma", "P_D lsu", "P_D issue"),
    "tensor cores": ("P tensor",),
}
#: series -> how it is drawn; colours that the colour-blind tell apart (Okabe and Ito)
STYLES = {
    "plain": {"color": "#0072B2", "marker": "o"},
    "pdl": {"color": "#009E73", "marker": "s"},
    "cublas_fp16": {"color": "#D55E00", "marker": "^"},
    "humming": {"color": "#CC79A7", "marker": "v"},
    "memory": {"color": "#000000", "linestyle": "--"},
    "decode": {"color": "#E69F00", "linestyle": "--"},
    "tensor cores": {"color": "#56B4E9", "linestyle": "--"},
    "read": {"color": "#000000", "linestyle": ":"},
}
TITLES = {"cublas_fp16": "cuBLAS float16", "pdl": "programmatic launch", "plain": "plain launch"}
#: plots of one file that show a shape each, at most
MOST_SHAPES = 8
WEIGHT = "int4"

Points = list[tuple[float, float]]


def tera_ops(row: Row, us: float) -> float:
    """Rate of a matmul that takes so many microseconds, in 10**12 operations a second."""
    return 2 * float(row["m"]) * float(row["n"]) * float(row["k"]) / us / 1e6


def ceiling_us(row: Row, names: Iterable[str]) -> float:
    """The largest of some of the cost model's bounds, in microseconds."""
    return max(float(row["ceilings"].get(name, 0.0)) for name in names)


def series(rows: Sequence[Row], y: Callable[[Row, float], float]) -> dict[str, Points]:
    """Name -> points (M, y of a time) of the product by launch, and of the peers."""
    found: dict[str, Points] = {}
    for row in sorted(rows, key=lambda row: int(row["m"])):
        found.setdefault(row["launch"], []).append((row["m"], y(row, row["us"])))
        if row["launch"] == "plain":  # peers are launched plainly, and stand in both rows
            for peer in ("cublas_fp16", "humming"):
                if row["peers"].get(peer):
                    found.setdefault(peer, []).append((row["m"], y(row, row["peers"][peer])))
    return found


def ceilings(rows: Sequence[Row], y: Callable[[Row, float], float]) -> dict[str, Points]:
    """Name -> points (M, y of the time that a ceiling alone asks for), of the plans of plain launches."""
    some = sorted((row for row in rows if row["launch"] == "plain"), key=lambda row: int(row["m"]))
    found: dict[str, Points] = {}
    for title, names in CEILINGS.items():
        points = [(row["m"], ceiling_us(row, names), row) for row in some]
        found[title] = [(m, y(row, us)) for m, us, row in points if us > 0]
    return {title: points for title, points in found.items() if points}


def by_shape(found: Sequence[Row], *, any_m: bool) -> dict[Shape, list[Row]]:
    """Shape -> measured rows of the weight that is shown, where there are some for more than one M."""
    shapes: dict[Shape, list[Row]] = {}
    for row in found:
        kind = row["weight"], row["activation"], row["any_m"]
        if "failure" not in row and kind == (WEIGHT, "float16", any_m):
            shapes.setdefault((row["n"], row["k"]), []).append(row)
    many = {shape: rows for shape, rows in shapes.items() if len({row["m"] for row in rows}) > 1}
    return dict(list(many.items())[:MOST_SHAPES])


def shares(found: Sequence[Row], m: int) -> dict[Shape, dict[str, dict[str, float]]]:
    """Shape -> format -> launch -> percent of the bound, of float16 rows with ``m`` tokens."""
    shapes: dict[Shape, dict[str, dict[str, float]]] = {}
    for row in found:
        if "failure" not in row and (row["m"], row["activation"], row["any_m"]) == (
            m,
            "float16",
            False,
        ):
            formats = shapes.setdefault((row["n"], row["k"]), {})
            formats.setdefault(row["weight"], {})[row["launch"]] = 100 * row["share"]
    return {shape: formats for shape, formats in shapes.items() if len(formats) > 1}


# -- pictures -----------------------------------------------------------------------------------------------------


def draw(found: Sequence[Row], results: Path) -> list[Path]:
    """Draw what the rows allow, beside their file.

    Raises:
        ExperimentError: there is no matplotlib.
    """
    pictures: dict[str, Callable[[], Any]] = {}
    fixed, ranged = by_shape(found, any_m=False), by_shape(found, any_m=True)
    if fixed:
        pictures["roofline"] = lambda: _per_shape(fixed, _roofline)
    if ranged or fixed:
        pictures["sweep"] = lambda: _per_shape(ranged or fixed, _sweep)
    if any(shares(found, m) for m in _tokens(found)):
        pictures["formats"] = lambda: _formats(found)
    with drawing():
        return [
            save(make(), results.with_name(f"{results.stem}-{name}.svg"))
            for name, make in pictures.items()
        ]


def _per_shape(shapes: dict[Shape, list[Row]], one: Callable[[Axes, list[Row]], None]) -> Any:
    figure, axes = grid(len(shapes), 2, 4.8, 3.4)
    for axis, ((n, k), rows) in zip(axes, shapes.items(), strict=True):
        one(axis, rows)
        axis.set_title(f"{WEIGHT}, N={n}, K={k}")
        axis.set_xlabel("M")
        axis.legend(fontsize=6)
        axis.grid(visible=True, which="both", alpha=0.2)
    first = next(iter(shapes.values()))[0]
    figure.suptitle(f"{first['device']}, {first['date'][:10]}, commit {first['commit']}")
    return figure


def _lines(axis: Axes, found: dict[str, Points]) -> None:
    for name, points in found.items():
        style = {"markersize": 3.0, "linewidth": 1.0, **STYLES[name]}
        axis.plot(*zip(*points, strict=True), label=TITLES.get(name, name), **style)


def _roofline(axis: Axes, rows: list[Row]) -> None:
    _lines(axis, {**ceilings(rows, tera_ops), **series(rows, tera_ops)})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylabel("10^12 operations / s")


def _sweep(axis: Axes, rows: list[Row]) -> None:
    _lines(axis, series(rows, lambda _, us: us))
    read = [(row["m"], row["read_us"]) for row in rows if row["read_us"] is not None]
    if read:
        _lines(axis, {"read": sorted(read)})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylabel("us")


def _tokens(found: Sequence[Row]) -> list[int]:
    return sorted({row["m"] for row in found})


def _formats(found: Sequence[Row]) -> Any:
    panels = [
        (m, shape, formats) for m in _tokens(found) for shape, formats in shares(found, m).items()
    ]
    figure, axes = grid(len(panels), 2, 4.8, 2.8)
    for axis, (m, (n, k), formats) in zip(axes, panels, strict=True):
        for number, launch in enumerate(("plain", "pdl")):
            bars = [
                (place, some[launch])
                for place, some in enumerate(formats.values())
                if launch in some
            ]
            if bars:
                places, heights = zip(*bars, strict=True)
                shifted = [place + 0.4 * number - 0.2 for place in places]
                colour = STYLES[launch]["color"]
                axis.bar(shifted, heights, 0.4, label=TITLES[launch], color=colour)
        axis.set_xticks(range(len(formats)), list(formats), rotation=90)
        axis.set_ylabel("% of bound")
        axis.set_ylim(0, 100)
        axis.set_title(f"M={m}, N={n}, K={k}")
        axis.legend(fontsize=6)
    figure.suptitle(f"{found[0]['device']}, {found[0]['date'][:10]}, commit {found[0]['commit']}")
    return figure
