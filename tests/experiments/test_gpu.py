"""The measurer of kernels that decode a weight, with a driver whose memory is the host's."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import ladder
from ladder.experiments import gpu as module
from ladder.experiments.gpu import POISON, DecodeMeasurer, gpu_measure
from ladder.experiments.lowering import Kernel as Wanted
from ladder.runtime import timing
from ladder.runtime.timing import OnStream, Timing
from ladder.runtime.tuning import gpu as tuning
from ladder.runtime.tuning import kernels

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
    measurer = DecodeMeasurer(memory, 0, lambda wanted: Kernel(memory, wanted.plan, broken))
    return measurer(Wanted("dequantize", plan, plan.cost()))


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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A GPU that is a fake, and folders of this test."""
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path))
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    monkeypatch.setattr(tuning, "this_machine", lambda *_: SimpleNamespace(place="here"))
    return ladder.devices["h200"]


def test_measuring_ends_with_its_processes(here, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "check_compiler", lambda settings: None)
    with gpu_measure(here) as measure:
        assert measure.device is here
        assert set(measure.others) == {"dequantize"}
        assert isinstance(measure.kernels, kernels.Ahead)
        assert measure.remark == ""


@pytest.mark.parametrize(
    "build, remark",
    [
        (kernels.build_by("t"), ""),
        ("old t", f"kernels of build old t, the source here is {kernels.build_by('t')}"),
    ],
)
def test_a_folder_needs_no_compiler_and_says_of_which_source_it_is(
    here, tmp_path, monkeypatch, build, remark
) -> None:
    def none(settings):
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr(kernels, "check_compiler", none)
    monkeypatch.setattr(kernels, "toolchain_version", none)
    (tmp_path / kernels.INDEX).write_text(json.dumps({"toolkit": "t", "build": build}))
    with gpu_measure(here, 0, tmp_path) as measure:
        assert isinstance(measure.kernels, kernels.Brought)
        assert measure.remark == remark


FROM_A_FOLDER = """
import sys
from pathlib import Path

sys.modules["tvm"] = None  # an import of it fails
from ladder.experiments import Sweep, gpu, kernels_of
from ladder.runtime.tuning.kernels import load_kernel
from ladder.settings import Settings

import ladder

sweep = Sweep(
    shapes=[(64, 256)], weights=[ladder.types["int4"].grouped(64)], ms=[2], placements=["global"]
)
for wanted in kernels_of(sweep):
    kernel = load_kernel(wanted, Path(sys.argv[1]), Settings(cache_dir="off"))
    print(wanted.name, type(kernel).__name__, *kernel.variants[0].cubins)
"""


def test_kernels_of_a_folder_are_loaded_without_tvm(tmp_path, monkeypatch) -> None:
    pytest.importorskip("tvm")
    from ladder.cli.app import run

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "kernels"
    axes = ("--shapes", "64x256", "--weights", "int4:64", "--ms", "2", "--placements", "global")
    assert run(("experiment", *axes, "--build", str(folder), "--jobs", "1")) == 0
    command = [sys.executable, "-c", FROM_A_FOLDER, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "dequantize DequantizeKernel sm_90a",
        "matmul Kernel sm_90a",
    ]
