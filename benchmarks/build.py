"""Compile the kernels of the suites where TVM is, for a machine that has only a GPU.

python -m benchmarks.build --suite decode --suite prefill --out build/bench --jobs 2
python -m benchmarks.bench --suite decode --suite prefill --artifacts build/bench
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

import ladder
from benchmarks import read_kernel, store
from benchmarks.grid import DEVICE, Case, Only, Quick, Suite, asked, plan_for
from ladder.codegen.toolchain import toolchain_version

if TYPE_CHECKING:
    from ladder.codegen.toolchain import Cubin
    from ladder.runtime.artifact import Artifact

#: what is said of a kernel; case name -> record
Records = dict[str, dict[str, Any]]

#: of this process: CUDA text without the kernel's name -> (that name, its machine code)
_MADE: dict[str, tuple[str, dict[str, Cubin]]] = {}


def artifact_of(plan: Any) -> Artifact:
    """Compile a plan or a plan set; texts that differ in the kernel's name alone are compiled once a process.

    A plan for one M names M, and beyond the tiles of its family the text often does not.
    """
    from ladder.codegen.lower import lower

    plans = tuple(plan) if isinstance(plan, ladder.PlanSet) else (plan,)
    lowered = [lower(one) for one in plans]
    texts = [each.source.replace(each.name, "kernel") for each in lowered]
    if len(plans) == 1 and texts[0] in _MADE:
        return _renamed(plan, lowered[0], *_MADE[texts[0]])
    by_plan = dict(zip(plans, lowered, strict=True))
    artifact = ladder.compile(plan, lower=by_plan.__getitem__).artifact()
    for text, part in zip(texts, artifact.parts, strict=True):
        _MADE.setdefault(text, (part.lowered.name, dict(part.cubins)))
    return artifact


def _renamed(plan: Any, lowered: Any, name: str, cubins: dict[str, Cubin]) -> Artifact:
    """The artifact of a plan whose text is that of another kernel: its own plan and launch, the other's name and code."""
    from ladder.runtime.artifact import Artifact, Part
    from ladder.runtime.packed import as_json

    record = as_json(plan.to_json())
    source = lowered.source.replace(lowered.name, name)
    part = Part(record, replace(lowered, name=name, source=source), cubins)
    packing = plan.packing
    return Artifact(
        parts=(part,),
        plan=record,
        packing=as_json(packing.to_json()),
        packing_version=packing.version,
        toolchain=toolchain_version(),
    )


def build(cases: Sequence[Case], device: str, out: Path) -> Records:
    """Compile the kernels of some cases and write their artifacts; a failure is part of the answer."""
    found: Records = {}
    artifacts: dict[str, list[Case]] = {}
    for case in cases:
        artifacts.setdefault(case.artifact, []).append(case)
    for name, same in artifacts.items():
        try:
            found.update(_build(name, same, device, out))
        except Exception as error:  # noqa: BLE001 - one kernel that fails must not take the others along
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
            found.update({case.name: {"failure": reason} for case in same})
    return found


def _build(name: str, cases: Sequence[Case], device: str, out: Path) -> Records:
    """Compile one artifact and write it; what is said of the kernel that each case gets of it."""
    start = time.perf_counter()
    plan = cases[0].plan(device)
    artifact = artifact_of(plan)
    size = store.save(artifact, out, name)
    seconds = round(time.perf_counter() - start, 3)
    plans = tuple(plan) if isinstance(plan, ladder.PlanSet) else (plan,)
    found: Records = {}
    for case in cases:
        own = plan_for(plan, case.m)
        (cubin,) = artifact.parts[plans.index(own)].cubins.values()
        found[case.name] = {
            "artifact": name,
            "registers": cubin.registers,
            "spill_bytes": cubin.spill_bytes,
            "shared_bytes": own.shared_bytes,
            "bytes": 0 if found else size,
            "seconds": 0.0 if found else seconds,
        }
    return found


def build_all(
    cases: Sequence[Case], device: str, out: Path, jobs: int, console: Console
) -> Records:
    """Build all cases in ``jobs`` processes, those of one packed weight in one: they share decoding and often text."""
    groups = [list(group) for _, group in itertools.groupby(cases, lambda case: case.packed)]
    found: Records = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(build, group, device, out) for group in groups]
        for future in track(futures, "compiling", console=console):
            found.update(future.result())
    read_kernel.save(out, ladder.devices[device].arch)
    return found


def main(
    out: Annotated[Path, typer.Option("--out", help="folder for the artifacts")],
    device: Annotated[str, typer.Option("--device", help="whose plans")] = DEVICE,
    jobs: Annotated[int, typer.Option("--jobs", min=1)] = os.cpu_count() or 1,
    suites: Suite = ["base"],  # noqa: B006 - typer reads the default, nothing writes to it
    only: Only = [],  # noqa: B006
    *,
    quick: Quick = False,
) -> None:
    """Compile the kernels of some suites and write them to a folder."""
    console = Console(stderr=True)
    out.mkdir(parents=True, exist_ok=True)
    cases = asked(only, quick=quick, suites=suites)
    start = time.perf_counter()
    index = store.Index(store.commit(), toolchain_version(), store.command())
    index.kernels = build_all(cases, device, out, jobs, console)
    index.save(out)
    failed = {name: found["failure"] for name, found in index.kernels.items() if "failure" in found}
    spilled = [name for name, found in index.kernels.items() if found.get("spill_bytes")]
    total = sum(found.get("bytes", 0) for found in index.kernels.values())
    for name, reason in failed.items():
        console.print(f"{name}: {reason}", markup=False, highlight=False)
    print(
        f"{len(index.kernels) - len(failed)} of {len(index.kernels)} cases in {time.perf_counter() - start:.0f} s,"
        f" {total / 2**20:.1f} MiB in {out}; {len(spilled)} spill: {', '.join(spilled) or '-'}"
    )
    raise typer.Exit(1 if failed or spilled else 0)


if __name__ == "__main__":
    typer.run(main)
