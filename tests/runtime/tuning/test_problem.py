"""What is tuned has one M, a device and a launch; what competes is told apart by everything that a plan is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ladder
from ladder.errors import TuningError
from ladder.runtime.tuning.problem import Problem


def test_a_problem_has_one_m(fakes):
    op = fakes.problem().op
    for m in (None, 0):
        with pytest.raises(TuningError, match="one M"):
            Problem(replace(op, m=m), ladder.devices["h200"])


def test_a_problem_has_a_known_launch(fakes):
    with pytest.raises(TuningError, match="'fast'"):
        Problem(fakes.problem().op, ladder.devices["h200"], "fast")


def test_keys_tell_problems_apart(fakes):
    h200 = ladder.devices["h200"]
    problems = [
        fakes.problem(1),
        fakes.problem(2),
        fakes.problem(1, n=128),
        fakes.problem(1, k=384),
        fakes.problem(1, device="h100"),
        Problem(fakes.problem(1).op, h200, "pdl"),
    ]
    assert len({problem.key for problem in problems}) == len(problems)
    assert fakes.problem(1).key == fakes.problem(1).key


def test_candidates_are_ranked_and_told_apart(fakes):
    found = fakes.problem().candidates(12)
    assert [candidate.rank for candidate in found] == list(range(12))
    assert len({candidate.digest for candidate in found}) == 12
    assert found[0].plan == ladder.schedule(fakes.problem().op, "h200")
    early = Problem(fakes.problem().op, ladder.devices["h200"], "pdl").candidates(3)
    assert {candidate.plan.launch for candidate in early} == {"pdl"}
