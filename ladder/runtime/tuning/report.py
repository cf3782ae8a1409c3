"""What a run found: the plan that is used untuned beside the best of those that were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.record import Machine, Measurement, now
from ladder.scheduler.tuned import version

#: the untuned plan may be slower than the best measured one by this part
PROMISED = 0.08

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A problem and what was measured for it.

    Attributes:
        problem: the operator on its device.
        briefs: the candidates in one line each, by rank.
        found: rank -> measurement; ranks that are missing were not measured.
        skipped: why the problem was given up, or None.
    """

    problem: Problem
    briefs: tuple[str, ...]
    found: Mapping[int, Measurement]
    skipped: str | None

    @classmethod
    def of(
        cls,
        problem: Problem,
        candidates: Sequence[Candidate],
        found: Mapping[int, Measurement],
        skipped: str | None,
    ) -> Result:
        """The result of a problem."""
        return cls(problem, tuple(c.plan.brief for c in candidates), dict(found), skipped)

    @property
    def times(self) -> dict[int, float]:
        """Rank -> microseconds, of those that gave a time."""
        return {rank: m.us for rank, m in sorted(self.found.items()) if m.us is not None}

    @property
    def best(self) -> int | None:
        """Rank of the fastest candidate."""
        return min(self.times, key=lambda rank: (self.times[rank], rank), default=None)

    @property
    def best_us(self) -> float | None:
        """Microseconds of the fastest candidate."""
        return None if self.best is None else self.times[self.best]

    @property
    def untuned_us(self) -> float | None:
        """Microseconds of the plan that is used untuned; None where it failed or was not measured."""
        return self.times.get(0)

    @property
    def failures(self) -> dict[int, str]:
        """Rank -> reason, of those that failed."""
        return {rank: m.failure for rank, m in sorted(self.found.items()) if m.failure is not None}

    @property
    def gap(self) -> float | None:
        """By which part the untuned plan is slower than the best one; None where one of them is missing."""
        if self.best_us is None or self.untuned_us is None:
            return None
        return self.untuned_us / self.best_us - 1

    @property
    def complete(self) -> bool:
        """Whether every candidate was measured, or failed for good."""
        return self.skipped is None

    def line(self) -> str:
        """One line for people."""
        name = str(self.problem)
        if self.skipped is not None:
            return f"{name}: given up, {self.skipped}"
        if self.best_us is None:
            return f"{name}: all {len(self.found)} candidates failed"
        if self.gap is None:
            return f"{name}: {self.best_us:.2f} us, the untuned plan failed"
        return f"{name}: {self.best_us:.2f} us, untuned {self.untuned_us:.2f} us (+{self.gap:.1%})"

    def record(self) -> Json:
        """As JSON: the problem, its two times, and every candidate."""
        op = self.problem.op
        return {
            "operator": str(op),
            "m": op.m,
            "n": op.n,
            "k": op.k,
            "weight": str(op.weight),
            "activation": op.activation.name,
            "device": self.problem.device.name,
            "launch": self.problem.launch,
            "untuned_us": self.untuned_us,
            "best_us": self.best_us,
            "gap": None if self.gap is None else round(self.gap, 4),
            "skipped": self.skipped,
            "candidates": [self._candidate(rank) for rank in range(len(self.briefs))],
        }

    def _candidate(self, rank: int) -> Json:
        found = self.found.get(rank)
        return {
            "rank": rank,
            "plan": self.briefs[rank],
            "estimate_us": None if found is None else found.estimate_us,
            "us": None if found is None else found.us,
            "error": None if found is None else found.error,
            "failure": None if found is None else found.failure,
        }


def summary(results: Sequence[Result]) -> Json:
    """How far untuned plans are from the best measured ones, over all problems that have both."""
    gaps = [result.gap for result in results if result.gap is not None]
    worst = max((r for r in results if r.gap is not None), key=lambda r: r.gap or 0.0, default=None)
    return {
        "problems": len(results),
        "complete": sum(result.complete for result in results),
        "compared": len(gaps),
        "failed_candidates": sum(len(result.failures) for result in results),
        "median_gap": round(statistics.median(gaps), 4) if gaps else None,
        "worst_gap": round(max(gaps), 4) if gaps else None,
        "worst": None if worst is None else str(worst.problem),
        "promised_gap": PROMISED,
        "within_promise": sum(gap <= PROMISED for gap in gaps),
    }


def document(results: Sequence[Result], machine: Machine, command: str) -> Json:
    """The whole run as JSON, with where, when and how it was made."""
    made = {name: value for name, value in asdict(machine).items() if name != "place"}
    return {
        **made,
        "version": version(),
        "date": now(),
        "command": command,
        "summary": summary(results),
        "rows": [result.record() for result in results],
    }


def slowdown(gap: float | None) -> str:
    """A gap for people: ``+3.1%``."""
    return "" if gap is None or not math.isfinite(gap) else f"+{gap:.1%}"
