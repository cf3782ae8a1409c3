"""The measurer of kernels that decode a weight, with a driver whose memory is the host's."""

from __future__ import annotations

import ctypes
import math
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import ladder
from ladder.experiments import gpu as module
from ladder.experiments.gpu import POISON, DecodeMeasurer, gpu_measure
from ladder.runtime import timing
from ladder.runtime.timing import OnStream, Timing
from ladder.runtime.tuning import gpu as tuning

N, K = 1152, 128  # two periods of the operands, and some rows


class Memory:
    """Device memory that is the host's."""

    def __init__(self) -> None:
        self.blocks: dict[int, np.ndarray] = {}

    def allocate(self, device: int, nbytes: int) -> int:
        block = np.full(nbytes + 64, 0xA5, np.uint8)
        pointer = block.ctypes.data + (-block.ctypes.data % 64)
        self.blocks[pointer] = block
        return pointer

    def free(self, device: int, pointer: int) -> None:
        del self.blocks[pointer]

    def to_device(self, device: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    to_host = to_device


class Kernel:
    """Decodes by the plan; ``broken`` changes the words."""

    def __init__(self, memory: Memory, plan, broken) -> None:
        self.memory, self.plan, self.broken = memory, plan, broken

    def bind(self, packed, out):
        for array in (*packed.values(), out["weight"]):
            assert isinstance(array, OnStream)
            assert array.stream == 77
        buffer = out["weight"].buffer

        def call():
            arrays = {name: array.buffer.numpy() for name, array in packed.items()}
            dense = self.plan.dense(self.plan.packing.unpack(arrays))
            words = self.broken(self.plan.target.pack(dense)["weight"].copy(), buffer.numpy())
            self.memory.to_device(0, buffer.view.pointer, words.ctypes.data, words.nbytes)

        return call


@pytest.fixture
def clock(monkeypatch):
    @contextmanager
    def own_stream(ordinal=0):
        yield 77

    seen = SimpleNamespace(calls=0)

    def time_calls(calls, stream, *, repeats):
        seen.calls = len(calls)
        return Timing(5.0, 4.0, 6.0, len(calls), repeats)

    monkeypatch.setattr(timing, "own_stream", own_stream)
    monkeypatch.setattr(timing, "wait_for", lambda stream: None)
    monkeypatch.setattr(timing, "time_calls", time_calls)
    monkeypatch.setattr(tuning, "ROTATED_BYTES", 10**6)
    return seen


def measured(broken=lambda words, before: words, weight="nf4"):
    plan = ladder.schedule(ladder.dequantize(N, K, weight=ladder.types[weight].grouped(64)))
    memory = Memory()
    return DecodeMeasurer(memory, 0, lambda plan: Kernel(memory, plan, broken))(plan)


def test_right_numbers_are_timed(clock) -> None:
    answer = measured()
    assert answer.us == 5.0
    assert 0 < answer.error < 1e-3
    assert clock.calls >= tuning.LEAST_LAUNCHES


@pytest.mark.parametrize("where", [0, -1])
def test_wrong_or_missing_numbers_are_not_timed(clock, where: int) -> None:
    """The last block is of rows that only repeat others: they are looked at, too."""

    def broken(words, before):
        assert (before == POISON).all() or clock.calls == 0
        words[where, 0] = before[where, 0]
        return words

    answer = measured(broken)
    assert math.isnan(answer.us)
    assert not answer.error < 1e-3
    assert clock.calls == 0


def test_numbers_off_by_a_bit_in_the_middle_are_not_timed(clock) -> None:
    answer = measured(lambda words, before: words ^ np.uint32(0x0100_0100))
    assert math.isnan(answer.us)
    assert answer.error > module.BAR


def test_measuring_ends_with_its_processes(clock, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path))
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    monkeypatch.setattr(module, "check_compiler", lambda settings: None)
    monkeypatch.setattr(tuning, "this_machine", lambda *_: SimpleNamespace(place="here"))
    with gpu_measure(ladder.devices["h200"]) as measure:
        assert measure.device is ladder.devices["h200"]
        assert set(measure.others) == {"dequantize"}
