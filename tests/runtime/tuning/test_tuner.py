"""The loop, with measurers that need no GPU: what is chosen, what survives, what is never measured twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import ladder
from ladder.runtime.tuning.database import Database
from ladder.runtime.tuning.journal import Journal
from ladder.runtime.tuning.kernels import Ahead, into_cache
from ladder.runtime.tuning.worker import Failed, Worker
from ladder.scheduler.tuned import decisions_of
from ladder.settings import Settings

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import fakes
if __name__ == "__main__":
    fakes.main(Path({folder!r}), {seconds}, {ms})
"""


def start(folder: Path, seconds: float, ms: tuple[int, ...]) -> subprocess.Popen:
    script = folder / "run.py"
    script.write_text(
        SCRIPT.format(
            root=str(ROOT),
            tests=str(Path(__file__).parent),
            folder=str(folder),
            seconds=seconds,
            ms=ms,
        )
    )
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_fastest_is_chosen_and_the_scheduler_takes_it(fakes, tmp_path):
    problem = fakes.problem()
    (result,) = fakes.tuner(tmp_path).run([problem])
    candidates = problem.candidates(fakes.COUNT)
    times = [fakes.seeded_us(candidate) for candidate in candidates]
    assert list(result.times.values()) == pytest.approx(times)
    assert result.best == times.index(min(times))
    assert result.untuned_us == pytest.approx(times[0])
    assert result.gap == pytest.approx(times[0] / min(times) - 1)
    database = Database(tmp_path)
    plan = ladder.schedule(problem.op, "h200", tuned=database)
    assert plan == candidates[result.best].plan
    assert ladder.schedule(problem.op, "h200") == candidates[0].plan


def test_a_second_run_measures_nothing(fakes, tmp_path):
    problems = [fakes.problem(m) for m in (1, 16)]
    first = fakes.tuner(tmp_path).run(problems)
    lines = Journal.of(tmp_path, "h200").path.read_text()
    kernels = fakes.FakeKernels()
    second = fakes.tuner(tmp_path, kernels=kernels).run(problems)
    assert len(fakes.said(tmp_path / "log", "start")) == 2 * fakes.COUNT
    assert [r.record() for r in first] == [r.record() for r in second]
    assert Journal.of(tmp_path, "h200").path.read_text() == lines
    assert kernels.announced == []


@pytest.mark.parametrize(
    "changed", [{"build": "build 2"}, {"gpu": "Other GPU"}], ids=["build", "gpu"]
)
def test_another_build_or_gpu_is_measured_again(fakes, tmp_path, changed):
    fakes.tuner(tmp_path).run([fakes.problem()])
    fakes.tuner(tmp_path, machine=replace(fakes.MACHINE, **changed)).run([fakes.problem()])
    assert len(fakes.said(tmp_path / "log", "start")) == 2 * fakes.COUNT


def test_again_measures_what_is_known(fakes, tmp_path):
    fakes.tuner(tmp_path).run([fakes.problem()])
    (result,) = fakes.tuner(tmp_path, again=True).run([fakes.problem()])
    assert len(fakes.said(tmp_path / "log", "start")) == 2 * fakes.COUNT
    assert len(result.times) == fakes.COUNT


def test_a_larger_count_measures_only_what_is_new(fakes, tmp_path):
    fakes.tuner(tmp_path, count=2).run([fakes.problem()])
    fakes.tuner(tmp_path, count=4).run([fakes.problem()])
    started = fakes.said(tmp_path / "log", "start")
    assert len(started) == len(set(started)) == 4


WAYS = {
    "nan time": "nan us",
    "nan output": "not finite",
    "wrong": "above 0.001",
    "negative": "-1.0 us",
    "infinite": "inf us",
    "nothing": "answered NoneType",
    "text": "answered str",
}


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_does_not_count_is_recorded_and_never_chosen(fakes, tmp_path, way):
    """Wrong answers claim the best time here, so that choosing one would show."""
    measurer = fakes.Fake(tmp_path / "log", dict.fromkeys(range(1, fakes.COUNT), way))
    (result,) = fakes.tuner(tmp_path, measurer).run([fakes.problem()])
    assert result.best == 0
    assert set(result.failures) == set(range(1, fakes.COUNT))
    assert all(WAYS[way] in reason for reason in result.failures.values())
    fakes.tuner(tmp_path, measurer).run([fakes.problem()])
    assert len(fakes.said(tmp_path / "log", "start")) == fakes.COUNT  # failures are finished, too


DEEDS = {
    "hang": "not done after 1.5 s",
    "crash": "the process died: SIGSEGV",
    "exit": "the process died: exit code 3",
    "raise": "ValueError: this one is refused",
}


def test_what_a_candidate_does_to_its_process_ends_only_itself(fakes, tmp_path):
    """A hang, a crash, an exit and an exception, in one run of five candidates."""
    ways = dict(enumerate(DEEDS, 1))
    worker = Worker(fakes.fake(tmp_path / "log", ways, 0.0), 1.5)
    (result,) = fakes.tuner(tmp_path, worker).run([fakes.problem()])
    worker.close()
    assert list(result.times) == [0]
    assert [result.failures[rank] for rank in ways] == list(DEEDS.values())
    choice = Journal.of(tmp_path, "h200").choice(result.problem.key)
    assert (choice.measured, choice.us) == (1, result.untuned_us)


def test_where_everything_fails_nothing_is_chosen(fakes, tmp_path):
    measurer = fakes.Fake(tmp_path / "log", dict.fromkeys(range(fakes.COUNT), "wrong"))
    (result,) = fakes.tuner(tmp_path, measurer).run([fakes.problem()])
    assert (result.best, result.gap, result.complete) == (None, None, True)
    assert "all 5 candidates failed" in result.line()
    problem = fakes.problem()
    assert ladder.schedule(problem.op, "h200", tuned=Database(tmp_path)) == ladder.schedule(
        problem.op, "h200"
    )


def test_where_the_untuned_plan_fails_the_best_other_is_chosen(fakes, tmp_path):
    measurer = fakes.Fake(tmp_path / "log", {0: "wrong"})
    (result,) = fakes.tuner(tmp_path, measurer).run([fakes.problem()])
    assert result.best not in (None, 0)
    assert result.gap is None
    assert "the untuned plan failed" in result.line()


def test_out_of_memory_gives_up_the_problem_and_is_no_verdict(fakes, tmp_path):
    """C63: the candidate is skipped and its memory freed, the default plan stays, one line says so; the run goes on."""
    worker = Worker(fakes.fake(tmp_path / "log", {1: "memory"}, 0.0), 30.0)
    first, second = fakes.tuner(tmp_path, worker, count=3).run(
        [fakes.problem(1), fakes.problem(16)]
    )
    worker.close()
    assert "OUT_OF_MEMORY" in first.skipped
    assert "given up" in first.line()
    assert list(first.found) == list(second.found) == [0]
    journal = Journal.of(tmp_path, "h200")
    assert journal.choices() == ()
    problem = fakes.problem(1)
    assert ladder.schedule(problem.op, "h200", tuned=Database(tmp_path)) == ladder.schedule(
        problem.op, "h200"
    )
    (healed,) = fakes.tuner(tmp_path, count=3).run([problem])  # another time there is memory
    assert healed.complete
    assert len(healed.times) == 3


def test_a_kernel_that_cannot_be_compiled_is_recorded_one_that_was_not_brought_is_not(
    fakes, tmp_path
):
    kernels = fakes.FakeKernels({1: Failed("compiling: ToolchainError: no")})
    (result,) = fakes.tuner(tmp_path, kernels=kernels).run([fakes.problem()])
    assert result.failures == {1: "compiling: ToolchainError: no"}
    assert result.complete
    kernels = fakes.FakeKernels({2: Failed("not brought", lasting=False)})
    (result,) = fakes.tuner(tmp_path, kernels=kernels).run([fakes.problem(16)])
    assert result.skipped == "not brought"
    assert list(result.found) == [0, 1]


def test_a_problem_that_is_asked_for_twice_is_done_once(fakes, tmp_path):
    results = fakes.tuner(tmp_path).run([fakes.problem(), fakes.problem()])
    assert len(results) == 1


def test_the_next_problem_is_compiled_while_this_one_is_measured(fakes, tmp_path):
    kernels = fakes.FakeKernels()
    seen = []

    class Watch(fakes.Fake):
        def __call__(self, candidate):
            seen.append(len(set(kernels.announced)))
            return super().__call__(candidate)

    problems = [fakes.problem(m) for m in (1, 16, 32)]
    fakes.tuner(tmp_path, Watch(tmp_path / "log", {}), kernels=kernels).run(problems)
    assert seen == [10] * 5 + [15] * 10


def test_all_candidates_read_the_operators_packing(fakes, tmp_path):
    fakes.tuner(tmp_path).run([fakes.problem(m) for m in (1, 16)])
    packings = {choice.packing for choice in Journal.of(tmp_path, "h200").choices()}
    assert len(packings) == 1


@pytest.mark.slow
def test_real_kernels_are_compiled_in_one_process_and_checked_in_another(fakes, tmp_path):
    """From the shortlist over the compilers, the cache and the measuring process to the choice; numbers by the emulator."""
    pytest.importorskip("tvm")
    settings = replace(Settings.read(), cache_dir=str(tmp_path / "cache"))
    kernels = Ahead(into_cache(settings), 1)
    worker = Worker(partial(fakes.Emulated, tmp_path / "log", settings), 120.0)
    (result,) = fakes.tuner(tmp_path, worker, kernels=kernels, count=2).run(
        [fakes.problem(16, n=520, k=512)]
    )
    kernels.close()
    worker.close()
    assert result.failures == {}
    assert len(result.times) == 2
    assert all(0 < found.error < 1e-3 for found in result.found.values())
    assert len(list((tmp_path / "cache").rglob("*.zip"))) == 2


@pytest.mark.slow
def test_a_run_that_is_killed_loses_at_most_the_candidate_in_flight(fakes, tmp_path):
    """SIGKILL at moments of a seeded generator, until a run gets to its end."""
    rng = random.Random(7)
    journal, log = Journal.of(tmp_path, "h200"), tmp_path / "log"
    kills = 0
    for _ in range(4):
        before = len(fakes.said(log, "start"))
        process = start(tmp_path, 0.1, (1, 16))
        deadline = time.monotonic() + 60
        while len(fakes.said(log, "start")) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.25))
        process.kill()
        process.communicate()
        kills += 1
        time.sleep(0.3)  # an orphan that measures ends with its candidate
    process = start(tmp_path, 0.0, (1, 16))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(out.split()) == 2
    started = fakes.said(log, "start")
    assert len(set(started)) == 2 * fakes.COUNT
    assert len(started) <= 2 * fakes.COUNT + kills
    problems = [fakes.problem(m) for m in (1, 16)]
    for problem in problems:
        best = min(problem.candidates(fakes.COUNT), key=fakes.seeded_us)
        assert journal.choice(problem.key).decisions == decisions_of(best.plan)


@pytest.mark.slow
def test_several_processes_measure_every_candidate_once_and_one_at_a_time(fakes, tmp_path):
    ms = (1, 16, 32)
    processes = [start(tmp_path, 0.05, ms) for _ in range(3)]
    outs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outs
    assert len({out for out, _ in outs}) == 1  # all report the same choices
    lines = (tmp_path / "log").read_text().splitlines()
    started = fakes.said(tmp_path / "log", "start")
    assert len(started) == len(set(started)) == len(ms) * fakes.COUNT
    for first, second in zip(lines[::2], lines[1::2], strict=True):  # the GPU's lock
        assert first.split()[0] == "start"
        assert second.split() == ["end", *first.split()[1:]]
    assert len({line.split()[2] for line in lines}) > 1  # and they shared the work
    records = Journal.of(tmp_path, "h200").path.read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in records]
    assert (kinds.count("measured"), kinds.count("tuned")) == (15, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
def test_a_worker_ends_with_its_parent(fakes, tmp_path):
    process = start(tmp_path, 0.0, (1, 16, 32))
    log = tmp_path / "log"
    deadline = time.monotonic() + 60
    while not fakes.said(log, "start") and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = int(log.read_text().splitlines()[0].split()[2])
    process.kill()
    process.communicate()
    for _ in range(300):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    pytest.fail(f"worker {pid} outlived its parent")
