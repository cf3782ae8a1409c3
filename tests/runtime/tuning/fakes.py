"""Measurers and compilers that need no GPU: times are made of the plan's digest, and some plans misbehave.

A module of its own, so that worker processes can import it.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import ladder
from ladder.runtime.packed import Packed
from ladder.runtime.tuning.journal import Journal
from ladder.runtime.tuning.kernels import load_kernel
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.operands import Inputs, Weights, relative_error
from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.record import Machine
from ladder.runtime.tuning.tuner import Tuner
from ladder.runtime.tuning.worker import Failed, TransientError, Worker
from ladder.settings import Settings

MACHINE = Machine("Fake GPU", "here-0", "13.0", "fake 1.0", "build 1")
COUNT = 5


def problem(m: int = 1, n: int = 64, k: int = 256, device: str = "h200") -> Problem:
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    op = ladder.matmul(m=m, n=n, k=k, activation="float16", weight=weight)
    return Problem(op, ladder.devices[device])


def seeded_us(candidate: Candidate) -> float:
    """From 5 to 15 us, the same every time."""
    return 5 + int(candidate.digest[:6], 16) % 10_000 / 1000


def say(log: Path, word: str, candidate: Candidate) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{word} {candidate.digest} {os.getpid()}\n".encode())
    os.close(handle)


def said(log: Path, word: str) -> list[str]:
    """Digests of the candidates of which a word was said."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines if line.split()[0] == word]


def hang() -> None:
    time.sleep(600)


def crash() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def refuse() -> None:
    raise ValueError("this one\nis refused")


def memory() -> None:
    raise TransientError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")


#: what a plan may do instead of being measured
DEEDS = {
    "hang": hang,
    "crash": crash,
    "exit": lambda: sys.exit(3) or os._exit(3),
    "raise": refuse,
    "memory": memory,
}
#: what a plan may be measured as
ANSWERS = {
    "nan time": Measured(math.nan, 1e-5),
    "nan output": Measured(1.0, math.nan),
    "wrong": Measured(1.0, 0.5),
    "negative": Measured(-1.0, 1e-5),
    "infinite": Measured(math.inf, 1e-5),
    "nothing": None,
    "text": "fast",
}


class Fake:
    """A measurer; ``ways`` says which rank does what."""

    def __init__(self, log: Path, ways: dict[int, str], seconds: float = 0.0) -> None:
        self.log = log
        self.ways = ways
        self.seconds = seconds

    def __call__(self, candidate: Candidate):
        say(self.log, "start", candidate)
        way = self.ways.get(candidate.rank, "")
        if way in DEEDS:
            DEEDS[way]()
        time.sleep(self.seconds)
        say(self.log, "end", candidate)
        return ANSWERS[way] if way in ANSWERS else Measured(seeded_us(candidate), 1e-4)

    def close(self) -> None:
        pass


def fake(log: Path, ways: dict[int, str], seconds: float):
    return partial(Fake, log, ways, seconds)


class Emulated:
    """A measurer that runs the real kernel's instructions on the CPU; the time is that of the cost model."""

    def __init__(self, log: Path, settings: Settings) -> None:
        self.log = log
        self.settings = settings

    def __call__(self, candidate: Candidate) -> Measured:
        say(self.log, "start", candidate)
        op = candidate.problem.op
        kernel = load_kernel(candidate, None, self.settings)
        weights = Weights.random(op)
        inputs = Inputs.random(op, weights)
        packed = Packed(kernel.packing, weights.pack(candidate.plan.packing))
        y = kernel(inputs.x, packed, device="emulator")
        return Measured(candidate.estimate_us, relative_error(y, inputs.exact))

    def close(self) -> None:
        pass


class FakeKernels:
    """Kernels that are there, except those of some ranks."""

    def __init__(self, missing: dict[int, Failed] | None = None) -> None:
        self.announced: list[str] = []
        self._missing = missing or {}

    def announce(self, candidates: Sequence[Candidate]) -> None:
        self.announced += [candidate.digest for candidate in candidates]

    def missing(self, candidate: Candidate) -> Failed | None:
        return self._missing.get(candidate.rank)

    def close(self) -> None:
        pass


def compiler(log: Path, ways: dict[int, str]):
    """A compiler for :class:`~ladder.runtime.tuning.kernels.Ahead`."""
    return partial(Fake, log, ways)


def tuner(folder: Path, measurer=None, **more) -> Tuner:
    measurer = measurer or Fake(folder / "log", {})
    given = {
        "journal": Journal.of(folder, "h200"),
        "machine": MACHINE,
        "kernels": FakeKernels(),
        "measurer": measurer,
        "locks": folder / "locks",
        "count": COUNT,
    }
    return Tuner(**{**given, **more})


def main(folder: Path, seconds: float, ms: Sequence[int]) -> None:
    """A run in a process of its own, for tests that kill it or start several."""
    make = fake(folder / "log", {}, seconds)
    worker = Worker(make, 60.0, folder / "locks" / "gpu.lock")
    results = tuner(folder, worker).run([problem(m) for m in ms])
    worker.close()
    print(*(result.best for result in results))
