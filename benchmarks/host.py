"""What a call costs the host, and whether it may be captured in a CUDA graph by torch and by the runtime itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ladder.runtime.kernel import Kernel
    from ladder.runtime.packed import Packed

#: calls between two synchronisations: few enough for the launch queue, so that the host never waits for the GPU
BURST = 200
BURSTS = 25


def host_us(call: Callable[[], Any]) -> float:
    """Median microseconds of host time of one call."""
    found = []
    for _ in range(BURSTS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BURST):
            call()
        found.append(1e6 * (time.perf_counter() - start) / BURST)
    torch.cuda.synchronize()
    return statistics.median(found)


def measure(kernel: Kernel, x: Any, packed: Packed, y: Any) -> dict[str, Any]:
    """Host time of a bound call and of a checked call with ``out=``, and both ways to capture."""
    bound = kernel.bind(x, packed, out=y)
    found = {
        "bound_call_us": round(host_us(bound), 2),
        "call_with_out_us": round(host_us(lambda: kernel(x, packed, out=y)), 2),
        "torch_mm_us": round(host_us(_mm(x, y)), 2),
    }
    wanted = y.clone()
    return {
        **found,
        "torch_graph_repeats_the_call": _torch_graph(bound, y, wanted),
        "runtime_graph_us": _runtime_graph(bound, y, wanted),
    }


def _mm(x: Any, y: Any) -> Callable[[], Any]:
    """The yardstick: torch's own call with ``out=`` on operands so small that the GPU keeps up."""
    weight = torch.zeros((256, 256), dtype=x.dtype, device=x.device)
    some = torch.zeros((1, 256), dtype=x.dtype, device=x.device)
    out = torch.zeros((1, 256), dtype=y.dtype, device=x.device)
    return lambda: torch.mm(some, weight, out=out)


def _torch_graph(call: Callable[[], Any], y: Any, wanted: Any) -> bool:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    y.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return bool(torch.equal(y, wanted))


def _runtime_graph(call: Callable[[], Any], y: Any, wanted: Any) -> float | None:
    """Microseconds of a launch by the runtime's own timing, which captures; None where the result differs."""
    from ladder.runtime.timing import time_calls

    stream = torch.cuda.Stream()
    y.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        timing = time_calls([call] * 50, stream.cuda_stream, repeats=10)
    torch.cuda.synchronize()
    return round(timing.median_us, 3) if torch.equal(y, wanted) else None
