"""Islands as functions of tensors, run operator by operator or compiled by torch."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from ladder.checks import one_of
from ladder.graph.extent import Sizes
from ladder.graph.operators import EpilogueStep
from ladder.torch.functions import apply_step, function_of, torch_dtype
from ladder.torch.tasks import Island, Step

Tensor = Any
#: from the tensors that an island reads to those that it writes
Run = Callable[..., tuple[Tensor, ...]]

#: how islands run: by torch's own kernels, one after the other, or compiled by ``torch.compile``
HOW = one_of(("eager", "compile"))


def island_function(
    island: Island, sizes: Sizes, device: Any, dense: frozenset[str], how: str = "eager"
) -> Run:
    """The function of an island for a call's sizes.

    Args:
        island: its steps.
        sizes: of symbols.
        device: of tensors that it makes of nothing.
        dense: names of results that have to be contiguous, because a kernel reads them.
        how: see :data:`HOW`.

    Raises:
        GraphError: torch does not run an operator.
    """
    steps = [(step.name, step.reads, _step(step, sizes, device)) for step in island.steps]
    names, writes = island.reads, [(name, name in dense) for name in island.writes]

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        values = dict(zip(names, given, strict=True))
        for name, reads, function in steps:
            values[name] = function(*[values[one] for one in reads])
        return tuple(
            values[name].contiguous() if is_dense else values[name] for name, is_dense in writes
        )

    if how == "eager":
        return run
    compiled: Run = torch.compile(_apart(run), fullgraph=True, dynamic=False)
    return compiled


def _apart(run: Any) -> Any:
    """A function with code of its own: torch.compile counts what it compiles of one code object, and gives up after eight."""
    code = run.__code__.replace()
    return FunctionType(code, run.__globals__, run.__name__, run.__defaults__, run.__closure__)


def _step(step: Step, sizes: Sizes, device: Any) -> Callable[..., Tensor]:
    """A step whose result has the type of its edge."""
    dtype = torch_dtype(step.type.dtype)
    op = step.op
    if isinstance(op, EpilogueStep):
        return lambda y, *operands: apply_step(op, y, operands).to(dtype)
    function = function_of(op, sizes, device)
    return lambda *operands: function(*operands).to(dtype)
