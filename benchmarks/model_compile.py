"""How long a model's kernels take: chosen and compiled with an empty cache, then found again by a fresh process.

    python -m benchmarks.model_compile benchmarks/results/model-compile.json   # without a GPU

The kernels are those of a decoder layer at full size, in every range of numbers of tokens. What is timed is what depends on the
compiler alone, the choice of plans and the machine code of their kernels; importing the module, quantising its weights and
packing them are not. Libraries are imported before the clock starts.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

import ladder
from benchmarks import rows, store
from benchmarks.first_call import fresh
from benchmarks.grid import DEVICE
from benchmarks.model_cases import RULES, cases, operators
from ladder.codegen.toolchain import toolchain_version
from ladder.settings import Settings

#: seconds that a layer may take, at first and again
MOST_COLD, MOST_CACHED = 60.0, 1.0
RULE = "int4-g128"


@dataclass(frozen=True, slots=True)
class Times:
    """One process's work on a layer.

    Attributes:
        plans_s: seconds for the plans of all its operators.
        kernels_s: seconds until their kernels were there.
        kernels: how many.
    """

    plans_s: float
    kernels_s: float
    kernels: int

    @property
    def total_s(self) -> float:
        """Seconds for both."""
        return self.plans_s + self.kernels_s


def child(model: str, rule: str) -> None:
    """Time a layer in this process."""
    case = cases()[model]
    ops = list(dict.fromkeys(op for op, _ in operators(case, case.phases[-1], rule)))
    # another operator first, of a type of its own: libraries are loaded, no kernel and no plan is known by it
    ladder.compile(ladder.schedule(ladder.dequantize(64, 64, weight=ops[0].weight), DEVICE))
    start = time.perf_counter()
    plans = [ladder.schedule(op, DEVICE) for op in ops]
    planned = time.perf_counter()
    kernels = [ladder.compile(plan) for plan in plans]
    done = time.perf_counter()
    count = sum(len(kernel.variants) for kernel in kernels)
    print(json.dumps(asdict(Times(planned - start, done - planned, count))))


def run(model: str, rule: str, cache: str) -> Times:
    """The times of a fresh process over a cache."""
    code = f"from benchmarks.model_compile import child; child({model!r}, {rule!r})"
    return Times(**fresh(code, cache))


def main(
    out: Annotated[Path, typer.Argument(help="JSON file that is written, a row a process")],
    model: Annotated[list[str], typer.Option("--model", help="of benchmarks.model_cases")] = [  # noqa: B006
        "llama-2-7b"
    ],
    rule: Annotated[str, typer.Option("--rule", help=", ".join(RULES))] = RULE,
) -> None:
    """Time models with an empty cache and with a full one; the exit code is 1 if one misses its bar."""
    machine = rows.Machine(
        f"{os.cpu_count()} CPUs",
        "none",
        toolchain_version(Settings.read()),
        store.commit(),
        store.command(),
        rows.Machine.now(),
    )
    lines, missed = [], False
    for name in model:
        with tempfile.TemporaryDirectory(prefix="ladder-model-compile-") as cache:
            for kind, bar in (("cold", MOST_COLD), ("cached", MOST_CACHED)):
                found = run(name, rule, cache)
                missed |= found.total_s > bar
                row = {**asdict(machine), "model": name, "rule": rule, "cache": kind}
                lines.append(json.dumps({**row, **asdict(found), "bar_s": bar}))
                print(
                    f"{name} {rule} {kind}: plans {found.plans_s:.2f} s, {found.kernels} kernels"
                    f" {found.kernels_s:.2f} s, bar {bar:g} s"
                )
    out.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    raise typer.Exit(int(missed))


if __name__ == "__main__":
    typer.run(main)
