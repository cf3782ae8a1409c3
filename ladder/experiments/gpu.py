"""The measurers for a CUDA device: that of tuning for products, and one for kernels that decode a weight into memory.

As with tuning, a kernel runs in a process of its own, and a time counts only where the numbers over poisoned memory were right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ladder.experiments.measured import Measure
from ladder.graph import MatMul
from ladder.runtime import timing
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.driver import Driver, cuda_driver
from ladder.runtime.packed import Packed
from ladder.runtime.timing import OnStream
from ladder.runtime.tuning import gpu
from ladder.runtime.tuning.database import tuned
from ladder.runtime.tuning.kernels import (
    Planned,
    build_by,
    build_of,
    kernels_from,
    load_kernel,
    on_disk,
)
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.operands import Weights, relative_error
from ladder.runtime.tuning.worker import Failed, Make, Worker
from ladder.scheduler.dequantize_plan import DequantizePlan
from ladder.settings import Settings
from ladder.ttile import Device

#: seconds that one kernel may take to be measured
LIMIT_S = 300.0
#: words of two NaNs, in float16 and in bfloat16
POISON = 0x7FFF7FFF
#: the most that a number may be off: a value of the table and the result are rounded once each, to bfloat16 at worst
BAR = 2.0**-7


@contextmanager
def gpu_measure(
    device: Device,
    ordinal: int = 0,
    folder: Path | None = None,
    jobs: int = 1,
    limit_s: float = LIMIT_S,
) -> Iterator[Measure]:
    """What measures points of a device on a GPU of this machine; its processes end with the context.

    Args:
        device: whose points.
        ordinal: number of the GPU.
        folder: of kernels that ``--build`` wrote; None compiles them here.
        jobs: processes that compile.
        limit_s: seconds that one kernel may take to be measured.

    Raises:
        LaunchError: there is no GPU.
        TuningError: it is of another kind than the device, or the folder holds no kernels.
        LadderError: no folder was given, and nothing can be compiled here.
    """
    settings = Settings.read()
    toolkit, build = build_of(settings, folder)
    machine = gpu.this_machine(device, ordinal, toolkit, build)
    lock = tuned().journal(device.name).path.parent / "locks" / f"gpu-{machine.place}.lock"
    with on_disk(settings) as stored, closing(kernels_from(folder, stored, jobs)) as kernels:
        makes = (part(stored, folder, ordinal) for part in (gpu.gpu_measurer, decode_measurer))
        products, decoding = (Worker(make, limit_s, lock) for make in makes)
        with closing(products), closing(decoding):
            remark = _other_source(toolkit, build)
            yield Measure(products, {"dequantize": decoding}, device, kernels, remark)


def _other_source(toolkit: str, build: str) -> str:
    """What rows say of kernels that were compiled by another source than that which makes the rows."""
    here = build_by(toolkit)
    return "" if build == here else f"kernels of build {build}, the source here is {here}"


def decode_measurer(settings: Settings, folder: Path | None, ordinal: int) -> Make:
    """What a measuring process runs; see :class:`DecodeMeasurer`."""
    return partial(_made, settings, folder, ordinal)


def _made(settings: Settings, folder: Path | None, ordinal: int) -> DecodeMeasurer:
    load = partial(load_kernel, folder=folder, settings=settings)
    return DecodeMeasurer(cuda_driver(), ordinal, load)


class DecodeMeasurer:
    """Measures kernels that decode a weight into memory: codes of rotated copies, one dense weight that outgrows the L2.

    Args:
        driver: of the device.
        ordinal: its number.
        load: a :class:`~ladder.experiments.lowering.Kernel` -> what is launched.
    """

    def __init__(self, driver: Driver, ordinal: int, load: Any) -> None:
        self._driver, self._ordinal, self._load = driver, ordinal, load

    def __call__(self, asked: Planned) -> Measured | Failed:
        """Check what the kernel writes, then time it.

        Raises:
            LadderError: the kernel cannot be loaded or launched.
        """
        kernel = self._load(asked)
        plan: DequantizePlan = asked.plan
        op = plan.op
        weights = Weights.random(MatMul(None, op.n, op.k, op.compute, op.weight, op.compute))
        host = weights.pack(plan.packing)
        count = math.ceil(gpu.ROTATED_BYTES / plan.packing.nbytes)
        count = min(gpu.MOST_COPIES, max(gpu.LEAST_COPIES, count))
        shape, dtype = plan.target.shapes()["weight"]
        with timing.own_stream(self._ordinal) as stream:
            out = self._there({"weight": np.full(shape, POISON, dtype)}, plan.target, stream)
            copies = [self._there(host, plan.packing, stream) for _ in range(count)]
            calls = [kernel.bind(packed, out) for packed in copies]
            calls[0]()
            timing.wait_for(stream)
            error = self._error(plan, weights, out)
            if not error <= BAR:
                return Measured(math.nan, error)
            for call in calls:
                call()
            timing.wait_for(stream)
            wanted = max(gpu.LEAST_LAUNCHES, gpu.GRAPH_US / plan.cost().us)
            rounds = math.ceil(wanted / len(calls))
            found = timing.time_calls(calls * rounds, stream, repeats=gpu.REPEATS)
        return Measured(found.median_us, error)

    def _there(self, arrays: Any, packing: Any, stream: int) -> Packed:
        """Arrays on the device, whose work is done on our stream."""
        put = partial(DeviceBuffer.of, self._driver, self._ordinal)
        return Packed(packing, {name: OnStream(put(arrays[name]), stream) for name in arrays})

    def _error(self, plan: DequantizePlan, weights: Weights, out: Packed) -> float:
        """Relative error of the rows that differ; NaN where another row is not what it repeats."""
        words = {"weight": out["weight"].buffer.numpy()}
        codes = np.asarray(plan.target.unpack_arrays(words)["codes"])  # NaNs are not refused here
        found = codes.astype(np.uint16).view(plan.op.compute.dtype)
        some = weights.some.dequantize()
        rows = len(some)
        for first in range(rows, plan.op.n, rows):
            part = found[first : first + rows]
            if not np.array_equal(part, found[: len(part)]):
                return math.nan
        return relative_error(found[:rows], some)
