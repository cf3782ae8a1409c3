"""How well two orders agree: Kendall's tau, and the pairs that stand the other way round."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ladder.checks import accept, number, several
from ladder.errors import ExperimentError
from ladder.experiments.row import Row

NUMBERS = several(number(), "a list of finite numbers")


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau-b of two orders of the same things: 1 where they agree, -1 where one is the other reversed.

    Ties count in neither order (Kendall 1945, "The treatment of ties in ranking problems").

    >>> kendall_tau([1, 2, 3, 4], [10, 30, 20, 40])
    0.6666666666666666

    Raises:
        ExperimentError: there are fewer than two things, of one length, or all are tied in one of the orders.
    """
    a, b = (
        accept(order, NUMBERS, name, at="kendall_tau", error=ExperimentError)
        for name, order in (("a", a), ("b", b))
    )
    if len(a) != len(b) or len(a) < 2:
        raise ExperimentError(
            f"orders of {len(a)} and {len(b)} things",
            at="kendall_tau",
            hint="give two numbers of each thing, and at least two things",
        )
    agreeing = counted_a = counted_b = 0
    for (x, u), (y, v) in itertools.combinations(zip(a, b, strict=True), 2):
        first, second = (x > y) - (x < y), (u > v) - (u < v)
        agreeing += first * second
        counted_a += abs(first)
        counted_b += abs(second)
    if not counted_a or not counted_b:
        raise ExperimentError(
            "all things are tied", at="kendall_tau", hint="an order needs two that differ"
        )
    return agreeing / math.sqrt(counted_a * counted_b)


def timed(rows: Iterable[Row]) -> list[tuple[Row, float, float]]:
    """Rows that have both times: (row, modelled us, measured us)."""
    return [
        (row, row.modelled_us, row.measured_us)
        for row in rows
        if row.modelled_us is not None and row.measured_us is not None
    ]


def agreement(rows: Iterable[Row]) -> float | None:
    """Kendall's tau between the modelled and the measured order of rows; None where fewer than two were measured."""
    both = timed(rows)
    if len(both) < 2:
        return None
    return kendall_tau([us for _, us, _ in both], [us for _, _, us in both])


def disagreements(rows: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Pairs (a, b) of which the model says that a is faster, and the measurement that b is; the grossest first."""
    found: list[tuple[float, Row, Row]] = []
    for one, other in itertools.combinations(timed(rows), 2):
        a, b = (one, other) if one[1] <= other[1] else (other, one)
        if a[1] < b[1] and a[2] > b[2]:
            found.append((b[1] / a[1] * a[2] / b[2], a[0], b[0]))
    found.sort(key=lambda pair: -pair[0])
    return [(a, b) for _, a, b in found]
