"""Compile the kernels of the grid where TVM is, for a machine that has only a GPU.

python -m benchmarks.build --out build/bench --jobs 2
python -m benchmarks.bench --artifacts build/bench --out benchmarks/results/h200.json
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from benchmarks import store
from benchmarks.grid import DEVICE, Case, chosen
from ladder.codegen.toolchain import toolchain_version

Only = Annotated[
    list[str], typer.Option("--only", help="weight=int4,nf4 | m=1 | n=8192 | ...; all must hold")
]
Quick = Annotated[bool, typer.Option("--quick", help="a subset that touches each part once")]


def build(case: Case, device: str, out: Path) -> dict[str, Any]:
    """Compile one case and write its artifact; a failure is part of the answer."""
    import ladder

    start = time.perf_counter()
    try:
        plan = case.plan(device)
        kernel = ladder.compile(plan)
        size = store.save(kernel, out, case.name)
    except Exception as error:  # noqa: BLE001 - one kernel that fails must not take the others along
        return {"failure": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]}
    cubin = kernel.variants[0].cubins[plan.device.arch]
    return {
        "registers": cubin.registers,
        "spill_bytes": cubin.spill_bytes,
        "shared_bytes": plan.shared_bytes,
        "bytes": size,
        "seconds": round(time.perf_counter() - start, 3),
    }


def build_all(
    cases: Sequence[Case], device: str, out: Path, jobs: int, console: Console
) -> dict[str, dict[str, Any]]:
    """Build all cases in ``jobs`` processes; case name -> what :func:`build` returned."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {case.name: pool.submit(build, case, device, out) for case in cases}
        steps = track(futures.items(), "compiling", console=console)
        return {name: future.result() for name, future in steps}


def main(
    out: Annotated[Path, typer.Option("--out", help="folder for the artifacts")],
    device: Annotated[str, typer.Option("--device", help="whose plans")] = DEVICE,
    jobs: Annotated[int, typer.Option("--jobs", min=1)] = os.cpu_count() or 1,
    only: Only = [],  # noqa: B006 - typer reads the default, nothing writes to it
    *,
    quick: Quick = False,
) -> None:
    """Compile the kernels of the grid and write them to a folder."""
    console = Console(stderr=True)
    out.mkdir(parents=True, exist_ok=True)
    cases = chosen(only, quick=quick)
    index = store.Index(store.commit(), toolchain_version(), store.command())
    index.kernels = build_all(cases, device, out, jobs, console)
    index.save(out)
    failed = {name: found["failure"] for name, found in index.kernels.items() if "failure" in found}
    spilled = [name for name, found in index.kernels.items() if found.get("spill_bytes")]
    total = sum(found.get("bytes", 0) for found in index.kernels.values())
    for name, reason in failed.items():
        console.print(f"{name}: {reason}", markup=False, highlight=False)
    print(
        f"{len(cases) - len(failed)} of {len(cases)} kernels, {total / 2**20:.1f} MiB in {out};"
        f" {len(spilled)} spill: {', '.join(spilled) or '-'}"
    )
    raise typer.Exit(1 if failed or spilled else 0)


if __name__ == "__main__":
    typer.run(main)
