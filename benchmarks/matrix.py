"""Compile every family x weight type x activation x architecture, and report registers and spills.

    python -m benchmarks.matrix --jobs 2            # everything: half an hour on two cores
    python -m benchmarks.matrix --quick             # a few kernels of each family

Writes ``matrix.json`` and ``matrix.md``. The exit code is 1 if a kernel spills registers or fails. What is compiled, and
which combinations stand for others: :mod:`benchmarks.families`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import store
from benchmarks.families import DEVICES, VARIANTS, Made, Part, make, parts
from benchmarks.rows import Machine
from ladder.codegen.toolchain import toolchain_version

NUMBERS = ("registers", "spill_bytes", "stack_bytes", "shared_bytes", "lower_s", "compile_s")
COLUMNS = ("type", "activation", "device", "variant", "plan", *NUMBERS)
REASONS = ("type", "activation", "device", "variant", "refused", "failure")

CORES = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option("--jobs", help="processes", min=1)]


@dataclass(frozen=True, slots=True)
class Header:
    """How a matrix was made."""

    date: str
    commit: str
    toolkit: str
    command: str
    jobs: int
    seconds: float


def compile_all(wanted: Sequence[Part], jobs: int, console: Console) -> list[Made]:
    """Compile all parts in ``jobs`` processes, in the order given."""
    found: dict[Part, list[Made]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    context = multiprocessing.get_context("spawn")
    with (
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
        ProcessPoolExecutor(jobs, context) as pool,
    ):
        task = progress.add_task("compiling", total=len(wanted))
        futures = {pool.submit(make, part): part for part in wanted}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress.advance(task)
            if not console.is_terminal and len(found) % max(1, len(wanted) // 10) == 0:
                console.print(f"{len(found)} of {len(wanted)} parts")
    return [made for part in wanted for made in found[part]]


def record(header: Header, found: Sequence[Made]) -> dict[str, Any]:
    """The matrix as JSON: rows under column names, plans by their number in a list."""
    plans = list(dict.fromkeys(made.plan for made in found if made.compiled))
    place = {plan: number for number, plan in enumerate(plans)}
    compiled = [
        [place[value] if name == "plan" else value for name, value in _cells(made, COLUMNS)]
        for made in found
        if made.compiled
    ]
    others = [[value for _, value in _cells(made, REASONS)] for made in found if not made.compiled]
    return {
        **asdict(header),
        "archs": {made.device: made.arch for made in found},
        "plans": plans,
        "columns": list(COLUMNS),
        "kernels": compiled,
        "reasons": list(REASONS),
        "not_compiled": others,
    }


def _cells(made: Made, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(made, name)) for name in names)


def dump(data: dict[str, Any]) -> str:
    """JSON with one line for each row."""

    def value(item: Any) -> str:
        if isinstance(item, list) and item and isinstance(item[0], list):
            return "[\n" + ",\n".join(_compact(row) for row in item) + "\n]"
        return _compact(item)

    body = ",\n".join(f"{_compact(name)}:{value(item)}" for name, item in data.items())
    return f"{{\n{body}\n}}\n"


def _compact(item: Any) -> str:
    return json.dumps(item, separators=(",", ":"))


# -- for people ---------------------------------------------------------------------------------------------------


def summary(header: Header, found: Sequence[Made]) -> str:
    """The report: a line for each variant and device, then everything that spills, fails or is refused."""
    compiled = [made for made in found if made.compiled]
    spilling = [made for made in compiled if made.spill_bytes]
    failing = [made for made in found if made.failure]
    made_how = (
        f"{header.date}, commit {header.commit}, {header.toolkit}, by `{header.command}`: {len(compiled)} kernels in"
        f" {header.seconds:.0f} s with {header.jobs} processes; {len(spilling)} spill, {len(failing)} fail,"
        f" {len(found) - len(compiled) - len(failing)} are refused by the scheduler."
    )
    lines = [
        "# Compiled kernels",
        "",
        made_how,
        _slowest(compiled),
        "",
        *_table(compiled),
        "",
        "## Spilling kernels",
        "",
        *(_spill(made) for made in spilling),
        *([] if spilling else ["None."]),
        "",
        "## Failures",
        "",
        *(_grouped(failing, "failure") or ["None."]),
        "",
        "## Refused by the scheduler",
        "",
        *(_grouped([made for made in found if made.refused], "refused") or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _slowest(compiled: Sequence[Made]) -> str:
    if not compiled:
        return "Nothing was compiled."
    seconds = sorted(made.lower_s + made.compile_s for made in compiled)
    longest = max(compiled, key=lambda made: made.lower_s + made.compile_s)
    return (
        f"From a plan to machine code: median {seconds[len(seconds) // 2]:.2f} s, at most {seconds[-1]:.2f} s"
        f" ({longest.type} {longest.activation} {longest.device}, {longest.variant}; wall time, the other processes beside it)."
    )


def _table(compiled: Sequence[Made]) -> list[str]:
    head = ("variant", "device", "arch", "kernels", "most registers", "most shared B", "spilling")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for variant in VARIANTS:
        for device in DEVICES:
            some = [m for m in compiled if (m.variant, m.device) == (variant.name, device)]
            if not some:
                continue
            registers, shared = max(m.registers for m in some), max(m.shared_bytes for m in some)
            spilling = sum(bool(m.spill_bytes) for m in some)
            cells = (variant.name, device, some[0].arch, len(some), registers, shared, spilling)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _spill(made: Made) -> str:
    return (
        f"* {made.type} {made.activation} {made.device} ({made.arch}), {made.variant}: {made.spill_bytes} B,"
        f" {made.registers} registers; {made.plan}"
    )


def _grouped(found: Sequence[Made], attribute: str) -> list[str]:
    """One line for each reason, with what it concerns."""
    reasons: dict[str, dict[str, None]] = {}
    for made in found:
        names = reasons.setdefault(getattr(made, attribute), {})
        names[f"{made.type} {made.activation} {made.device}"] = None
    return [f"* {reason}: {', '.join(names)}" for reason, names in reasons.items()]


def main(
    out: Annotated[Path, typer.Option("--out", help="folder of the report")] = Path(
        "benchmarks/results"
    ),
    jobs: Jobs = CORES,
    types: Annotated[list[str], typer.Option("--type", help="only these types")] = [],  # noqa: B006
    devices: Annotated[list[str], typer.Option("--device", help="only these devices")] = [],  # noqa: B006
    *,
    quick: Annotated[bool, typer.Option("--quick", help="a few kernels of each family")] = False,
) -> None:
    """Compile the matrix and write the report."""
    wanted = [
        part
        for part in parts(quick=quick)
        if (not types or part.type in types) and (not devices or part.device in devices)
    ]
    start, made_at, made_from = time.perf_counter(), Machine.now(), store.commit()
    found = compile_all(wanted, jobs, Console(stderr=True))
    seconds = round(time.perf_counter() - start, 1)
    header = Header(made_at, made_from, toolchain_version(), store.command(), jobs, seconds)
    out.mkdir(parents=True, exist_ok=True)
    name = "matrix-quick" if quick or types or devices else "matrix"
    (out / f"{name}.json").write_text(dump(record(header, found)), encoding="utf-8")
    text = summary(header, found)
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
    raise typer.Exit(1 if any(made.failure or made.spill_bytes for made in found) else 0)


if __name__ == "__main__":
    typer.run(main)
