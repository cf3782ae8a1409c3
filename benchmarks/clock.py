"""Microseconds of a launch: calls captured in CUDA graphs, the graphs of one row replayed in turn, medians of events.

The host takes no part: before each measured replay the GPU is kept busy until the replay stands in its queue.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: launches of one graph, at least
LAUNCHES = 32
#: microseconds that one replay keeps the GPU busy, about: with more, power draw pulls the clock down within the replay
BUSY_US = 6000.0
#: operations a microsecond, about, of a product that is bound by the tensor cores
OPERATIONS_PER_US = 7e8
#: cycles that the GPU spins while the host queues a replay: about 0.1 ms
SPIN_CYCLES = 200_000
REPEATS = 7

#: from so many tokens on, power draw pulls the clock down, and a pause before each replay lets it recover
IDLE_TOKENS = 256
IDLE_SECONDS = 0.04

Call = Callable[[], Any]


@dataclass(frozen=True)
class Graph:
    """Captured launches; ``calls`` keeps the arrays alive whose addresses the graph holds."""

    graph: Any
    launches: int
    calls: tuple[Call, ...]


def launches_for(m: int, n: int, k: int) -> int:
    """Launches of one graph of a matmul, at least: fewer where a launch is long."""
    us = 2 * m * n * k / OPERATIONS_PER_US
    return max(1, min(LAUNCHES, math.ceil(BUSY_US / us)))


def capture(calls: Sequence[Call], least: int = LAUNCHES) -> Graph:
    """Capture the calls in order, several rounds of them where they are few.

    Every call is made once before: it loads machine code and makes workspaces, which a capture may not.
    """
    rounds = max(1, math.ceil(least / len(calls)))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            for _ in range(rounds):
                for call in calls:
                    call()
        finally:
            graph.capture_end()
    torch.cuda.synchronize()
    return Graph(graph, rounds * len(calls), tuple(calls))


def interleaved(
    graphs: Mapping[str, Graph], tokens: int, repeats: int = REPEATS
) -> dict[str, float]:
    """Median microseconds of one launch of each graph; replays alternate, so that all see the same clock."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for graph in graphs.values():
        graph.graph.replay()
    for _ in range(repeats):
        for name, graph in graphs.items():
            torch.cuda.synchronize()
            if tokens >= IDLE_TOKENS:
                time.sleep(IDLE_SECONDS)
            found[name].append(_replay(graph))
    return {name: statistics.median(times) for name, times in found.items()}


def _replay(graph: Graph) -> float:
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001 - torch has no public way to keep a stream busy
    before.record()
    graph.graph.replay()
    after.record()
    after.synchronize()
    return 1e3 * float(before.elapsed_time(after)) / graph.launches
