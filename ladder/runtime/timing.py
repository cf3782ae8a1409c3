"""Time calls on a GPU: captured in a CUDA graph, replayed, measured by events, so that the host takes no part.

Weights are rotated: one graph calls the kernel over copies that together are larger than the L2 cache, as the layers of a
model are, so that every call reads its weights from device memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ladder.errors import LaunchError
from ladder.runtime.arrays import ArrayView, Library
from ladder.runtime.buffer import Buffers, DeviceBuffer
from ladder.runtime.driver import INSTALL
from ladder.runtime.packed import Packed

if TYPE_CHECKING:
    from ladder.runtime.kernel import Kernel

#: bytes of weights that one graph reads: more than twice the largest L2 cache of the shipped devices
ROTATED_BYTES = 256 * 2**20
MOST_COPIES = 64
LEAST_COPIES = 4


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one call: the median, the least and the most over the repeats of a graph."""

    median_us: float
    least_us: float
    most_us: float
    calls: int
    repeats: int

    def __str__(self) -> str:
        return f"{self.median_us:.2f} us ({self.least_us:.2f} .. {self.most_us:.2f})"


class OnStream:
    """A device buffer that asks for its work to be done on a stream of ours.

    Args:
        buffer: the memory, kept alive.
        stream: handle of the stream.
    """

    array_library: ClassVar[Library]

    def __init__(self, buffer: DeviceBuffer, stream: int) -> None:
        self.buffer = buffer
        self.view = buffer.view
        self.stream = stream


class _StreamBuffers(Buffers):
    """:class:`~ladder.runtime.arrays.Library` of :class:`OnStream`."""

    def stream(self, view: ArrayView) -> int:
        """See :class:`Library`; the stream that was asked for."""
        owner: OnStream = view.owner
        return owner.stream


OnStream.array_library = _StreamBuffers()


@contextmanager
def own_stream(ordinal: int = 0) -> Iterator[int]:
    """Handle of a stream of a device that does not wait for the default stream.

    Raises:
        LaunchError: there is no GPU.
    """
    cuda = _runtime()
    _checked(cuda, cuda.cudaSetDevice(ordinal))
    stream = _checked(cuda, cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
    try:
        yield int(stream)
    finally:
        _checked(cuda, cuda.cudaStreamDestroy(stream))


def bus_id(ordinal: int) -> str:
    """Where a device sits on this host, for example ``0000-18-00.0``.

    Raises:
        LaunchError: there is no such device.
    """
    cuda = _runtime()
    found = _checked(cuda, cuda.cudaDeviceGetPCIBusId(16, ordinal))
    raw = found if isinstance(found, bytes) else str(found).encode()
    # what follows the first 0 of the buffer is not the text's
    return raw.split(b"\0")[0].decode().replace(":", "-")


def wait_for(stream: int) -> None:
    """Wait for the work of a stream.

    Raises:
        LaunchError: some of it failed.
    """
    cuda = _runtime()
    _checked(cuda, cuda.cudaStreamSynchronize(stream))


def time_kernel(
    kernel: Kernel, x: NDArray[Any], packed: Packed, *, repeats: int = 20, ordinal: int = 0
) -> Timing:
    """Time a kernel for activations ``x [m, k]`` and rotated copies of a packed weight.

    Raises:
        LaunchError: there is no GPU, or it refuses the kernel.
    """
    driver = kernel.launcher.driver
    op = kernel.plan.op
    copies = min(MOST_COPIES, max(LEAST_COPIES, ROTATED_BYTES // max(1, packed.nbytes)))
    host = packed.numpy()
    bits = {name: np.ascontiguousarray(array) for name, array in host.items()}
    with own_stream(ordinal) as stream:
        weights = [
            Packed(kernel.packing, bits).to(f"cuda:{ordinal}", driver=driver) for _ in range(copies)
        ]
        given = OnStream(DeviceBuffer.of(driver, ordinal, x), stream)
        y = DeviceBuffer(driver, ordinal, (*x.shape[:-1], op.out_n), op.stored.dtype.name)
        bias = DeviceBuffer.of(driver, ordinal, np.zeros(op.n, op.out.dtype)) if op.bias else None
        ones = np.ones(x.shape[:-1], np.float32)
        x_scale = DeviceBuffer.of(driver, ordinal, ones) if op.activation_scale else None
        zeros = np.zeros((*x.shape[:-1], op.out_n), op.out.dtype)
        residual = DeviceBuffer.of(driver, ordinal, zeros) if op.residual else None
        calls = [kernel.bind(given, weight, x_scale, bias, y, residual) for weight in weights]
        for call in calls:
            call()  # loads the machine code, which a capture may not
        wait_for(stream)
        return time_calls(calls, stream, repeats=repeats)


def time_calls(
    calls: Sequence[Callable[[], Any]], stream: int, *, repeats: int = 20, idle_s: float = 0.0
) -> Timing:
    """Time calls that launch on ``stream``: microseconds of one of them, when all run one after the other.

    Args:
        calls: captured in this order; each has been made once before.
        stream: handle.
        repeats: replays of the graph that count.
        idle_s: seconds of rest before each replay, for a device whose clock sinks under load.

    Raises:
        LaunchError: the calls cannot be captured.
    """
    cuda = _runtime()
    mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    _checked(cuda, cuda.cudaStreamBeginCapture(stream, mode))
    try:
        for call in calls:
            call()
    finally:
        graph = _checked(cuda, cuda.cudaStreamEndCapture(stream))
    program = _checked(cuda, cuda.cudaGraphInstantiate(graph, 0))
    before, after = (_checked(cuda, cuda.cudaEventCreate()) for _ in range(2))
    found = []
    for repeat in range(repeats + 2):
        time.sleep(idle_s)
        _checked(cuda, cuda.cudaEventRecord(before, stream))
        _checked(cuda, cuda.cudaGraphLaunch(program, stream))
        _checked(cuda, cuda.cudaEventRecord(after, stream))
        _checked(cuda, cuda.cudaEventSynchronize(after))
        if repeat >= 2:  # the first replays upload the graph and raise the clock
            found.append(
                1e3 * float(_checked(cuda, cuda.cudaEventElapsedTime(before, after))) / len(calls)
            )
    for event in (before, after):
        _checked(cuda, cuda.cudaEventDestroy(event))
    _checked(cuda, cuda.cudaGraphExecDestroy(program))
    _checked(cuda, cuda.cudaGraphDestroy(graph))
    return Timing(statistics.median(found), min(found), max(found), len(calls), repeats)


def _runtime() -> Any:
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise LaunchError(
            f"the CUDA bindings for Python are missing: {error}",
            at="import cuda.bindings",
            hint=INSTALL,
        ) from error
    return runtime


def _checked(cuda: Any, result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != cuda.cudaError_t.cudaSuccess:
        _, words = cuda.cudaGetErrorString(status)
        raise LaunchError(f"{status.name}: {words.decode()}", at="timing")
    return values[0] if values else None
