"""The loop: for each problem its candidates, each claimed, made ready, measured, judged and written down; then the choice.

What is written is finished: a run that begins again, with the same build on the same kind of GPU, measures only what is not
written, so that one that is killed loses the candidate in flight. Several processes may run at once: a problem is first
left to the one that works on it, and at the end they share what is left of it, candidate by candidate, each claimed by a
lock that ends with its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ladder.runtime.tuning.journal import Journal, lock
from ladder.runtime.tuning.kernels import Kernels
from ladder.runtime.tuning.measure import Measurer, judged
from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.record import Choice, Machine, Measurement
from ladder.runtime.tuning.report import Result
from ladder.runtime.tuning.worker import Failed

#: plans that are compared for a problem
COUNT = 12


class Watch(Protocol):
    """Who is told how far a run has come."""

    def begins(self, problem: Problem) -> None:
        """A problem is begun."""

    def measured(self, candidate: Candidate, measurement: Measurement) -> None:
        """A candidate is finished, now or by an earlier run."""

    def ends(self, result: Result) -> None:
        """A problem is finished, or was given up."""


class Silent:
    """A :class:`Watch` that says nothing."""

    def begins(self, problem: Problem) -> None:
        """See :class:`Watch`."""

    def measured(self, candidate: Candidate, measurement: Measurement) -> None:
        """See :class:`Watch`."""

    def ends(self, result: Result) -> None:
        """See :class:`Watch`."""


@dataclass
class Tuner:
    """One run.

    Attributes:
        journal: where records go.
        machine: on what is measured.
        kernels: where kernels come from.
        measurer: what measures; called one candidate at a time.
        locks: folder of the claims, shared by all processes that tune into the journal.
        count: candidates of a problem.
        watch: who is told.
        again: measure what is written, too.
    """

    journal: Journal
    machine: Machine
    kernels: Kernels
    measurer: Measurer
    locks: Path
    count: int = COUNT
    watch: Watch = field(default_factory=Silent)
    again: bool = False
    _fresh: set[str] = field(default_factory=set)
    _candidates: dict[str, tuple[Candidate, ...]] = field(default_factory=dict)

    def run(self, problems: Sequence[Problem]) -> tuple[Result, ...]:
        """Tune all problems; results in their order.

        Raises:
            ScheduleError: a problem has no legal plan.
            TuningError: what was measured cannot be written.
        """
        unique = tuple(dict.fromkeys(problems))
        results: dict[str, Result] = {}
        left: list[Problem] = []
        for number, problem in enumerate(unique):
            with lock(self.locks / f"{problem.key}.lock", seconds=0) as mine:
                if not mine:
                    left.append(problem)
                    continue
                self._announce(unique[number : number + 2])
                results[problem.key] = self._problem(problem)
        for problem in left:
            results[problem.key] = self._problem(problem)
        return tuple(results[problem.key] for problem in unique)

    def _announce(self, problems: Sequence[Problem]) -> None:
        """Have the kernels of this problem and the next one compiled while this one is measured."""
        for problem in problems:
            todo = [c for c in self._of(problem) if self._finished(c) is None]
            self.kernels.announce(todo)

    def _of(self, problem: Problem) -> tuple[Candidate, ...]:
        """The candidates of a problem; ranking hundreds of plans takes a while."""
        if problem.key not in self._candidates:
            self._candidates[problem.key] = problem.candidates(self.count)
        return self._candidates[problem.key]

    def _problem(self, problem: Problem) -> Result:
        self.watch.begins(problem)
        candidates = self._of(problem)
        skipped = self._measure_all(candidates)
        found = {c.rank: m for c in candidates if (m := self._finished(c)) is not None}
        if skipped is None:
            self._choose(candidates, found)
        result = Result.of(problem, candidates, found, skipped)
        self.watch.ends(result)
        return result

    def _measure_all(self, candidates: Sequence[Candidate]) -> str | None:
        """Measure what is not finished, unclaimed ones first; why it was given up, or None."""
        for wait in (0.0, -1.0):
            for candidate in candidates:
                if self._seen(candidate):
                    continue
                with lock(self.locks / f"{candidate.digest}.lock", seconds=wait) as mine:
                    # another process may have finished it while this one waited
                    if not mine or self._seen(candidate):
                        continue
                    skipped = self._measure(candidate)
                if skipped is not None:
                    return skipped
        return None

    def _seen(self, candidate: Candidate) -> bool:
        found = self._finished(candidate)
        if found is not None and candidate.digest not in self._fresh:
            self._fresh.add(candidate.digest)
            self.watch.measured(candidate, found)
        return found is not None

    def _measure(self, candidate: Candidate) -> str | None:
        """Measure a candidate and write it down; what is no fault of its is not written, and ends the problem."""
        answer: object = self.kernels.missing(candidate)
        if answer is None:
            answer = self.measurer(candidate)
        if isinstance(answer, Failed) and not answer.lasting:
            return answer.reason
        record = judged(candidate, answer, self.machine)
        self.journal.add(record)
        self._fresh.add(candidate.digest)
        self.watch.measured(candidate, record)
        return None

    def _finished(self, candidate: Candidate) -> Measurement | None:
        if self.again and candidate.digest not in self._fresh:
            return None
        return self.journal.measurement(candidate.digest, self.machine.gpu, self.machine.build)

    def _choose(self, candidates: Sequence[Candidate], found: dict[int, Measurement]) -> None:
        """Write the choice, unless it stands there already."""
        times = {rank: m.us for rank, m in found.items() if m.us is not None}
        if not times:
            return
        best = min(times, key=lambda rank: (times[rank], rank))
        choice = Choice.of(candidates[best], times[best], times.get(0), len(times), self.machine)
        with lock(self.locks / f"{choice.problem}.choice.lock", seconds=-1):
            before = self.journal.choice(choice.problem)
            if before is None or _apart(before) != _apart(choice):
                self.journal.add(choice)


def _apart(choice: Choice) -> tuple[object, ...]:
    """What makes a choice another one; not its date."""
    return (
        *(choice.version, choice.packing, choice.decisions, choice.arch, choice.us),
        *(choice.untuned_us, choice.measured, choice.gpu, choice.build),
    )
