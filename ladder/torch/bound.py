"""A call over fixed tensors, with memory for the outputs of kernels that is planned once; and the same as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ladder.graph.extent import shape_of
from ladder.runtime.plain import check_gradient
from ladder.torch.functions import torch_dtype
from ladder.torch.inputs import copy_inputs
from ladder.torch.memory import Arena, Lifetime, arrange
from ladder.torch.tasks import Call, Island, Product, last_views
from ladder.ttype import compute_type

if TYPE_CHECKING:
    from ladder.torch.executor import Executor

Tensor = Any


class Bound:
    """A call over fixed tensors; :meth:`Executor.bind` makes one.

    Attributes:
        arena: where the outputs of kernels lie, but for those that the caller gets.
    """

    def __init__(self, executor: Executor, values: dict[str, Any], sizes: dict[str, int]) -> None:
        self._executor, self._values, self._sizes = executor, values, sizes
        parts = {
            name: part
            for task in executor.tasks
            if not isinstance(task, Island)
            for name, part in _parts(task, sizes).items()
        }
        lives = _lives(executor, parts)
        self.arena: Arena = arrange(lives)
        self._outs = _tensors(parts, self.arena, executor.place.device)

    def __call__(self) -> Any:
        """Run; the results of an earlier call are overwritten where kernels write them.

        Raises:
            LaunchError: an input requires a gradient by now.
        """
        executor = self._executor
        for name, tensor in self._values.items():
            check_gradient(tensor, f"input {name}")
        return executor.results(executor.run(dict(self._values), self._sizes, self._outs))


class Captured:
    """A CUDA graph of a call; :meth:`Executor.capture` makes one.

    Attributes:
        inputs: tensors that a replay reads.
        outputs: tensors that it writes: one, or a tuple.
    """

    #: calls before the capture: kernels are loaded, islands compiled, libraries make their workspaces
    WARM_UP = 2

    def __init__(self, bound: Bound, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = inputs
        stream = torch.cuda.Stream(inputs[0].device)
        stream.wait_stream(torch.cuda.current_stream(inputs[0].device))
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(self.WARM_UP):
                bound()
        torch.cuda.current_stream(inputs[0].device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph), torch.no_grad():
            self.outputs = bound()
        self._bound = bound  # its arena is part of the graph

    def replay(self) -> Any:
        """Run on what :attr:`inputs` hold."""
        self._graph.replay()
        return self.outputs

    def __call__(self, *inputs: Tensor) -> Any:
        """Copy the inputs in, and replay; results are overwritten by the next call.

        Raises:
            GraphError: there are too few or too many inputs.
            LaunchError: one is no dense tensor, has another shape or type than was captured, or requires a gradient.
        """
        copy_inputs(self.inputs, inputs)
        return self.replay()


@dataclass(frozen=True)
class _Part:
    """One tensor that a kernel writes: of the value ``value``."""

    value: str
    shape: tuple[int, ...]
    dtype: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)


def _parts(task: Call, sizes: Mapping[str, int]) -> dict[str, _Part]:
    """What a kernel call writes: its result, or codes and then scales."""
    if isinstance(task, Product):
        shape = shape_of(task.type.shape, sizes)
        return {task.name: _Part(task.name, shape, torch_dtype(task.type.element))}
    shape = shape_of(task.source.shape, sizes)
    codes = getattr(torch, compute_type(task.target).dtype.name)
    return {
        task.name: _Part(task.name, shape, codes),
        f"{task.name}/scales": _Part(task.name, shape[:-1], torch.float32),
    }


def _lives(executor: Executor, parts: Mapping[str, _Part]) -> dict[str, Lifetime]:
    """When each output is needed; those that the caller gets have memory of their own."""
    first = {
        task.name: number
        for number, task in enumerate(executor.tasks)
        if not isinstance(task, Island)
    }
    ends = last_views(executor.tasks, executor.last)
    return {
        name: Lifetime(part.nbytes, first[part.value], ends[part.value])
        for name, part in parts.items()
        if part.value not in executor.graph.outputs
    }


def _tensors(parts: Mapping[str, _Part], arena: Arena, device: Any) -> dict[str, Any]:
    """The outputs of each value's kernel: a tensor, or codes and scales."""
    memory = torch.empty(arena.nbytes, dtype=torch.uint8, device=device)
    found: dict[str, Any] = {}
    for name, part in parts.items():
        start = arena.offsets.get(name)
        if start is None:
            tensor = torch.empty(part.shape, dtype=part.dtype, device=device)
        else:
            tensor = memory[start : start + part.nbytes].view(part.dtype).view(part.shape)
        known = found.get(part.value)
        found[part.value] = tensor if known is None else (known, tensor)
    return found
