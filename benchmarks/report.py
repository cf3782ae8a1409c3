"""A results file for people: the promised ratios, and a table of all rows (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rows import Row, passes

LARGE = ((8192, 8192), (8192, 28672))


@dataclass(frozen=True, slots=True)
class Promise:
    """Least speed of W4A16 (int4, groups of 128 with zeros, float16) against cuBLAS float16, on some shapes."""

    m: int
    shapes: tuple[tuple[int, int], ...]
    least: float


PROMISES = (
    Promise(1, LARGE, 2.5),
    Promise(16, LARGE, 2.0),
    Promise(256, ((4096, 4096), *LARGE), 0.6),
)


def ratio(row: Row, peer: str) -> float | None:
    """How many times faster than a peer a row is; None where either time is missing."""
    us, other = row["us"], row["peers"].get(peer)
    return other / us if us and other else None


def promises(found: Sequence[Row]) -> list[tuple[str, str, bool | None]]:
    """(promise, what was found, kept) for each; kept is None where rows are missing."""
    answers: list[tuple[str, str, bool | None]] = []
    for promise in PROMISES:
        ratios = [
            ratio(row, "cublas_fp16")
            for row in found
            if (row["weight"], row["activation"], row["m"]) == ("int4", "float16", promise.m)
            and (row["n"], row["k"]) in promise.shapes
            and row["launch"] == "plain"
        ]
        what = f"int4 float16 M={promise.m}: >= {promise.least} x cuBLAS"
        known = [each for each in ratios if each is not None]
        if len(known) < len(promise.shapes):
            answers.append((what, "not all measured", None))
        else:
            shown = ", ".join(f"{each:.2f}" for each in known)
            answers.append((what, shown, min(known) >= promise.least))
    return answers


def summary(found: Sequence[Row]) -> str:
    """The whole report."""
    if not found:
        return "no rows\n"
    first = found[0]
    lines = [
        f"# {first['device']}, {first['date']}",
        "",
        f"Driver {first['driver']}, {first['toolkit']}, commit {first['commit']}, by `{first['command']}`.",
        "Microseconds of one launch; how they are made stands in docs/measuring.md.",
        "",
    ]
    words = {True: "kept", False: "MISSED", None: "open"}
    lines += [f"* {what}: {shown}: {words[kept]}" for what, shown, kept in promises(found)]
    bad = [row for row in found if not passes(row)]
    lines += [f"* {len(found) - len(bad)} of {len(found)} rows measured, errors within their bars"]
    lines += [f"* {_name(row)}: {row.get('failure', 'error above the bar')}" for row in bad]
    return "\n".join([*lines, "", *_table(found)]) + "\n"


def _name(row: Row) -> str:
    return f"{row['weight']} {row['n']}x{row['k']} M={row['m']} {row['activation']} {row['launch']}"


def _table(found: Sequence[Row]) -> list[str]:
    head = (
        *("weight", "N", "K", "M", "activation", "launch", "us", "error"),
        *("cuBLAS fp16", "x", "humming", "x", "plan"),
    )
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in found:
        peers = row["peers"]
        cells = [row["weight"], row["n"], row["k"], row["m"], row["activation"], row["launch"]]
        cells += [_us(row["us"]), "" if row["error"] is None else f"{row['error']:.1e}"]
        for peer in ("cublas_fp16", "humming"):
            times = ratio(row, peer)
            cells += [_us(peers.get(peer)), "" if times is None else f"{times:.2f}"]
        cells.append(row["plan"] or row.get("failure", ""))
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return lines


def _us(us: float | None) -> str:
    return "" if us is None else f"{us:.1f}"
