"""How long the first call of a shape takes: declared, scheduled, compiled, loaded, launched; then again in a fresh process.

    python -m benchmarks.first_call benchmarks/results/h200-first-call.json   # without a GPU: all but loading and launching

Each row is one operator of a shape that nothing before it had. The first process begins with an empty cache, the second
finds there what the first one compiled. A process first runs an operator of another shape, so that libraries are imported
and the CUDA context is there; the weight is packed before the clock starts for the call.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import ladder
from benchmarks import rows, store
from benchmarks.grid import DEVICE
from benchmarks.weights import WEIGHTS
from ladder.codegen.toolchain import toolchain_version
from ladder.runtime.driver import driver_version
from ladder.settings import Settings

GPU = "cuda:0"
TYPES = ("int4", "int8", "int3", "uint2", "nf4_g128", "codebook3", "mxfp4", "fp8_e4m3fn")
TOKENS: tuple[int | None, ...] = (1, 16, 64, 1024, None)
#: tokens of the call of an operator for any number of them
CALLED = 16
K = 4096
#: rows of the first weight; every case has its own, none of them a shape of another benchmark
LEAST_N, STEP_N = 4224, 64
#: seconds that a first call, and one of a kernel in the cache, may take
MOST_FIRST, MOST_CACHED = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One operator."""

    weight: str
    n: int
    m: int | None

    def operator(self) -> ladder.MatMul:
        """The operator that is declared."""
        wt = WEIGHTS[self.weight]()
        return ladder.matmul(self.m, self.n, K, activation="float16", weight=wt)


def cases() -> Iterator[Case]:
    """Every row, in order."""
    n = LEAST_N
    for weight in TYPES:
        for m in TOKENS:
            n += STEP_N
            yield Case(weight, n, m)


def has_gpu() -> bool:
    """Whether calls are made."""
    return driver_version() != "none"


def timed(case: Case) -> float:
    """Seconds from the declaration to the result, less those of packing the weight."""
    start = time.perf_counter()
    op = case.operator()
    kernel = ladder.compile(ladder.schedule(op, DEVICE), ahead=False)
    seconds = time.perf_counter() - start
    return seconds + (_call(kernel, op) if has_gpu() else 0.0)


def _call(kernel: Any, op: ladder.MatMul) -> float:
    import torch

    from ladder.runtime.packed import Packed
    from ladder.runtime.tuning.operands import Weights

    packed = Packed(kernel.packing, Weights.random(op).pack(kernel.packing)).to(GPU)
    x = torch.ones((op.m or CALLED, op.k), dtype=torch.float16, device=GPU)
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel(x, packed)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def child() -> None:
    """Time every case in this process."""
    timed(Case(TYPES[0], LEAST_N, 1))
    print(json.dumps([timed(case) for case in cases()]))


def run(cache: str) -> list[float]:
    """Seconds of every case in a fresh process over a cache."""
    found: list[float] = fresh("from benchmarks.first_call import child; child()", cache)
    return found


def fresh(code: str, cache: str) -> Any:
    """What code prints last, as JSON, in a fresh process over a cache."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LADDER_CACHE_DIR": cache},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main(
    out: Annotated[Path, typer.Argument(help="JSON file that is written, a row a case")],
) -> None:
    """Time every case with an empty cache and with a full one; the exit code is 1 if one misses its bar."""
    with tempfile.TemporaryDirectory(prefix="ladder-first-call-") as cache:
        first, cached = run(cache), run(cache)
    machine = rows.Machine(
        _device(),
        driver_version(),
        toolchain_version(Settings.read()),
        store.commit(),
        store.command(),
        rows.Machine.now(),
    )
    found = [
        {**asdict(machine), **asdict(case), "k": K, "first_s": round(a, 4), "cached_s": round(b, 4)}
        for case, a, b in zip(cases(), first, cached, strict=True)
    ]
    lines = ",\n".join(json.dumps(row) for row in found)
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    _show("first", first, MOST_FIRST)
    _show("cached", cached, MOST_CACHED)
    raise typer.Exit(int(max(first) > MOST_FIRST or max(cached) > MOST_CACHED))


def _device() -> str:
    if not has_gpu():
        return "none: nothing is loaded or launched"
    import torch

    name: str = torch.cuda.get_device_name(GPU)
    return name


def _show(name: str, seconds: list[float], bar: float) -> None:
    middle, most, limit = (
        f"{1000 * s:.0f} ms" for s in (statistics.median(seconds), max(seconds), bar)
    )
    print(f"{name}: median {middle}, at most {most}, bar {limit}")


if __name__ == "__main__":
    typer.run(main)
