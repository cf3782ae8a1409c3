"""Time the quantisation of activations beside a plain read of as many bytes, and check every code.

    python -m benchmarks.quantize build/quantize --build-only   # no GPU: kernels, and the reader
    python -m benchmarks.quantize build/quantize                # writes benchmarks/results/h200-quantize_activations-DATE-COMMIT.json

A row moves ``m * k`` activations of two bytes or four and as many codes of one; ``part`` is the time of the pure-read floor of that many
bytes over the row's (docs/measuring.md), by the reader that is the fastest, in turn with the kernel. The copies of x that launches take in turn hold more than the GPU's cache.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import ladder
from benchmarks import read_kernel, rows, store
from benchmarks.bars import QUANTIZE_PART, QUANTIZE_TOKENS
from benchmarks.grid import DEVICE
from ladder.graph.quantize_activations import SOURCES

RESULTS = Path("benchmarks/results")
COLUMNS = (4096, 8192, 28672)
TARGETS = ("int8", "fp8_e4m3fn")
GPU = "cuda:0"


@dataclass(frozen=True, slots=True)
class Case:
    """One row's problem."""

    m: int
    k: int
    source: str
    target: str

    @property
    def name(self) -> str:
        """What tells this case from the others."""
        return f"quantize-{self.source}-{self.target}-{self.k}-m{self.m}"

    @property
    def artifact(self) -> str:
        """File name of the kernel, which takes any M."""
        return f"quantize-{self.source}-{self.target}-{self.k}"

    @property
    def nbytes(self) -> int:
        """Bytes read and written: activations, codes, scales."""
        return self.m * (self.k * (ladder.compute_type(self.source).dtype.itemsize + 1) + 4)

    def plan(self) -> ladder.QuantizePlan:
        """The scheduler's choice for any M."""
        op = ladder.quantize_activations(None, self.k, source=self.source, target=self.target)
        return ladder.schedule(op, DEVICE)


def cases() -> Iterator[Case]:
    """Every row."""
    axes = itertools.product(COLUMNS, SOURCES, TARGETS, QUANTIZE_TOKENS)
    return (Case(m, k, source, target) for k, source, target, m in axes)


def build(folder: Path) -> None:
    """Compile the kernels, and the reader of the floor."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in {case.artifact: case for case in cases()}.items():
        store.save(ladder.compile(case.plan()).artifact(), folder, name)
    read_kernel.save(folder, ladder.devices[DEVICE].arch)


def measure(folder: Path, case: Case, floor: Any) -> dict[str, Any]:
    """Check and time one case."""
    import torch

    from benchmarks import clock
    from benchmarks.operands import ROTATED_BYTES

    kernel: Any = store.load(folder, case.artifact)
    copies = max(2, math.ceil(ROTATED_BYTES / case.nbytes))
    dtype = getattr(torch, case.source)
    steps = [
        kernel.bind(torch.randn((case.m, case.k), device=GPU).to(dtype)) for _ in range(copies)
    ]
    wrong = sum(_wrong(kernel, step) for step in steps[:2])
    graph = clock.capture(steps)
    readers = floor.graphs(case.nbytes)
    alone = clock.interleaved(readers, tokens=1)
    fastest = readers[min(readers, key=alone.__getitem__)]
    # in turn, each after the same pause: after one, both are slower
    times = clock.interleaved({"kernel": graph, "read": fastest}, case.m)
    us, read_us = times["kernel"], times["read"]
    return {
        **asdict(case),
        "us": round(us, 3),
        "read_us": round(read_us, 3),
        "part": round(read_us / us, 4),
        "tb_per_s": round(case.nbytes / us / 1e6, 3),
        "wrong": wrong,
        "met": read_us / us >= QUANTIZE_PART and not wrong,
    }


def _wrong(kernel: Any, step: Any) -> int:
    """Codes and scales that differ from the operator's meaning, after a launch over poisoned outputs."""
    import torch

    x, (codes, scales) = step.x, step.out
    codes.view(torch.uint8).fill_(0x55)
    scales.fill_(math.nan)
    step()
    wide = x.float().cpu().numpy()
    wanted, wanted_scales = kernel.plan.op.reference(wide)
    found = codes.view(torch.uint8).cpu().numpy()
    return int((found != wanted.view("uint8")).sum()) + int(
        (scales.cpu().numpy() != wanted_scales).sum()
    )


def main(
    folder: Annotated[Path, typer.Argument(help="of the kernels; built where they are missing")],
    *,
    build_only: Annotated[bool, typer.Option("--build-only", help="needs no GPU")] = False,
) -> None:
    """Build what is missing, time every case, write the rows; the exit code is 1 if one misses its bar."""
    if not (folder / read_kernel.FILE).exists():
        build(folder)
    if build_only:
        return
    import torch

    from benchmarks.bench import driver_version
    from benchmarks.floor import Floor

    torch.manual_seed(0)
    floor = Floor(folder, GPU)
    name = torch.cuda.get_device_name(GPU)
    commit = store.commit()
    toolkit = store.load(folder, next(cases()).artifact).toolchain
    machine = rows.Machine(
        name, driver_version(), toolkit, commit, store.command(), rows.Machine.now()
    )
    found = []
    for case in cases():
        found.append({**asdict(machine), **measure(folder, case, floor)})
        print(case.name, {key: found[-1][key] for key in ("us", "read_us", "part", "wrong")})
    short = name.split()[-1].lower()
    out = RESULTS / f"{short}-quantize_activations-{machine.date[:10]}-{commit.rstrip('+')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(0 if all(row["met"] for row in found) else 1)


if __name__ == "__main__":
    typer.run(main)
