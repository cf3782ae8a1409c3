"""What a measurement is, and when it counts: only where the numbers were found right first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from ladder.runtime.error_bar import error_bar
from ladder.runtime.tuning.problem import Candidate
from ladder.runtime.tuning.record import Machine, Measurement
from ladder.runtime.tuning.worker import Failed


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurer found.

    Attributes:
        us: microseconds of a launch; NaN where it was not timed, because the numbers were wrong.
        error: relative 2-norm error of the output against float64, over an output that was filled with NaN before.
    """

    us: float
    error: float


class Measurer(Protocol):
    """Runs a candidate. It may raise, crash or hang: it is called in a :class:`~ladder.runtime.tuning.worker.Worker`."""

    def __call__(self, candidate: Candidate) -> Measured | Failed:
        """Check the candidate's numbers, then time it."""

    def close(self) -> None:
        """Give back what it holds."""


def judged(candidate: Candidate, answer: Any, machine: Machine) -> Measurement:
    """The record of an answer: a time counts if it is one, and if the error keeps the bar of the operator."""
    if isinstance(answer, Failed):
        return Measurement.of(candidate, machine, failure=answer.reason)
    if not isinstance(answer, Measured):
        reason = f"the measurer answered {type(answer).__name__}"
        return Measurement.of(candidate, machine, failure=reason)
    bar = error_bar(candidate.problem.op)
    if not math.isfinite(answer.error):
        reason = "outputs are not finite, or were never written"
        return Measurement.of(candidate, machine, failure=reason)
    error = float(f"{answer.error:.3g}")
    if not 0 <= answer.error <= bar:
        reason = f"relative error {error:g} is above {bar:.3g}"
        return Measurement.of(candidate, machine, error=error, failure=reason)
    if not (math.isfinite(answer.us) and answer.us > 0):
        reason = f"a launch took {answer.us} us"
        return Measurement.of(candidate, machine, error=error, failure=reason)
    return Measurement.of(candidate, machine, us=round(answer.us, 3), error=error)
