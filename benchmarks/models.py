"""Run whole models on this machine's GPU: a decoder layer timed beside PyTorch, every layer of every model checked.

    python -m benchmarks.models --build-only --artifacts build/models    # where TVM is; needs no GPU
    python -m benchmarks.models --artifacts build/models                 # writes benchmarks/results/h200-models-DATE-COMMIT.json

Timed: the LLaMA-2-70B layer with int4 weights, one token behind a cache and a long prompt, under CUDA graphs, in turn with
the same module in PyTorch's float16 (eager and compiled, the faster counts). Checked, first the timed ones: every kernel beside
float64 on its own operands, within the derived bar, and the outputs' cosine beside the float64 meaning of the whole graph.
"""

from __future__ import annotations

import gc
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import clock, store
from benchmarks.bench import driver_version, refuse_without_gpu
from benchmarks.model_cases import (
    RULES,
    Case,
    Phase,
    Shelf,
    build,
    cases,
    compiled,
    imported,
    typed,
)
from benchmarks.rows import Machine
from ladder.model.model import Model
from ladder.torch.executor import Executor

RESULTS = Path("benchmarks/results")
DEVICE = "cuda:0"

#: the layer that is timed, its rule, and phase -> how many times faster than PyTorch it is to be
TIMED, TIMED_RULE = "llama-2-70b", "int4-g128"
BARS: dict[Phase, float] = {
    Phase("decode", 1, 1024): 2.5,
    Phase("decode", 32, 1024): 2.0,
    Phase("prompt", 1, 4096): 1.0,
}
#: of the weights' bytes in float16
MEMORY_BAR = 0.30
#: least cosine of a layer's outputs beside the float64 meaning of its graph
COSINE_BAR = 0.9999
#: replays hold so many calls of a layer
CALLS = {"decode": 8, "prompt": 1}
#: rows up to which kernels are also launched before the one in front of them has ended
PDL_TOKENS = 64

Row = dict[str, Any]


@dataclass
class Run:
    """Rows as they are found; the file is written after each."""

    machine: Machine
    out: Path
    until: float
    rows: list[Row] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return time.monotonic() > self.until

    def add(self, row: Row) -> None:
        """Keep, print and write a row."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        text = ",\n".join(json.dumps(one) for one in self.rows)
        document = f'{{"machine": {json.dumps(asdict(self.machine))}, "rows": [\n{text}\n]}}\n'
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(document, encoding="utf-8")

    def attempt(self, about: Row, make: Callable[[], Row]) -> None:
        """A row, or why there is none."""
        if self.over:
            self.add({**about, "failure": "not run: the time given by --seconds was used up"})
            return
        start = time.perf_counter()
        try:
            found = make()
        except Exception as error:  # noqa: BLE001 - recorded; the run goes on with other rows
            traceback.print_exc()
            found = {"failure": f"{type(error).__name__}: {error}"[:600]}
        self.add({**about, **found, "seconds": round(time.perf_counter() - start, 1)})
        gc.collect()
        torch.cuda.empty_cache()


# -- one row ---------------------------------------------------------------------------------------


@dataclass
class Bench:
    """One model under one rule: its module, and what its phases share.

    Attributes:
        case: the model.
        rule: name of its rule.
        shelf: of kernels.
        module: in float16, on the GPU.
    """

    case: Case
    rule: str
    shelf: Shelf
    module: Any
    _known: dict[str, Any] = field(default_factory=dict)
    _graphs: dict[str, Any] = field(default_factory=dict)
    _models: dict[tuple[Phase, str], Model] = field(default_factory=dict)

    def graph(self, phase: Phase) -> Any:
        """The low-bit graph of a kind of phase; weights are quantised once."""
        if phase.kind not in self._graphs:
            plain = imported(self.case, phase, self.module, DEVICE)
            self._graphs[phase.kind] = typed(plain, self.rule, self._known)
        return self._graphs[phase.kind]

    def executor(self, phase: Phase, islands: str = "eager", launch: str = "plain") -> Executor:
        """The compiled model of a phase, on the GPU."""
        key = (phase, launch)
        if key not in self._models:
            self._models[key] = compiled(self.graph(phase), phase.m, launch, self.shelf)
        found: Executor = self._models[key].on(DEVICE, islands=islands, builder=self.shelf)
        return found

    def inputs(self, phase: Phase) -> tuple[Any, ...]:
        """Of a phase, on the GPU."""
        found, _ = self.case.inputs(False, phase, DEVICE)
        return found

    def checked(self, phase: Phase) -> Row:
        """Every kernel and the outputs of a phase beside float64."""
        executor, inputs = self.executor(phase), self.inputs(phase)
        with torch.no_grad():
            report = executor.verify(*inputs)
        return {
            "ok": report.ok and report.cosine >= COSINE_BAR,
            "cosine": report.cosine,
            "layers": {
                row.name: {"error": float(f"{row.error:.3g}"), "bar": row.bound}
                for row in report.rows
            },
        }

    def memory(self, phase: Phase) -> Row:
        """Bytes of the weights on the GPU, and of the module's."""
        plain = sum(one.numel() * one.element_size() for one in self.module.parameters())
        mine = self.executor(phase).weight_bytes
        return {
            "weight_bytes": mine,
            "float16_bytes": plain,
            "share": round(mine / plain, 4),
            "bar": MEMORY_BAR,
            "ok": mine <= MEMORY_BAR * plain,
        }

    def timed(self, phase: Phase, bar: float) -> Row:
        """Microseconds of a call beside PyTorch's, all in CUDA graphs that are replayed in turn."""
        inputs = self.inputs(phase)
        graphs: dict[str, clock.Graph] = {}
        failures: dict[str, str] = {}
        for name, make in self._calls(phase, inputs):
            try:
                with torch.no_grad():
                    graphs[name] = clock.capture([make()], CALLS[phase.kind])
            except Exception as error:  # noqa: BLE001 - recorded: others are timed without it
                traceback.print_exc()
                failures[name] = f"{type(error).__name__}: {error}"[:300]
        us = clock.interleaved(graphs, phase.m)
        mine = min((us[name] for name in us if name.startswith("ladder")), default=float("nan"))
        theirs = min((us[name] for name in us if name.startswith("torch")), default=float("nan"))
        found: Row = {
            "us": {name: round(one, 2) for name, one in us.items()},
            "speedup": round(theirs / mine, 3),
            "bar": bar,
            "ok": theirs / mine >= bar,
        }
        return found | ({"failures": failures} if failures else {})

    def _calls(
        self, phase: Phase, inputs: tuple[Any, ...]
    ) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
        """What is timed, by name; made when its turn comes."""
        yield "ladder eager", lambda: self.executor(phase).bind(*inputs)
        yield "ladder compile", lambda: self.executor(phase, "compile").bind(*inputs)
        if phase.m <= PDL_TOKENS:
            yield (
                "ladder compile pdl",
                lambda: self.executor(phase, "compile", "pdl").bind(*inputs),
            )
        yield "kernels alone", lambda: self._kernels(phase, inputs)
        yield "torch eager", lambda: lambda: self.module(*inputs)
        faster = torch.compile(self.module, fullgraph=True, dynamic=False)
        yield "torch compile", lambda: lambda: faster(*inputs)

    def _kernels(self, phase: Phase, inputs: tuple[Any, ...]) -> Callable[[], Any]:
        """The products alone, on the operands that they have in the model."""
        executor, calls = self.executor(phase), []

        def keep(task: Any, given: Any, y: Any) -> None:
            run, out = executor.products[task.name].run, y.clone()
            calls.append(lambda: run(given, out))

        executor.traced(inputs, keep)

        def products() -> None:
            for call in calls:
                call()

        return products


# -- the run -----------------------------------------------------------------------------------------


def wanted(models: list[str], rules: list[str]) -> list[tuple[str, Phase, str, str]]:
    """What a run takes, the timed layer first: (model, phase, rule, launch)."""
    found = []
    for phase in BARS if TIMED in models and TIMED_RULE in rules else ():
        found.append((TIMED, phase, TIMED_RULE, "plain"))
        if phase.m <= PDL_TOKENS:
            found.append((TIMED, phase, TIMED_RULE, "pdl"))
    for model in models:
        for rule in rules:
            found += [(model, phase, rule, "plain") for phase in cases()[model].phases]
    return found


def measure(run: Run, shelf: Shelf, models: list[str], rules: list[str]) -> None:
    """Everything, in the order of its weight."""
    torch.manual_seed(0)
    for model in models:
        case = cases()[model]
        if run.over:
            module = None
        else:
            module = case.module(False, DEVICE)
        for rule in sorted(rules, key=lambda one: one != TIMED_RULE):
            bench = Bench(case, rule, shelf, module)
            if (model, rule) == (TIMED, TIMED_RULE):
                time_layer(run, bench)
            for phase in case.phases:
                about = {"what": "checked", "model": model, "rule": rule, "phase": str(phase)}
                run.attempt(about, lambda bench=bench, phase=phase: bench.checked(phase))
            shelf.forget()
        del module
        gc.collect()
        torch.cuda.empty_cache()


def time_layer(run: Run, bench: Bench) -> None:
    """The layer that is timed: memory, and each phase checked and timed."""
    for number, (phase, bar) in enumerate(BARS.items()):
        about = {"model": bench.case.name, "rule": bench.rule, "phase": str(phase)}
        if not number:
            run.attempt({"what": "memory", **about}, lambda phase=phase: bench.memory(phase))
        run.attempt(
            {"what": "timed", **about},
            lambda phase=phase, bar=bar: bench.timed(phase, bar),
        )
        run.attempt({"what": "checked", **about}, lambda phase=phase: bench.checked(phase))


def main(
    artifacts: Annotated[Path, typer.Option("--artifacts", help="folder of the kernels")],
    out: Annotated[Path | None, typer.Option("--out", help="results file")] = None,
    models: Annotated[list[str], typer.Option("--model", help="leave out for all")] = [],  # noqa: B006
    rules: Annotated[list[str], typer.Option("--rule", help="leave out for all")] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option("--seconds", help="start no row after this")] = 180.0,
    *,
    build_only: Annotated[bool, typer.Option("--build-only", help="compile the kernels")] = False,
) -> None:
    """Check and time whole models, or compile the kernels that this takes."""
    until = time.monotonic() + seconds
    models = models or list(cases())
    rules = rules or list(RULES)
    if build_only:
        artifacts.mkdir(parents=True, exist_ok=True)
        index = build(artifacts, wanted(models, rules))
        failed = [one for one in index.kernels.values() if "failure" in one]
        for one in failed:
            print(f"{one['for']}: {one['failure']}")
        size = sum(one.get("bytes", 0) for one in index.kernels.values())
        print(
            f"{len(index.kernels) - len(failed)} of {len(index.kernels)} kernels, {size / 2**20:.1f} MiB"
        )
        raise typer.Exit(1 if failed else 0)
    refuse_without_gpu()
    index = store.Index.load(artifacts)
    machine = Machine(
        torch.cuda.get_device_name(0), driver_version(), index.toolkit, index.commit, store.command(), Machine.now()
    )  # fmt: skip
    name = f"{machine.device.split()[-1].lower()}-models-{machine.date[:10]}-{machine.commit.rstrip('+')}.json"
    run = Run(machine, out or RESULTS / name, until)
    measure(run, Shelf(artifacts, index), models, rules)
    raise typer.Exit(0 if all(row.get("ok") for row in run.rows) else 1)


if __name__ == "__main__":
    typer.run(main)
