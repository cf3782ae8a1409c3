"""The measurer for a CUDA device: poisoned outputs, float64, then a graph over copies of the weight that outgrow the L2.

Each step of docs/measuring.md is kept: weights come from memory (copies of more than 300 MB are read in turn), launches are
captured in a CUDA graph of several milliseconds, medians of events are taken, the output is filled with NaN before the
launch that is checked and again before the graph, whose last output is checked, too.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ladder.errors import LaunchError, TuningError
from ladder.runtime import timing
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.driver import Driver, cuda_driver
from ladder.runtime.emulate import poisoned
from ladder.runtime.error_bar import error_bar
from ladder.runtime.kernel import Bound, Kernel
from ladder.runtime.packed import Packed
from ladder.runtime.tuning.kernels import load_kernel
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.operands import Inputs, Weights, relative_error
from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.record import Machine
from ladder.runtime.tuning.worker import Make, TransientError
from ladder.scheduler.tuned import packing_identity
from ladder.settings import Settings
from ladder.ttile import Device

#: bytes of weights that one graph reads in turn: five times the L2 cache of an H200
ROTATED_BYTES = 300 * 10**6
LEAST_COPIES = 2
MOST_COPIES = 512
#: microseconds that a graph takes, about; next to it the gap before its first kernel is nothing
GRAPH_US = 4000.0
LEAST_LAUNCHES = 16
#: replays that count: longer together than the clock takes to rise from rest
REPEATS = 15

#: from so many tokens on, power draw pulls the clock down, and a pause before each replay lets it recover
IDLE_TOKENS = 256
IDLE_S = 0.04

#: what the driver and the CUDA runtime say where memory is short, the device is busy, or it fell off
TRANSIENT = ("OUT_OF_MEMORY", "MemoryAllocation", "UNAVAILABLE", "DevicesUnavailable", "NO_DEVICE")

Load = Callable[[Candidate], Kernel]


def gpu_measurer(settings: Settings, folder: Path | None, ordinal: int) -> Make:
    """What a measuring process runs; see :class:`GpuMeasurer`."""
    return partial(_made, settings, folder, ordinal)


def _made(settings: Settings, folder: Path | None, ordinal: int) -> GpuMeasurer:
    return GpuMeasurer(
        cuda_driver(), ordinal, lambda candidate: load_kernel(candidate, folder, settings)
    )


class GpuMeasurer:
    """Measures candidates on one device; keeps the weights of the last operator there.

    Args:
        driver: of the device.
        ordinal: its number.
        load: makes a kernel of a candidate.
    """

    def __init__(self, driver: Driver, ordinal: int, load: Load) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._load = load
        self._weights: tuple[str, Weights, list[Packed]] | None = None
        self._inputs: tuple[Problem, Inputs] | None = None

    def __call__(self, candidate: Candidate) -> Measured:
        """See :class:`~ladder.runtime.tuning.measure.Measurer`.

        Raises:
            TransientError: memory or the device is not to be had.
            LadderError: the kernel cannot be loaded or launched.
        """
        try:
            kernel = self._load(candidate)
            weights, copies = self._packed(candidate, kernel)
            return self._measure(candidate, kernel, weights, copies)
        except LaunchError as error:
            if any(word in error.what for word in TRANSIENT):
                self.close()
                raise TransientError(error.what, at=error.at, hint=error.hint) from error
            raise

    def close(self) -> None:
        """Free the device's memory."""
        self._weights = self._inputs = None

    def _packed(self, candidate: Candidate, kernel: Kernel) -> tuple[Weights, list[Packed]]:
        """The weight on the host, and its rotated copies on the device; made once for all plans of an operator."""
        key = packing_identity(candidate.plan.packing)
        if self._weights is None or self._weights[0] != key:
            self.close()  # before the next one needs the memory
            weights = Weights.random(candidate.problem.op)
            packed = Packed(kernel.packing, weights.pack(candidate.plan.packing))
            count = math.ceil(ROTATED_BYTES / max(1, packed.nbytes))
            count = min(MOST_COPIES, max(LEAST_COPIES, count))
            copies = [self._copy(packed) for _ in range(count)]
            self._weights = key, weights, copies
        return self._weights[1], self._weights[2]

    def _copy(self, packed: Packed) -> Packed:
        fresh = Packed(
            packed.packing, packed.numpy()
        )  # a packed weight remembers its one copy on a device
        return fresh.to(f"cuda:{self._ordinal}", driver=self._driver)

    def _inputs_of(self, problem: Problem, weights: Weights) -> Inputs:
        if self._inputs is None or self._inputs[0] != problem:
            self._inputs = problem, Inputs.random(problem.op, weights)
        return self._inputs[1]

    def _measure(
        self, candidate: Candidate, kernel: Kernel, weights: Weights, copies: list[Packed]
    ) -> Measured:
        op = candidate.problem.op
        inputs = self._inputs_of(candidate.problem, weights)
        x = self._buffer(inputs.x)
        poison = poisoned(np.empty((op.m or 0, op.out_n), op.stored.dtype))
        bias, x_scale, residual = (
            None if a is None else self._buffer(a)
            for a in (inputs.bias, inputs.x_scale, inputs.residual)
        )
        y = self._buffer(poison)
        with timing.own_stream(self._ordinal) as stream:
            given = timing.OnStream(x, stream)
            calls = [kernel.bind(given, packed, x_scale, bias, y, residual) for packed in copies]
            calls[0]()
            timing.wait_for(stream)
            error = relative_error(y.numpy(), inputs.exact)
            if not error <= error_bar(op):
                return Measured(math.nan, error)
            us = self._time(candidate, calls, y, poison, stream)
            again = relative_error(y.numpy(), inputs.exact)
        return Measured(us, float(np.maximum(error, again)))  # NaN if either is

    def _time(
        self, candidate: Candidate, calls: list[Bound], y: DeviceBuffer, poison: Any, stream: int
    ) -> float:
        for call in calls:  # loads and prepares what a capture may not; weights are no longer fresh
            call()
        timing.wait_for(stream)
        self._driver.to_device(self._ordinal, y.view.pointer, poison.ctypes.data, poison.nbytes)
        wanted = max(LEAST_LAUNCHES, GRAPH_US / max(candidate.estimate_us, 1.0))
        rounds = math.ceil(wanted / len(calls))
        idle = IDLE_S if (candidate.problem.op.m or 0) >= IDLE_TOKENS else 0.0
        found = timing.time_calls(calls * rounds, stream, repeats=REPEATS, idle_s=idle)
        return found.median_us

    def _buffer(self, array: Any) -> DeviceBuffer:
        return DeviceBuffer.of(self._driver, self._ordinal, array)


def this_machine(device: Device, ordinal: int, toolkit: str, build: str) -> Machine:
    """The GPU of this machine, for measuring plans of a device.

    Args:
        device: whose plans are measured.
        ordinal: number of the GPU.
        toolkit: the CUDA compiler of the kernels.
        build: see :func:`~ladder.runtime.tuning.kernels.build_of`.

    Raises:
        LaunchError: there is no GPU.
        TuningError: it is not of the device's compute capability: what was measured would be of another GPU.
    """
    driver = cuda_driver()
    count = driver.device_count()
    if ordinal >= count:
        raise LaunchError(
            f"there is no GPU {ordinal}", at="--gpu", hint=f"{count} GPUs are there, from 0 on"
        )
    found = driver.compute_capability(ordinal)
    gpu = driver.device_name(ordinal)
    if found != device.capability:
        raise TuningError(
            f"GPU {ordinal} is {gpu} of compute capability {found[0]}.{found[1]}, plans are for"
            f" {device.name} of {device.capability[0]}.{device.capability[1]}",
            at="ladder tune",
            hint="name the device of this machine: --device, see `ladder devices`",
        )
    place = f"{socket.gethostname()}-{timing.bus_id(ordinal)}"
    return Machine(gpu, place, driver.version(), toolkit, build)
