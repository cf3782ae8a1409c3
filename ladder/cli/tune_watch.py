"""How far ``ladder tune`` has come: a bar on a terminal, a line for each problem elsewhere; on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

    from ladder.runtime.tuning.problem import Candidate, Problem
    from ladder.runtime.tuning.record import Measurement
    from ladder.runtime.tuning.report import Result
    from ladder.runtime.tuning.tuner import Watch


class Lines:
    """A line for each problem that ends.

    Args:
        stream: where they go.
        total: candidates of the whole run.
        count: candidates of a problem.
    """

    def __init__(self, stream: TextIO, total: int, count: int) -> None:
        self._stream = stream
        self._problems = total // count
        self._done = 0

    def begins(self, problem: Problem) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`."""

    def measured(self, candidate: Candidate, measurement: Measurement) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`."""

    def ends(self, result: Result) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`."""
        self._done += 1
        self._stream.write(f"{self._done}/{self._problems} {result.line()}\n")
        self._stream.flush()


class Bar:
    """A bar of candidates with the time that is left, what is measured now, and a line for each problem that ends.

    Args:
        progress: of rich, started.
        total: candidates of the whole run.
        count: candidates of a problem.
    """

    def __init__(self, progress: Progress, total: int, count: int) -> None:
        self._progress = progress
        self._count = count
        self._problems = 0
        self._task = progress.add_task("tuning", total=total)

    def begins(self, problem: Problem) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`."""
        op = problem.op
        self._progress.update(self._task, description=f"{op.weight} {op.n}x{op.k} m{op.m}")

    def measured(self, candidate: Candidate, measurement: Measurement) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`."""
        del candidate, measurement
        self._progress.advance(self._task)

    def ends(self, result: Result) -> None:
        """See :class:`~ladder.runtime.tuning.tuner.Watch`; a problem may have had fewer candidates than it might."""
        self._problems += 1
        self._progress.update(self._task, completed=self._problems * self._count)
        self._progress.console.print(result.line(), markup=False, highlight=False)


@contextmanager
def watching(total: int, count: int) -> Iterator[Watch]:
    """Somebody to tell: a bar where standard error is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield Lines(sys.stderr, total, count)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bar(progress, total, count)
