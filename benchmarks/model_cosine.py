"""What roundings between kernels cost a whole model at full size: the cosine of its outputs, on the CPU.

    python -m benchmarks.model_cosine --model llama-3-8b --rule int8-int8

Products are computed in float64 from the operands that the kernels get and rounded to the kernels' output types; all else runs as
on a GPU, by torch in the types of the graph. A layer takes a minute or two on two cores, and as much memory as its largest
weight in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import torch
import typer

from benchmarks.model_cases import PROMPT, RULES, Case, Phase, cases, imported, typed
from benchmarks.models import COSINE_BAR
from ladder.runtime.layer import Layer, low_bit, matmul_of
from ladder.torch import meaning
from ladder.torch.executor import Executor
from ladder.torch.functions import apply_step
from ladder.torch.places import Given, ProductCall, RunQuantisation, into, quantize_rows

PLACE = torch.device("cpu")


@dataclass(frozen=True)
class Exactly:
    """A place whose kernels round nothing but their outputs; see :class:`ladder.torch.places.Place`."""

    device: Any = PLACE

    def product(self, name: str, plan: Any, weight: Any) -> ProductCall:  # noqa: ARG002
        """The product in float64, its epilogue too, rounded to the kernel's output type."""
        op = plan.op

        def run(given: Given, out: Any) -> Any:
            y = given.x.double() @ meaning.dequantized(weight, self.device).T
            if given.x_scale is not None:
                y = y * given.x_scale.double()[..., None]
            if given.bias is not None:
                y = y + given.bias.double()
            added = () if given.residual is None else (given.residual.double(),)
            for step in op.epilogue:
                y = apply_step(step, y, added if step.operands else ())
            return into(out, y.to(getattr(torch, op.out.name)))

        return ProductCall(run, weight.nbytes)

    def quantisation(self, k: int, source: str, target: str) -> RunQuantisation:  # noqa: ARG002
        """Rows by torch's operators, whose codes are the kernel's."""
        return lambda x, out: into(out, quantize_rows(x, target))


def cosine_of(case: Case, phase: Phase, rule: str, *, small: bool = False) -> float:
    """The least cosine of a model's outputs beside the float64 meaning of its graph."""
    torch.manual_seed(0)
    module = case.module(small, str(PLACE))
    graph = typed(imported(case, phase, module, str(PLACE), small=small), rule, {})
    del module
    # of a plan this place reads the operator alone
    plans: Any = {node.name: SimpleNamespace(op=matmul_of(graph, node)) for node in low_bit(graph)}
    executor = Executor(graph, [Layer(name, plan) for name, plan in plans.items()], Exactly())
    inputs, _ = case.inputs(small, phase, str(PLACE))
    with torch.no_grad():
        found, wanted = executor(*inputs), meaning.run(graph, inputs)
    if not isinstance(found, tuple):
        return meaning.cosine(found, wanted)
    return min(meaning.cosine(a, b) for a, b in zip(found, wanted, strict=True))


def main(
    model: Annotated[str, typer.Option("--model", help="of benchmarks.model_cases")],
    rule: Annotated[str, typer.Option("--rule", help=", ".join(RULES))] = "int8-int8",
) -> None:
    """Print the cosine of a prompt; the exit code is 1 where it misses the bar."""
    case = cases()[model]
    phase = PROMPT if PROMPT in case.phases else case.phases[-1]
    found = cosine_of(case, phase, rule)
    print(f"{model}, {rule}, {phase}: cosine {found:.6f}, bar {COSINE_BAR}")
    raise typer.Exit(0 if found >= COSINE_BAR else 1)


if __name__ == "__main__":
    typer.run(main)
