"""Whether rows reach a bar: which rows a bar looks at, what it measures of them, and what was found.

A bar that looks at rows which were not measured is open, unless one that was measured misses it already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from benchmarks.grid import Shape
from benchmarks.rows import Row

#: what tells a row from all others: weight, n, k, m, activation, launch, any_m, epilogue
Key = tuple[str, int, int, int, str, str, bool, str]

#: of the bound: the measured read rate of the device whose bars these are
BYTES_PER_US = 4.65e6
#: (bytes, microseconds of a plain launch that reads them) on the GPU whose microseconds the bars are
STUDY_READ_US = ((4.2e6, 2.6), (8.4e6, 3.6), (29.4e6, 8.1), (33.6e6, 9.3), (117.4e6, 28.0))


class Table:
    """Measured rows by key; of two suites that share a case, the later row counts."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = {key_of(row): row for row in rows if "failure" not in row}

    def other(self, row: Row, **changes: object) -> Row | None:
        """The row that differs from one in these fields."""
        return self.rows.get(key_of({**row, **changes}))

    def larger(self, row: Row) -> list[Row]:
        """Rows that differ in M alone, and have a larger one."""
        return [
            each
            for each in self.rows.values()
            if each["m"] > row["m"] and key_of({**each, "m": row["m"]}) == key_of(row)
        ]


def key_of(row: Row) -> Key:
    """The key of a row."""
    return (
        *(row["weight"], row["n"], row["k"], row["m"]),
        *(row["activation"], row["launch"], row["any_m"], row["epilogue"]),
    )


def name_of(row: Row) -> str:
    """A row in a few words."""
    kind = " any M" if row["any_m"] else ""
    kind += f" {row['epilogue']}" if row["epilogue"] else ""
    return f"{row['weight']} {row['n']}x{row['k']} M={row['m']} {row['activation']} {row['launch']}{kind}"


def ratio(row: Row, peer: str) -> float | None:
    """How many times faster than a peer a row is; None where either time is missing."""
    us, other = row["us"], row["peers"].get(peer)
    return other / us if us and other else None


def over_floor(row: Row) -> float | None:
    """Time over the pure-read floor of the same run; None where either is missing."""
    us, read = row["us"], row["read_us"]
    return us / read if us and read else None


def geometric_mean(values: Sequence[float]) -> float:
    """Of numbers above zero, at least one."""
    return math.exp(sum(map(math.log, values)) / len(values))


def study_read_us(nbytes: float) -> float:
    """The pure-read floor on the study's GPU, between the sizes that were measured there; beyond them by the last slope."""
    points = STUDY_READ_US
    after = next((i for i, (size, _) in enumerate(points) if size >= nbytes), len(points) - 1)
    (left, low), (right, high) = points[max(after, 1) - 1], points[max(after, 1)]
    return low + (high - low) * (nbytes - left) / (right - left)


# -- what is measured of a row ------------------------------------------------------------------------------------

Value = Callable[[Table, Row], float | None]


def time_us(_: Table, row: Row) -> float | None:
    """Microseconds."""
    us: float = row["us"]
    return us


def share(_: Table, row: Row) -> float | None:
    """Part of the bound."""
    found: float | None = row["share"]
    return found


def against(peer: str) -> Value:
    """Times as fast as a peer."""
    return lambda _, row: ratio(row, peer)


def time_of(*, explained: bool = False, **changes: object) -> Value:
    """Time over that of the row that differs in these fields; ``explained``: over what its bytes make of it."""

    def value(table: Table, row: Row) -> float | None:
        other = table.other(row, **changes)
        if other is None:
            return None
        bytes_ratio: float = row["bound_us"] / other["bound_us"] if explained else 1.0
        found: float = row["us"] / other["us"] / bytes_ratio
        return found

    return value


def time_of_larger(table: Table, row: Row) -> float | None:
    """Time over the least of larger M; for the largest M, 1."""
    return float(row["us"] / min((each["us"] for each in table.larger(row)), default=row["us"]))


def step(by: int) -> Value:
    """Time over that of ``by`` tokens fewer; 1 where those are not in the sweep."""

    def value(table: Table, row: Row) -> float | None:
        before = table.other(row, m=row["m"] - by)
        return 1.0 if before is None else float(row["us"] / before["us"])

    return value


# -- bars -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pick:
    """Rows that a bar looks at: a product of axes.

    Attributes:
        weights, shapes, tokens: the axes.
        activation: of all.
        launch: ``plain``, ``pdl``, or ``best``: the faster of both.
        any_m: kernels of an operator for any M.
        epilogue: of all.
    """

    weights: tuple[str, ...]
    shapes: tuple[Shape, ...]
    tokens: tuple[int, ...]
    activation: str = "float16"
    launch: Literal["plain", "pdl", "best"] = "plain"
    any_m: bool = False
    epilogue: str = ""

    def rows(self, table: Table) -> list[Row | None]:
        """A row for every point, None where it was not measured."""
        return [
            self._row(table, weight, n, k, m)
            for weight, (n, k), m in product(self.weights, self.shapes, self.tokens)
        ]

    def _row(self, table: Table, weight: str, n: int, k: int, m: int) -> Row | None:
        launches = ("plain", "pdl") if self.launch == "best" else (self.launch,)
        found = [
            table.rows.get((weight, n, k, m, self.activation, launch, self.any_m, self.epilogue))
            for launch in launches
        ]
        return min((row for row in found if row is not None), key=_us, default=None)


def _us(row: Row) -> float:
    us: float = row["us"]
    return us


@dataclass(frozen=True, slots=True)
class Bar:
    """A line that rows have to reach.

    Attributes:
        name: which bar this is a part of.
        what: it asks for, in words.
        pick: which rows.
        value: what is measured of each.
        limit: of every value, or of their geometric mean.
        at_most: whether the limit is an upper one.
        mean: whether the geometric mean counts.
        needed: whether a value that is missing keeps the bar open (a peer need not run everything).
    """

    name: str
    what: str
    pick: Pick
    value: Value
    limit: float
    at_most: bool = False
    mean: bool = False
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        bar: asked.
        met: None where rows are missing.
        found: the worst value, or the mean; None where there is none.
        at: the row of the worst value.
        measured: values.
        wanted: values that the bar asks for.
        scaled: of a bar in microseconds, what its limit is on this GPU by the pure-read floor of the same run.
    """

    bar: Bar
    met: bool | None
    found: float | None = None
    at: str = ""
    measured: int = 0
    wanted: int = 0
    scaled: float | None = None


def judge(bar: Bar, table: Table) -> Verdict:
    """Look at the rows of a bar."""
    picked = bar.pick.rows(table)
    known = [(bar.value(table, row), row) for row in picked if row is not None]
    values = [(value, row) for value, row in known if value is not None]
    if not values:
        return Verdict(bar, None, wanted=len(picked))
    worst, row = (max if bar.at_most else min)(values, key=lambda pair: pair[0])
    found = geometric_mean([value for value, _ in values]) if bar.mean else worst
    reached = found <= bar.limit if bar.at_most else found >= bar.limit
    complete = len(values) == len(picked) or (len(known) == len(picked) and not bar.needed)
    # one row that misses decides, a mean of some rows does not
    met = None if not complete and (reached or bar.mean) else reached
    scaled = _scaled(bar, row) if bar.value is time_us else None
    at = "" if bar.mean else name_of(row)
    return Verdict(bar, met, found, at, len(values), len(picked), scaled)


def _scaled(bar: Bar, row: Row) -> float | None:
    if row["read_us"] is None:
        return None
    nbytes = row["bound_us"] * BYTES_PER_US
    return float(bar.limit * row["read_us"] / study_read_us(nbytes))
