"""Measuring one weight's cases: pack, check against float64, capture, replay beside the peers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from benchmarks import clock, host, store
from benchmarks.floor import Floor
from benchmarks.grid import Case, describe, plan_for
from benchmarks.operands import (
    Tensor,
    Weight,
    activations,
    relative_error,
    rotated,
    row_scales,
    torch_type,
    with_epilogue,
)
from benchmarks.peers import (
    HUMMING,
    Cublas,
    Humming,
    Layer,
    WrongNumbersError,
    layer_key,
    rotated_parts,
)
from benchmarks.peers_eight_bits import EIGHT_BIT_PEERS
from benchmarks.rows import Machine, Measured
from benchmarks.weights import weight_bytes
from ladder.errors import LaunchError
from ladder.scheduler import estimate

if TYPE_CHECKING:
    from ladder.runtime.kernel import Bound, Kernel
    from ladder.runtime.packed import Packed

DEVICE = "cuda:0"
SEED = 0


class UnwrittenOutputError(Exception):
    """A kernel left elements of its output as they were."""


@dataclass
class Weights:
    """A packed weight with its rotated copies, its exact meaning, and its twin of the peer."""

    exact: Tensor
    copies: list[Packed]
    layer: Layer | None
    parts: list[dict[str, Tensor]]


class Bench:
    """One run on one GPU; keeps the peers of the current shape."""

    def __init__(self, folder: Path, index: store.Index, console: Console) -> None:
        torch.cuda.init()
        torch.manual_seed(SEED)
        self._folder = folder
        self._index = index
        self._console = console
        self._cublas: tuple[tuple[int, int], Cublas] | None = None
        self._humming: Humming | None = None
        self._with_humming: frozenset[Case] = frozenset()
        self._kernels: dict[str, Kernel] = {}
        self._floor = Floor(folder, DEVICE)
        #: the case in which the device stopped working, or empty
        self.broken = ""

    @property
    def device_name(self) -> str:
        """Name of the GPU."""
        return str(torch.cuda.get_device_name(0))

    def report(self, text: str) -> None:
        """Print a line for people."""
        self._console.print(" ".join(text.split())[:300], markup=False, highlight=False)

    def note_failure(self, case: Case) -> None:
        """After a failure: whether the device still answers."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            self.broken = case.name

    # -- the peer -----------------------------------------------------------------------------------------------

    def add_humming(self, cases: Sequence[Case]) -> None:
        """Compile the peer's kernels for the cases, if it is installed."""
        if not Humming.installed():
            self.report("humming-kernels is not installed: its times are left out")
            return
        try:
            self._humming = Humming(DEVICE)
            self._humming.prepare(cases, os.cpu_count() or 1, self.report)
        except Exception as error:  # noqa: BLE001 - the product is measured without the peer
            self.report(f"humming-kernels does not start: {type(error).__name__}: {error}")
            return
        self._with_humming = frozenset(cases)
        torch.cuda.empty_cache()

    def _layer(self, case: Case) -> Layer | None:
        if self._humming is None or case not in self._with_humming or case.weight not in HUMMING:
            return None
        try:
            return self._humming.layer(layer_key(case))
        except Exception as error:  # noqa: BLE001 - the row is measured without the peer
            self.report(f"humming {case.name}: {type(error).__name__}: {error}")
            return None

    def _humming_graph(self, weights: Weights, case: Case) -> dict[str, clock.Graph]:
        if self._humming is None or weights.layer is None:
            return {}
        try:
            graph = self._humming.graph(weights.layer, weights.parts, case.m, case.activation)
        except Exception as error:  # noqa: BLE001 - the row is measured without the peer
            self.report(f"humming {case.name}: {type(error).__name__}: {error}")
            return {}
        return {"humming": graph}

    def _cublas_graphs(self, case: Case) -> dict[str, clock.Graph]:
        shape = case.n, case.k
        if self._cublas is None or self._cublas[0] != shape:
            self._cublas = None  # frees the last shape's weights before the next ones are made
            self._cublas = (shape, Cublas(*shape, DEVICE))
        peer = self._cublas[1]
        graphs = {"cublas_fp16": peer.graph(case.m, "float16")}
        if case.activation == "bfloat16":
            graphs["cublas_bf16"] = peer.graph(case.m, "bfloat16")
        return graphs

    def _eight_bit_graph(self, case: Case) -> dict[str, clock.Graph]:
        if case.activation not in EIGHT_BIT_PEERS:
            return {}
        name, make = EIGHT_BIT_PEERS[case.activation]
        try:
            return {name: make(case.m, case.n, case.k, DEVICE)}
        except Exception as error:  # noqa: BLE001 - the row is measured without the peer
            self.report(f"{name} {case.name}: {type(error).__name__}: {error}")
            return {}

    # -- the product --------------------------------------------------------------------------------------------

    def kernel(self, case: Case) -> Kernel:
        """The kernel of a case, loaded once."""
        if case.artifact not in self._kernels:
            self._kernels[case.artifact] = store.load(self._folder, case.artifact)
        return self._kernels[case.artifact]

    def weights(self, group: Sequence[Case]) -> Weights:
        """Make, pack and copy the weight that a group of cases shares."""
        self._kernels.clear()
        torch.cuda.empty_cache()
        case = group[0]
        kernel = self.kernel(case)
        undefined = kernel.packing.program.undefined  # type: ignore[attr-defined]  # a Packing, read back
        weight = Weight.random(case.type, case.n, case.k, undefined, DEVICE)
        packed = weight.packed(kernel)
        layer = self._layer(case)
        parts = [] if layer is None else rotated_parts(layer)
        return Weights(weight.values(), rotated(packed), layer, parts)

    def measure(self, weights: Weights, cases: Sequence[Case]) -> dict[Case, Measured]:
        """Check and time cases of one M: their launches, and kernels for this M and for any."""
        first = cases[0]
        x = activations(first.m, first.k, first.activation, DEVICE)
        x_scale = row_scales(first.m, first.activation, DEVICE)
        exact = x.double() @ weights.exact.t()
        if x_scale is not None:
            exact *= x_scale.double()[:, None]
        graphs: dict[str, clock.Graph] = {}
        errors: dict[str, float] = {}
        for case in cases:
            if case.name not in graphs:  # suites may share a case
                graphs[case.name], errors[case.name] = self._product(
                    case, weights, (x, x_scale), exact
                )
        peers = {
            **self._cublas_graphs(first),
            **self._eight_bit_graph(first),
            **self._humming_graph(weights, first),
        }
        read_us = self._read_us(first)
        times = clock.interleaved({**graphs, **peers}, first.m)
        found = {}
        for case in cases:
            plan = plan_for(self.kernel(case).plan, case.m)
            cost = estimate(plan, case.m)
            found[case] = Measured(
                us=times[case.name],
                error=errors[case.name],
                peers={name: times[name] for name in peers},
                plan=describe(plan),
                registers=self._index.kernels[case.name]["registers"],
                read_us=read_us,
                predicted_us=cost.us,
                ceilings={bound.name: bound.us for bound in cost.bounds},
            )
        return found

    def _read_us(self, case: Case) -> float | None:
        """The floor of a case's weight; a reader that fails is reported, and the row measured without it."""
        try:
            return self._floor.us(weight_bytes(case.type, case.n, case.k))
        except (WrongNumbersError, LaunchError) as error:
            self.report(f"floor of {case.name}: {error}")
            return None

    def _product(
        self, case: Case, weights: Weights, rows: tuple[Tensor, Tensor | None], exact: Tensor
    ) -> tuple[clock.Graph, float]:
        """The graph of a case, and the larger error of a lone launch and of the last one of the graph."""
        kernel, (x, x_scale) = self.kernel(case), rows
        out = torch_type(case.operator.out.name)
        y = torch.full((case.m, case.operator.out_n), math.nan, dtype=out, device=DEVICE)
        residual, exact = with_epilogue(case.operator, exact)
        calls: list[Bound] = [
            kernel.bind(x, packed, x_scale, out=y, residual=residual) for packed in weights.copies
        ]
        calls[0]()
        errors = [_checked_error(y, exact)]
        graph = clock.capture(calls, clock.launches_for(case.m, case.n, case.k))
        y.fill_(math.nan)
        graph.graph.replay()
        errors.append(_checked_error(y, exact))
        return graph, max(errors)

    # -- the host -----------------------------------------------------------------------------------------------

    def host_times(self, case: Case, machine: Machine, out: Path) -> None:
        """Measure what a call costs the host, and write it."""
        try:
            group = [case]
            packed = self.weights(group).copies[0]
            x = activations(case.m, case.k, case.activation, DEVICE)
            y = torch.full((case.m, case.n), math.nan, dtype=x.dtype, device=DEVICE)
            found = host.measure(self.kernel(case), x, packed, y)
        except Exception as error:  # noqa: BLE001 - recorded; the rows come next
            found = {"failure": f"{type(error).__name__}: {error}"}
            self.note_failure(case)
        record: dict[str, Any] = {**asdict(machine), "case": case.name, **found}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        self.report(json.dumps(found))


def _checked_error(y: Tensor, exact: Tensor) -> float:
    error = relative_error(y, exact)
    if not math.isfinite(error):
        bad = int((~y.isfinite()).sum())
        raise UnwrittenOutputError(f"{bad} of {y.numel()} outputs are not finite")
    return error
