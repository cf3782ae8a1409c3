"""``ladder compile`` and ``ladder run``: from a request to a folder, and from a folder to a checked result."""

from __future__ import annotations

import json as json_module
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.cli.options import Json, Request, takes_request
from ladder.cli.show import Screen
from ladder.errors import LaunchError, ShapeError

if TYPE_CHECKING:
    from ladder.runtime.kernel import Kernel
    from ladder.runtime.packed import Packed
    from ladder.ttype import Quantized

Folder = Annotated[Path, typer.Argument(help="an artifact that `ladder compile` wrote")]
Tokens = Annotated[int, typer.Option("-m", help="tokens: rows of x", min=0)]
Seed = Annotated[int, typer.Option("--seed", help="of the random weights and activations", min=0)]


class Where(str, Enum):
    """Where a kernel runs."""

    auto = "auto"
    gpu = "gpu"
    emulator = "emulator"
    numpy = "numpy"


On = Annotated[
    Where,
    typer.Option("--on", help="auto: the GPU if there is one, else the plan in NumPy"),
]


@takes_request
def compile_kernel(
    request: Request,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder to write the kernel to")
    ] = None,
    *,
    source: Annotated[bool, typer.Option("--source", help="print the CUDA text")] = False,
    json: Json = False,
) -> None:
    """Compile a matmul for a device; no GPU is needed."""
    from ladder.runtime.build import compile_plan

    screen = Screen(as_json=json)
    plan = request.plan()
    start = time.perf_counter()
    with screen.working(f"compiling for {plan.device.name}"):
        kernel = compile_plan(plan)
    seconds = time.perf_counter() - start
    folder = None if output is None else kernel.save(output)
    screen.data(_compiled(kernel, folder, seconds))
    if source:
        screen.text(kernel.source)
        return
    screen.text(str(kernel))
    compiler = "no CUDA compiler: text only" if kernel.toolchain == "none" else kernel.toolchain
    screen.text(f"{compiler}, {seconds:.2f} s")
    if folder is not None:
        screen.text(f"written to {folder}")


def _compiled(kernel: Kernel, folder: Path | None, seconds: float) -> dict[str, Any]:
    return {
        "kernels": [
            {
                "name": variant.lowered.name,
                "launch": str(variant.lowered.launch),
                "cubins": {arch: len(cubin.code) for arch, cubin in variant.cubins.items()},
            }
            for variant in kernel.variants
        ],
        "plan": json_module.loads(kernel.plan.to_json()),
        "source": kernel.source,
        "toolchain": kernel.toolchain,
        "folder": None if folder is None else str(folder),
        "seconds": seconds,
    }


@dataclass(frozen=True)
class Problem:
    """Random operands for a kernel, and the exact answer.

    Attributes:
        x: activations ``[m, k]``.
        weights: quantised weights ``[n, k]``.
        bias: ``[n]`` or None.
        x_scale: float32 ``[m]`` or None.
        residual: ``[m, out_n]`` or None.
        exact: float64 ``[m, out_n]``.
    """

    x: Any
    weights: Quantized
    bias: Any
    x_scale: Any
    residual: Any
    exact: Any

    @classmethod
    def random(cls, kernel: Kernel, m: int, seed: int) -> Problem:
        """Normal weights and activations; the weights are quantised, and that is what is exact."""
        import numpy as np

        from ladder.graph.draw import activations, residuals, row_scales
        from ladder.ttype import quantize

        op = kernel.plan.op
        if op.m not in (None, m):
            raise ShapeError(
                f"the kernel is for m = {op.m}, not {m}",
                at="-m",
                hint="compile without -m for any m",
            )
        rng = np.random.default_rng(seed)
        weights = quantize(rng.standard_normal((op.n, op.k), np.float32), op.weight)
        try:
            x = activations(op, rng, m)
        except (MemoryError, ValueError) as error:  # NumPy's two words for too many elements
            raise ShapeError(
                f"an x of {m} rows cannot be made: {error}", at="-m", hint="fewer tokens"
            ) from error
        bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
        beside = (bias, row_scales(op, rng, m), residuals(op, rng, m))
        exact = op.reference(x, weights, *beside)
        return cls(op.activation.pack(x), weights, *beside, exact)

    def error(self, y: Any) -> float:
        """Relative error: 2-norm of the difference over the 2-norm of the exact answer."""
        import numpy as np

        size = float(np.linalg.norm(self.exact))
        gap = float(np.linalg.norm(np.asarray(y).astype(np.float64) - self.exact))
        return gap / size if size else gap


def run(
    folder: Folder,
    m: Tokens = 1,
    on: On = Where.auto,
    seed: Seed = 0,
    *,
    emulate: Annotated[bool, typer.Option("--emulate", help="the same as --on emulator")] = False,
    json: Json = False,
) -> None:
    """Run a compiled kernel on random operands, and print its error against float64."""
    from ladder.runtime.load import load

    screen = Screen(as_json=json)
    kernel = load(folder)
    with screen.working("making operands"):
        problem = Problem.random(kernel, m, seed)
    place = place_for(kernel, Where.emulator if emulate else on)
    start = time.perf_counter()
    with screen.working(f"running on {place}"):
        y = _compute(kernel, problem, place)
    seconds = time.perf_counter() - start
    error = problem.error(y)
    op = kernel.plan.op
    screen.data({"operator": str(op), "m": m, "on": place, "error": error, "seconds": seconds})
    screen.text(
        f"{op}\nm = {m} on {place}: relative error {error:.2e}, {seconds:.3g} s with packing"
    )


def place_for(kernel: Kernel, on: Where) -> str:
    """``gpu``, ``emulator`` or ``numpy``.

    Raises:
        LaunchError: a GPU was asked for and there is none.
    """
    if on is not Where.auto:
        return str(on.value)
    try:
        found = kernel.launcher.driver.device_count()
    except LaunchError:
        found = 0
    return "gpu" if found else "numpy"


def _compute(kernel: Kernel, problem: Problem, place: str) -> Any:
    if place == Where.numpy.value:
        beside = (problem.bias, problem.x_scale, problem.residual)
        return kernel.plan.run(problem.x, problem.weights, *beside)
    device = "emulator" if place == Where.emulator.value else "cuda"
    return call(kernel, problem, kernel.pack(problem.weights), device)


def call(kernel: Kernel, problem: Problem, packed: Packed, device: str | None = None) -> Any:
    """What a kernel makes of a problem's operands."""
    beside = (problem.x_scale, problem.bias)
    return kernel(problem.x, packed, *beside, device=device, residual=problem.residual)
