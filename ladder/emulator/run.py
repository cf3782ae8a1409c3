"""Run a kernel's listing on the CPU.

    report = run(listing, {"x": x, "w": w, "y": y, "m": 7}, grid=(4, 1, 1), block=128)

Every lane of every warp is executed; results are written into the argument arrays. A kernel that would read what nobody wrote,
race, deadlock or leave a buffer raises :class:`~ladder.emulator.report.Fault` even if its values come out right.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ladder.emulator.counters import Counters
from ladder.emulator.global_race import GlobalShadow
from ladder.emulator.order import Order
from ladder.emulator.program import DTYPES, Json
from ladder.emulator.report import Fault, Report
from ladder.emulator.schedule import SCHEDULES, Scheduler
from ladder.emulator.tma import BoundMap, TensorMap
from ladder.emulator.translate import Parameter, Translation, translate
from ladder.emulator.translate_scope import Options
from ladder.emulator.warp import Cluster, GlobalBuffer, Machine, Steps, Warp

#: CTAs that run at one time when they may wait for each other, as many as a mid-sized GPU holds
CONCURRENT = 128

Argument = npt.NDArray[Any] | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """Arguments of one CTA: values in the kernel's order, the CTA's place in the grid, and in its cluster."""

    arguments: tuple[Any, ...]
    block_x: int
    block_y: int
    block_z: int
    cluster_x: int
    cluster_y: int
    cluster_z: int
    rank_x: int
    rank_y: int
    rank_z: int
    rank: int
    ranks: int


def run(  # noqa: PLR0913  a launch has this many parts
    listing: Mapping[str, Json] | Translation,
    arguments: Mapping[str, Argument | TensorMap],
    grid: tuple[int, int, int],
    block: int | tuple[int, int, int],
    shared_bytes: int | None = None,
    *,
    schedule: str = "random",
    seed: int = 0,
    detect: bool = True,
    counters: bool = False,
    cluster: tuple[int, int, int] = (1, 1, 1),
) -> Report:
    """Run a kernel and write its results into the argument arrays.

    Args:
        listing: of :func:`ladder.codegen.listing.listing`, or a translation of one.
        arguments: by the kernel's parameter names; ``"A"`` also names ``"A_ptr"``. Arrays are C-contiguous; a tensor map
            names its array, which other arguments may share.
        grid: CTAs along x, y, z.
        block: threads of a CTA.
        shared_bytes: dynamic shared memory of the launch; checked against what the kernel declares.
        schedule: ``random``, ``eager`` (copies happen at once) or ``lazy`` (copies happen when waited for).
        seed: of the random schedule.
        detect: find races and unset values; without it only bounds, alignment and barriers are checked.
        counters: count instructions, conflicts and sectors.
        cluster: CTAs of a cluster along x, y, z.

    Raises:
        Fault: the kernel or the launch is wrong, or uses what the emulator does not know.
    """
    if schedule not in SCHEDULES:
        raise Fault(f"arguments: schedule {schedule!r}", hint=f"one of {', '.join(SCHEDULES)}")
    if not isinstance(listing, Translation):
        listing = _translated(listing, Options(detect=detect, counters=counters))
    shape = (block, 1, 1) if isinstance(block, int) else block
    _check_launch(listing, grid, cluster, shape, shared_bytes)
    values = _bind(listing, arguments)
    machine = Machine(
        shape,
        listing.allocations,
        listing.granule,
        detect,
        schedule,
        random.Random(seed),
        Counters() if counters else None,
    )
    runs = [0] * len(listing.histograms)
    with np.errstate(all="ignore"):
        _run_grid(listing, machine, values, grid, cluster, runs)
    _write_back(listing, values, arguments)
    return Report(
        listing.kernel,
        grid,
        shape[0] * shape[1] * shape[2],
        schedule,
        seed,
        _shared_bytes(listing),
        machine.steps,
        _totals(listing, machine.counters, runs),
        machine.dropped,
    )


#: the last listings that were run, with their translations
_RECENT: deque[tuple[Mapping[str, Json], Options, Translation]] = deque(maxlen=8)


def _translated(listing: Mapping[str, Json], options: Options) -> Translation:
    """Translate a listing, unless this very object was translated a moment ago."""
    for known, chosen, translation in _RECENT:
        if known is listing and chosen == options:
            return translation
    translation = translate(listing, options)
    _RECENT.append((listing, options, translation))
    return translation


def _run_grid(
    kernel: Translation,
    machine: Machine,
    values: tuple[Any, ...],
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int],
    runs: list[int],
) -> None:
    """Run the CTAs of a grid, x fastest: one after another, or at one time where they may wait for each other."""
    size = cluster[0] * cluster[1] * cluster[2]
    places = iter(np.ndindex(*(g // c for g, c in zip(grid[::-1], cluster[::-1], strict=True))))
    together = min(CONCURRENT, grid[0] * grid[1] * grid[2] // size) if kernel.concurrent else 1
    if machine.detect and kernel.written:
        machine.world = Order(together * size * machine.warps)
        for position, granule in kernel.written.items():
            buffer = _memory(values[position])
            buffer.shadow = GlobalShadow(buffer.name, buffer.nbytes, granule, machine.world)

    def start(warp: Warp) -> Steps:
        return kernel.function(warp, warp.block.launch, runs)

    def next_cluster(ctas: Cluster) -> bool:
        place = next(places, None)
        if place is None:
            return False
        ctas.renew()
        for block in ctas.blocks:
            block.launch = _launch(values, place, cluster, block.rank)
            block.name = str((block.launch.block_x, block.launch.block_y, block.launch.block_z))
        return True

    clusters = [Cluster(machine, size, slot) for slot in range(together)]
    Scheduler(machine, clusters, start, next_cluster).run()


def _launch(
    values: tuple[Any, ...], place: tuple[int, ...], cluster: tuple[int, int, int], rank: int
) -> Launch:
    """The CTA of a rank in the cluster at (z, y, x); ranks count x fastest (PTX ISA %cluster_ctarank)."""
    z, y, x = place
    inside = (rank % cluster[0], rank // cluster[0] % cluster[1], rank // (cluster[0] * cluster[1]))
    first = (x * cluster[0], y * cluster[1], z * cluster[2])
    bx, by, bz = (f + i for f, i in zip(first, inside, strict=True))
    size = cluster[0] * cluster[1] * cluster[2]
    return Launch(values, bx, by, bz, x, y, z, *inside, rank, size)


# ---- arguments -----------------------------------------------------------------------------------------------------


def _find(parameter: Parameter, arguments: Mapping[str, Argument | TensorMap], kernel: str) -> str:
    for name in (parameter.name, parameter.name.removesuffix("_ptr")):
        if name in arguments:
            return name
    raise Fault(
        f"arguments: {parameter.name} is missing",
        at=kernel,
        hint=f"given are {', '.join(arguments) or 'none'}",
    )


def _bind(kernel: Translation, arguments: Mapping[str, Argument | TensorMap]) -> tuple[Any, ...]:
    values: list[Any] = []
    memories: dict[int, GlobalBuffer] = {}
    for parameter in kernel.parameters:
        name = _find(parameter, arguments, kernel.kernel)
        given: Any = arguments[name]
        if isinstance(given, TensorMap) != (parameter.dtype == "tensormap"):
            raise Fault(f"arguments: {parameter.name} is a {parameter.dtype}", at=kernel.kernel)
        if isinstance(given, TensorMap):
            memory = _buffer(parameter, given.array, memories, kernel.kernel)
            values.append(BoundMap(given, memory))
        elif parameter.is_pointer:
            values.append(_buffer(parameter, given, memories, kernel.kernel))
        elif parameter.dtype.startswith(("int", "uint")):
            values.append(int(given))
        else:
            values.append(DTYPES[parameter.dtype].type(given))
    return tuple(values)


def _buffer(
    parameter: Parameter, given: Any, memories: dict[int, GlobalBuffer], kernel: str
) -> GlobalBuffer:
    """The memory of an array; two parameters of one array share it."""
    if not isinstance(given, np.ndarray) or not given.flags.c_contiguous:
        raise Fault(
            f"arguments: {parameter.name} has to be a C-contiguous NumPy array",
            at=kernel,
            hint="pass numpy.ascontiguousarray(...) and keep it, results are written into it",
        )
    size = DTYPES[parameter.dtype].itemsize if parameter.dtype in DTYPES else 1
    if given.nbytes % size:
        raise Fault(f"arguments: {parameter.name} holds no whole {parameter.dtype}", at=kernel)
    key = given.__array_interface__["data"][0]
    if key not in memories or memories[key].nbytes != given.nbytes:
        memories[key] = GlobalBuffer.of(parameter.name, given, len(memories))
    return memories[key]


def _memory(value: Any) -> GlobalBuffer:
    memory: GlobalBuffer = value.buffer if isinstance(value, BoundMap) else value
    return memory


def _write_back(
    kernel: Translation,
    values: tuple[Any, ...],
    arguments: Mapping[str, Argument | TensorMap],
) -> None:
    for parameter, value in zip(kernel.parameters, values, strict=True):
        if parameter.is_pointer and _memory(value).written:
            given: Any = arguments[_find(parameter, arguments, kernel.kernel)]
            target = given.array if isinstance(given, TensorMap) else given
            memory = _memory(value)
            target.reshape(-1).view(np.uint8)[:] = memory.data[: memory.nbytes]


def _shared_bytes(kernel: Translation) -> int:
    return sum(allocation.nbytes for allocation in kernel.allocations)


def _check_launch(
    kernel: Translation,
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int | None,
) -> None:
    """Compare the launch with what the kernel was made for, as far as that is constant."""
    taken = _shared_bytes(kernel)
    if shared_bytes is not None and shared_bytes < taken:
        raise Fault(
            f"arguments: the launch gives {shared_bytes} B of shared memory, the kernel takes {taken}",
            at=kernel.kernel,
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise Fault(f"arguments: a grid {grid} of clusters {cluster}", at=kernel.kernel)
    axes = {"blockIdx": grid, "clusterCtaIdx": cluster, "threadIdx": block}
    for name, given in axes.items():
        for axis, extent in zip("xyz", given, strict=True):
            wanted = kernel.extents.get(f"{name}.{axis}", 1)
            if isinstance(wanted, int) and wanted != extent:
                raise Fault(
                    f"arguments: {name}.{axis} has {extent} values, the kernel is made for {wanted}",
                    at=kernel.kernel,
                )


def _totals(kernel: Translation, counters: Counters | None, runs: list[int]) -> dict[str, int]:
    if counters is None:
        return {}
    for histogram, times in zip(kernel.histograms, runs, strict=True):
        for text, count in histogram.items():
            counters.add(text if text.startswith("pipe.") else f"op.{text}", count * times)
    return dict(counters.counts)
