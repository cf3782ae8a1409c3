"""Pictures of rows, as SVG; the same rows give the same file, whenever it is drawn.

matplotlib is asked for only here: ``pip install 'ladder[plot]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ladder.errors import ExperimentError
from ladder.experiments.row import Row
from ladder.experiments.table import totals

Axes = Any

#: colours that the colour-blind tell apart (Okabe and Ito), with a marker each
_LOOKS = (("#0072B2", "o"), ("#D55E00", "^"), ("#009E73", "s"), ("#CC79A7", "v"), ("#E69F00", "D"))

Points = list[tuple[float, float]]


@contextmanager
def drawing() -> Iterator[None]:
    """Settings under which a picture is the same each time.

    Raises:
        ExperimentError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ExperimentError(
            f"pictures need matplotlib: {error}",
            at="ladder.experiments",
            hint="pip install 'ladder[plot]'",
        ) from error
    with mpl.rc_context({"svg.hashsalt": "ladder", "svg.fonttype": "none", "font.size": 8}):
        yield


def grid(count: int, columns: int, width: float, height: float) -> tuple[Any, list[Axes]]:
    """A figure of ``count`` panels, ``width`` x ``height`` inches each, at most ``columns`` in a line."""
    from matplotlib.figure import Figure

    columns = min(columns, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flatten().tolist()
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def save(figure: Any, path: Path) -> Path:
    """Write a figure without the date of its drawing."""
    figure.savefig(path, metadata={"Date": None})
    return path


def draw(kind: str, rows: Sequence[Row], file: str | Path) -> Path:
    """Draw rows as one of :data:`KINDS` and write it.

    Raises:
        ExperimentError: there is nothing to draw, no such picture, matplotlib is missing, or the file cannot be written.
    """
    path = Path(file)
    if kind not in KINDS or not any(row.modelled_us is not None for row in rows):
        raise ExperimentError(
            f"no picture of {kind!r} from {len(rows)} rows",
            at=str(path),
            hint=f"one of {', '.join(KINDS)}, of rows that have a time",
        )
    with drawing():
        figure = KINDS[kind](rows)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return save(figure, path)
        except (OSError, ValueError) as error:
            raise ExperimentError(
                f"the picture cannot be written: {error}", at=str(path), hint="name an .svg file"
            ) from error


def over_m(rows: Sequence[Row]) -> Any:
    """Time over M: a panel for each weight, shape and device, a line for each placement; measured times are circles."""
    panels: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.modelled_us is not None:
            panels.setdefault((row.device, row.n, row.k, row.weight, row.activation), []).append(
                row
            )
    figure, axes = grid(len(panels), 2, 4.8, 3.4)
    for axis, ((device, n, k, weight, _), some) in zip(axes, panels.items(), strict=True):
        _lines(axis, _series(some, lambda row: row.placement, lambda row: row.m))
        axis.set_title(f"{weight}, N={n}, K={k}, {device}")
        axis.set_xlabel("M")
        axis.set_xscale("log", base=2)
        _finish(axis)
    figure.suptitle(_caption(rows))
    return figure


def over_bits(rows: Sequence[Row]) -> Any:
    """Time of all shapes together over the bits of a code: a panel for each M, a line for each device and placement."""
    found = totals(rows, ("m", "device", "placement", "bits"))
    panels: dict[int, dict[str, Points]] = {}
    for (m, device, placement, bits), us in found.items():
        if us is not None:
            points = panels.setdefault(m, {}).setdefault(f"{device}, {placement}", [])
            points.append((bits, us))
    figure, axes = grid(len(panels), 2, 4.8, 3.4)
    for axis, (m, series) in zip(axes, sorted(panels.items()), strict=True):
        _lines(axis, {name: (sorted(points), []) for name, points in series.items()})
        axis.set_title(f"M={m}, all layers")
        axis.set_xlabel("bits of a code")
        _finish(axis)
    figure.suptitle(_caption(rows))
    return figure


#: name of a picture -> what draws it
KINDS: Mapping[str, Callable[[Sequence[Row]], Any]] = MappingProxyType(
    {"m": over_m, "bits": over_bits}
)


def _series(
    rows: Sequence[Row], name: Callable[[Row], str], x: Callable[[Row], float]
) -> dict[str, tuple[Points, Points]]:
    """Name of a line -> its modelled and its measured points."""
    found: dict[str, tuple[Points, Points]] = {}
    for row in rows:
        modelled, measured = found.setdefault(name(row), ([], []))
        if row.modelled_us is not None:
            modelled.append((x(row), row.modelled_us))
        if row.measured_us is not None:
            measured.append((x(row), row.measured_us))
    return found


def _lines(axis: Axes, found: Mapping[str, tuple[Points, Points]]) -> None:
    for number, (name, (modelled, measured)) in enumerate(found.items()):
        colour, marker = _LOOKS[number % len(_LOOKS)]
        style = {"color": colour, "marker": marker, "markersize": 3.0, "linewidth": 1.0}
        axis.plot(*zip(*sorted(modelled), strict=True), label=f"{name}, modelled", **style)
        if measured:
            points = zip(*sorted(measured), strict=True)
            axis.plot(*points, "o", color=colour, fillstyle="none", label=f"{name}, measured")


def _finish(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.set_ylabel("us")
    axis.legend(fontsize=6)
    axis.grid(visible=True, which="both", alpha=0.2)


def _caption(rows: Sequence[Row]) -> str:
    commits = ", ".join(dict.fromkeys(row.commit for row in rows))
    measured = sum(row.measured_us is not None for row in rows)
    return f"{rows[0].experiment}: {len(rows)} points, {measured} measured, commit {commits}"
