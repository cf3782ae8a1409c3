"""Timing by graphs: what is captured, and how a time per call is made of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import ladder
from ladder.errors import LaunchError
from ladder.runtime import timing


class FakeCuda:
    """Records what is asked of the CUDA runtime; the replays of a graph take the milliseconds that it was given."""

    def __init__(self, milliseconds: list[float], *, refuse: str = "") -> None:
        self.cudaError_t = SimpleNamespace(cudaSuccess=SimpleNamespace(name="cudaSuccess"))
        self.cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
        self.times = iter(milliseconds)
        self.log: list[str] = []
        self.refuse = refuse
        self.failed = SimpleNamespace(name="cudaErrorUnknown")

    def __getattr__(self, name: str):
        def call(*_arguments: object):
            self.log.append(name)
            if name == self.refuse:
                return (self.failed,)
            if name == "cudaGetErrorString":
                return self.cudaError_t.cudaSuccess, b"no luck"
            if name == "cudaDeviceGetPCIBusId":
                return self.cudaError_t.cudaSuccess, b"0000:18:00.0\0\x07\0"
            if name == "cudaEventElapsedTime":
                return self.cudaError_t.cudaSuccess, next(self.times)
            return self.cudaError_t.cudaSuccess, len(self.log)

        return call


def fake(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeCuda:
    monkeypatch.setattr(timing, "_runtime", lambda: cuda)
    return cuda


def test_the_median_of_the_replays_is_shared_out_over_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = fake(monkeypatch, FakeCuda([0.3, 0.1, 0.2]))
    ran: list[str] = []
    calls = [lambda: ran.append("a"), lambda: ran.append("b")]
    found = timing.time_calls(calls, 7, repeats=3)
    assert (found.median_us, found.least_us, found.most_us) == pytest.approx((100, 50, 150))
    assert (found.calls, found.repeats) == (2, 3)
    assert ran == ["a", "b"]
    begin, end = cuda.log.index("cudaStreamBeginCapture"), cuda.log.index("cudaStreamEndCapture")
    assert end == begin + 1
    assert cuda.log.count("cudaGraphLaunch") == 5  # two of them warm up


def test_the_place_of_a_device_is_a_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver fills a buffer, in which anything may follow the text: seen on an H200, where no lock could be made of it."""
    fake(monkeypatch, FakeCuda([]))
    assert timing.bus_id(0) == "0000-18-00.0"


def test_what_is_made_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = fake(monkeypatch, FakeCuda([1.0] * 3))
    timing.time_calls([lambda: None], 7, repeats=1)
    assert cuda.log.count("cudaEventDestroy") == cuda.log.count("cudaEventCreate") == 2
    assert cuda.log[-2:] == ["cudaGraphExecDestroy", "cudaGraphDestroy"]


def test_a_call_that_fails_ends_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = fake(monkeypatch, FakeCuda([]))

    def broken() -> None:
        raise LaunchError("broken")

    with pytest.raises(LaunchError, match="broken"):
        timing.time_calls([broken], 7)
    assert cuda.log[-1] == "cudaStreamEndCapture"


def test_an_error_of_the_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, FakeCuda([], refuse="cudaGraphInstantiate"))
    with pytest.raises(LaunchError, match="cudaErrorUnknown: no luck"):
        timing.time_calls([lambda: None], 7)


@pytest.mark.gpu
def test_more_work_takes_more_time(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    found = []
    for n in (1024, 16384):
        weight = ladder.types["int4"].grouped(128, scale="float16")
        op = ladder.matmul(m=1, n=n, k=4096, activation="float16", weight=weight)
        kernel = ladder.compile(ladder.schedule(op, device="h200"))
        rng = np.random.default_rng(0)
        q = ladder.quantize(rng.standard_normal((n, 4096), np.float32), weight)
        x = rng.standard_normal((1, 4096)).astype(np.float16)
        found.append(timing.time_kernel(kernel, x, kernel.pack(q), repeats=5))
    assert 0.5 < found[0].median_us < found[1].median_us < 1000
    # 16384 x 4096 weights of 4 bits cannot be read faster than from memory that delivers 10 TB/s
    assert found[1].median_us > 16384 * 4096 / 2 / 10e12 * 1e6
