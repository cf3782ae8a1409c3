"""Processes that crash, hang or raise become values, and the next piece of work finds a fresh one."""

from __future__ import annotations

import time

import pytest

from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.worker import Failed, TransientError, Worker, failure


def works(fakes, tmp_path, ways, limit=20.0, exclusive=None) -> Worker:
    return Worker(fakes.fake(tmp_path / "log", ways, 0.0), limit, exclusive)


def test_one_process_does_all_the_work(fakes, tmp_path):
    worker = works(fakes, tmp_path, {})
    for candidate in fakes.problem().candidates(3):
        assert worker(candidate) == Measured(fakes.seeded_us(candidate), 1e-4)
    worker.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len({line.split()[2] for line in lines}) == 1


@pytest.mark.parametrize(
    "way, reason",
    [
        ("crash", "the process died: SIGSEGV"),
        ("exit", "the process died: exit code 3"),
        ("raise", "ValueError: this one is refused"),
        ("hang", "not done after 1 s"),
    ],
)
def test_what_happens_is_a_value_and_the_next_process_is_fresh(fakes, tmp_path, way, reason):
    worker = works(fakes, tmp_path, {0: way}, limit=1.0)
    bad, good = fakes.problem().candidates(2)
    begun = time.monotonic()
    assert worker(bad) == Failed(reason)
    assert time.monotonic() - begun < 20
    assert worker(good) == Measured(fakes.seeded_us(good), 1e-4)
    worker.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len({line.split()[2] for line in lines}) == 2


def test_work_that_cannot_begin_is_a_value(tmp_path):
    worker = Worker(_no_such, 5.0)
    found = worker("request")
    worker.close()
    assert isinstance(found, Failed)
    assert "nothing to work with" in found.reason


def _no_such():
    raise RuntimeError("nothing to work with")


def test_memory_is_no_lasting_reason():
    assert failure(MemoryError()) == Failed("MemoryError: ", lasting=False)
    assert not failure(TransientError("busy")).lasting
    assert failure(ValueError("a\n b")) == Failed("ValueError: a b")
    assert len(failure(ValueError("x" * 10_000)).reason) < 500


def test_closing_twice_is_closing_once(fakes, tmp_path):
    worker = works(fakes, tmp_path, {})
    worker.close()
    worker(fakes.problem().candidates(1)[0])
    worker.close()
    worker.close()
