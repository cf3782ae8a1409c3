"""The measurer of a GPU, with a driver whose memory is the host's: what is checked, what is timed, what is given back."""

from __future__ import annotations

import ctypes
import gc
import math
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import ladder
from ladder.errors import LaunchError, TuningError
from ladder.runtime import timing
from ladder.runtime.packed import Packed
from ladder.runtime.timing import OnStream, Timing
from ladder.runtime.tuning import gpu as module
from ladder.runtime.tuning.gpu import GpuMeasurer, this_machine
from ladder.runtime.tuning.problem import Problem
from ladder.runtime.tuning.worker import TransientError

COPIES = 5


class Memory:
    """Device memory that is the host's; ``limit`` bytes of it."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.blocks: dict[int, np.ndarray] = {}
        self.limit = limit
        self.most = 0

    def allocate(self, device: int, nbytes: int) -> int:
        if self.used + nbytes > self.limit:
            raise LaunchError("CUDA_ERROR_OUT_OF_MEMORY: out of memory", at="cuMemAlloc")
        block = np.full(max(nbytes, 1) + 64, 0xA5, np.uint8)
        pointer = block.ctypes.data + (-block.ctypes.data % 64)
        self.blocks[pointer] = block
        self.most = max(self.most, self.used)
        return pointer

    @property
    def used(self) -> int:
        return sum(block.nbytes for block in self.blocks.values())

    def free(self, device: int, pointer: int) -> None:
        del self.blocks[pointer]

    def to_device(self, device: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def to_host(self, device: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)


class Kernel:
    """Computes by the operator's meaning; ``broken`` changes the y of a call."""

    def __init__(self, memory: Memory, plan, broken=lambda y, call: y) -> None:
        self.memory = memory
        self.plan = plan
        self.packing = plan.packing
        self.broken = broken
        self.calls: list[int] = []

    def pack(self, weights):
        return Packed(self.packing, self.packing.pack(weights))

    def bind(self, x, packed, _x_scale, bias, out, residual=None):
        assert isinstance(x, OnStream)
        assert type(x).array_library.view(x).dtype == self.plan.op.activation.name
        assert type(x).array_library.stream(type(x).array_library.view(x)) == 77
        weights = self.packing.unpack(packed.numpy())

        def call():
            self.calls.append(id(packed))
            added, shift = (None if a is None else a.numpy() for a in (residual, bias))
            exact = self.plan.op.reference(x.buffer.numpy(), weights, shift, residual=added)
            before = out.numpy()
            y = exact.astype(self.plan.op.out.dtype)
            y = np.ascontiguousarray(self.broken(y.copy(), len(self.calls)))
            y = np.where(np.isnan(y.astype(np.float32)), before, y).astype(before.dtype)
            self.memory.to_device(0, out.view.pointer, y.ctypes.data, y.nbytes)

        return call


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A stream and a clock that need no GPU; ``timed`` lists what was captured."""

    @contextmanager
    def own_stream(ordinal=0):
        yield 77

    seen = SimpleNamespace(timed=[], idle=[])

    def time_calls(calls, stream, *, repeats, idle_s):
        assert stream == 77
        seen.timed.append(len(calls))
        seen.idle.append(idle_s)
        calls[-1]()
        return Timing(12.5, 12.0, 13.0, len(calls), repeats)

    monkeypatch.setattr(timing, "own_stream", own_stream)
    monkeypatch.setattr(timing, "wait_for", lambda stream: None)
    monkeypatch.setattr(timing, "time_calls", time_calls)
    monkeypatch.setattr(module, "MOST_COPIES", COPIES)
    return seen


def candidate_of(m=2, rank=0, **more):
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    op = ladder.matmul(m=m, n=64, k=256, **{"activation": "float16", "weight": weight, **more})
    return Problem(op, ladder.devices["h200"]).candidates(rank + 1)[rank]


def measured(memory: Memory, candidate, broken=lambda y, call: y):
    kernel = Kernel(memory, candidate.plan, broken)
    measurer = GpuMeasurer(memory, 0, lambda _: kernel)
    found = measurer(candidate)
    measurer.close()
    return found, kernel


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"bias": True},
        {"activation": "bfloat16", "out": "bfloat16"},
        {"out": "float32"},
        {"weight": "mxfp4"},
        {"bias": True, "epilogue": ("silu_gate", "residual")},
    ],
    ids=str,
)
def test_a_right_kernel_is_timed(memory, clock, more):
    found, kernel = measured(memory, candidate_of(**more))
    assert found.us == 12.5
    assert 0 <= found.error < 5e-3
    assert clock.idle == [0.0]
    # weights come from memory: copies are read in turn, many times
    assert len(set(kernel.calls)) == COPIES
    assert clock.timed[0] >= module.GRAPH_US / candidate_of(**more).estimate_us
    assert clock.timed[0] % COPIES == 0


def test_memory_is_given_back(memory):
    measured(memory, candidate_of())
    gc.collect()
    assert memory.blocks == {}


def poison_left(y, call):
    y[-1, -1] = np.nan  # the fake kernel leaves what it computed as NaN as it was
    return y


BROKEN = {
    "never written": poison_left,
    "wrong": lambda y, call: y * 1.01,
    "of another row": lambda y, call: np.roll(y, 16, axis=1),
    "zero": lambda y, call: y * 0,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_kernel_is_not_timed(memory, clock, name):
    found, kernel = measured(memory, candidate_of(), BROKEN[name])
    assert math.isnan(found.us)
    assert not found.error <= 1e-3
    assert clock.timed == []
    assert len(kernel.calls) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_that_fails_only_in_the_graph_is_found(memory, name):
    late = lambda y, call: BROKEN[name](y, call) if call > 1 + COPIES else y  # noqa: E731
    found, _ = measured(memory, candidate_of(), late)
    assert not found.error <= 1e-3


def test_plans_of_an_operator_share_the_packed_weight(memory):
    first, second = candidate_of(rank=0), candidate_of(rank=1)
    kernels = {c.digest: Kernel(memory, c.plan) for c in (first, second)}
    measurer = GpuMeasurer(memory, 0, lambda c: kernels[c.digest])
    measurer(first)
    copies = measurer._weights[2]
    measurer(second)
    assert measurer._weights[2] is copies
    other = candidate_of(activation="bfloat16", out="bfloat16")
    kernels[other.digest] = Kernel(memory, other.plan)
    measurer(other)
    gc.collect()
    assert memory.most < 3 * sum(c.nbytes for c in copies)  # the first weight was freed


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_out_of_memory_is_transient_and_frees_what_was_taken(memory, share):
    """C63: an allocator that raises."""
    measured(memory, candidate_of())
    memory.limit = int(memory.most * share)
    gc.collect()
    with pytest.raises(TransientError, match="OUT_OF_MEMORY"):
        measured(memory, candidate_of())
    gc.collect()
    assert memory.blocks == {}


def test_another_launch_error_is_the_kernels_own(memory):
    def load(_):
        raise LaunchError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal address", at="cuLaunchKernelEx")

    with pytest.raises(LaunchError, match="ILLEGAL") as caught:
        GpuMeasurer(memory, 0, load)(candidate_of())
    assert not isinstance(caught.value, TransientError)


def test_many_tokens_get_a_rest(memory, clock):
    measured(memory, candidate_of(m=module.IDLE_TOKENS))
    assert clock.idle == [module.IDLE_S]


class Driver:
    def version(self):
        return "13.0"

    def device_count(self):
        return 1

    def device_name(self, device):
        return "NVIDIA H200"

    def compute_capability(self, device):
        return (9, 0)


def test_the_machine_is_the_gpu_at_hand(monkeypatch):
    monkeypatch.setattr(module, "cuda_driver", Driver)
    monkeypatch.setattr(timing, "bus_id", lambda ordinal: f"0000-0{ordinal}-00.0")
    machine = this_machine(ladder.devices["h200"], 0, "nvrtc 1", "b")
    assert (machine.gpu, machine.driver) == ("NVIDIA H200", "13.0")
    assert machine.place.endswith("-0000-00-00.0")
    with pytest.raises(LaunchError, match="no GPU 1"):
        this_machine(ladder.devices["h200"], 1, "nvrtc 1", "b")


def test_plans_of_another_device_are_not_measured(monkeypatch):
    """C69: what one GPU measured is not written down as another's."""
    monkeypatch.setattr(module, "cuda_driver", Driver)
    with pytest.raises(TuningError, match=r"compute capability 9.0, plans are for a100 of 8.0"):
        this_machine(ladder.devices["a100"], 0, "nvrtc 1", "b")


@pytest.mark.gpu
def test_a_real_kernel_is_timed(tmp_path, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.undo()
    from ladder.runtime.driver import cuda_driver
    from ladder.runtime.tuning.kernels import load_kernel
    from ladder.settings import Settings

    settings = Settings(cache_dir=str(tmp_path))
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    for kind in ("float16", "bfloat16"):
        op = ladder.matmul(m=16, n=1024, k=4096, activation=kind, weight=weight, out=kind)
        measurer = GpuMeasurer(cuda_driver(), 0, lambda c: load_kernel(c, None, settings))
        for candidate in Problem(op, ladder.devices["h200"]).candidates(2):
            found = measurer(candidate)
            assert 1 < found.us < 200
            assert found.error < 5e-3
        measurer.close()
