"""The gap between the plan that is used untuned and the best one, over one problem and over all."""

from __future__ import annotations

import json

import pytest

from ladder.runtime.tuning.record import Measurement
from ladder.runtime.tuning.report import Result, document, slowdown, summary


@pytest.fixture
def result(fakes):
    """Of times by rank; None is a failure."""

    def made(*times: float | None, skipped: str | None = None, m: int = 1) -> Result:
        problem = fakes.problem(m)
        candidates = problem.candidates(max(1, len(times)))
        found = {
            c.rank: Measurement.of(c, fakes.MACHINE, us=us, failure=None if us else "wrong")
            for c, us in zip(candidates, times, strict=False)
        }
        return Result.of(problem, candidates, found, skipped)

    return made


def test_the_gap_is_how_much_slower_the_untuned_plan_is(result):
    assert result(10.0, 8.0, 9.0).gap == pytest.approx(0.25)
    assert result(8.0, 8.0).gap == 0
    assert result(8.0, 8.0).best == 0  # of equal ones the scheduler's
    assert result(None, 8.0).gap is None
    assert result(None, None).best is None
    assert result().line().endswith("all 0 candidates failed")


def test_a_line_says_what_happened(result):
    assert result(10.0, 8.0).line().endswith(": 8.00 us, untuned 10.00 us (+25.0%)")
    assert result(10.0, skipped="no memory").line().endswith("given up, no memory")


def test_the_summary_names_the_worst(result):
    found = summary(
        [result(10.0, 8.0), result(8.0, 8.0, m=2), result(None, 8.0), result(8.0, skipped="x", m=3)]
    )
    assert (found["problems"], found["complete"], found["compared"]) == (4, 3, 3)
    assert (found["median_gap"], found["worst_gap"]) == (0.0, 0.25)
    assert "[1, 256]" in found["worst"]
    assert found["within_promise"] == 2
    assert found["failed_candidates"] == 1
    assert summary([])["worst_gap"] is None


def test_the_document_is_json_and_names_the_machine(result, fakes):
    found = document([result(10.0, None)], fakes.MACHINE, "ladder tune")
    text = json.dumps(found, allow_nan=False)
    assert "here-0" not in text  # the place of a GPU is nobody's business
    assert found["command"] == "ladder tune"
    assert {"gpu", "driver", "toolkit", "build", "date", "version"} <= set(found)
    first, second = found["rows"][0]["candidates"]
    assert (first["us"], first["failure"]) == (10.0, None)
    assert (second["us"], second["failure"]) == (None, "wrong")
    assert slowdown(0.031) == "+3.1%"
    assert slowdown(None) == ""
