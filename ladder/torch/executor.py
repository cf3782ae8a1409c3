"""A compiled graph on torch tensors: called, bound to arrays, or captured in a CUDA graph.

run = model.on("cuda", islands="compile")
y = run(x)                   # any sizes; memory comes from torch's caching allocator
step = run.bind(x)           # outputs of kernels in one arena, planned for these sizes
step()
graph = run.capture(x)       # the same as a CUDA graph over copies of these inputs
y = graph(x)                 # copies x in, replays
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import torch

from ladder.checks import accept
from ladder.errors import GraphError, LaunchError
from ladder.graph.extent import bind, shape_of
from ladder.graph.graph import Graph
from ladder.graph.matmul import MatMul
from ladder.runtime.layer import Layer, weight_of
from ladder.runtime.packed import to_torch
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.torch.functions import torch_dtype
from ladder.torch.islands import HOW, Run, island_function
from ladder.torch.memory import Arena, Lifetime, arrange
from ladder.torch.places import (
    Place,
    ProductCall,
    RunQuantisation,
    plain_rows,
)
from ladder.torch.tasks import Island, Product, Quantisation, Task, tasks_of
from ladder.ttype import Quantized, compute_type

if TYPE_CHECKING:
    from ladder.graph.verify import Report

Tensor = Any
#: tensors by name; rows that were quantised are a pair of codes and scales
Values = dict[str, Any]
Sizes = dict[str, int]
#: sees a product: its task, x, the scales of x's rows or None, and y
Beside = Callable[[Product, Tensor, Union[Tensor, None], Tensor], None]


@dataclass
class Executor:
    """A graph on one place; see the module's docstring.

    Attributes:
        graph: what is computed.
        layers: its low-bit layers.
        place: where kernels run.
        islands: how operators between them run, ``"eager"`` or ``"compile"``.

    Raises:
        GraphError: torch does not run an operator.
        LaunchError: ``islands`` is another word.
    """

    graph: Graph
    layers: Sequence[Layer]
    place: Place
    islands: str = "eager"
    _functions: dict[Any, Run] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.islands = accept(self.islands, HOW, "islands", at="Model.on", error=LaunchError)
        plans = {one.node: one.plan for one in self.layers if one.plan is not None}
        kernels = {node: plan.op for node, plan in plans.items()}
        self.tasks = tasks_of(self.graph, kernels)
        self.plans: dict[str, Plan | PlanSet] = plans
        self.products: dict[str, ProductCall] = {}
        self._quantisations: dict[str, RunQuantisation] = {}
        self.matmuls: dict[str, MatMul] = kernels
        for task in self.tasks:
            if isinstance(task, Product):
                node = self.graph.node(task.node)
                weight = weight_of(self.graph, node)
                self.products[task.name] = self.place.product(
                    node.inputs[1], plans[task.node], weight
                )
            elif isinstance(task, Quantisation):
                k = task.source.shape[-1]
                assert isinstance(k, int)
                self._quantisations[task.name] = self.place.quantisation(
                    k, task.source.dtype, task.target
                )
        self._constants = self._placed()
        self._last = _last_uses(self.tasks, self.graph.outputs)
        self._dense = frozenset(
            task.x for task in self.tasks if isinstance(task, (Product, Quantisation))
        )

    # -- running ---------------------------------------------------------------------------------

    def __call__(self, *inputs: Tensor) -> Any:
        """Run on tensors of the place's device.

        Raises:
            GraphError: there are too few or too many inputs.
            ShapeError: an input does not have its shape.
            LaunchError: an input is on another device, or of another type.
        """
        values, sizes = self._inputs(inputs)
        return self._results(self._run(values, sizes, {}))

    def traced(self, inputs: Sequence[Tensor], beside: Beside) -> Any:
        """The same, with a look at every product: ``beside(task, x, x_scale, y)``."""
        values, sizes = self._inputs(inputs)
        return self._results(self._run(values, sizes, {}, beside))

    def verify(self, *inputs: Tensor) -> Report:
        """Each kernel beside float64 on the same operands, and the outputs beside the float64 meaning of the graph.

        See :func:`ladder.torch.meaning.verify`.
        """
        from ladder.torch.meaning import verify

        return verify(self, *inputs)

    def bind(self, *inputs: Tensor) -> Bound:
        """The call over these tensors, with memory for the kernels' outputs; every call of it overwrites its results."""
        values, sizes = self._inputs(inputs)
        return Bound(self, values, sizes, self._memory(sizes))

    def capture(self, *inputs: Tensor) -> Captured:
        """The call as a CUDA graph, over copies of these tensors.

        Raises:
            LaunchError: the place is no GPU.
        """
        if self.place.device.type != "cuda":
            raise LaunchError(
                f"the model runs on {self.place.device}",
                at="Executor.capture",
                hint="CUDA graphs are captured on a GPU: model.on('cuda')",
            )
        held = tuple(one.clone() for one in inputs)
        return Captured(self.bind(*held), held)

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights and of all other constants that lie on the device."""
        packed: dict[str, int] = {}
        for task in self.tasks:
            if isinstance(task, Product):
                packed[self.graph.node(task.node).inputs[1]] = self.products[task.name].nbytes
        return sum(packed.values()) + sum(int(one.nbytes) for one in self._constants.values())

    def constant(self, name: str) -> Tensor:
        """A constant on the device."""
        return self._constants[name]

    def _run(
        self,
        values: Values,
        sizes: Sizes,
        outs: Mapping[str, Any],
        beside: Beside | None = None,
    ) -> Values:
        """All tasks; what nobody reads any more is let go."""
        key = tuple(sorted(sizes.items()))
        for number, task in enumerate(self.tasks):
            match task:
                case Island():
                    function = self._function(number, task, key)
                    results = function(*(self._plain(values, name) for name in task.reads))
                    values.update(zip(task.writes, results, strict=True))
                case Product():
                    x, x_scale = self._rows(task, values)
                    y = self._product(task, values, (x, x_scale), outs.get(task.name))
                    values[task.name] = y
                    if beside is not None:
                        beside(task, x, x_scale, y)
                case Quantisation():
                    call = self._quantisations[task.name]
                    values[task.name] = call(self._plain(values, task.x), outs.get(task.name))
            for name in [one for one in values if self._last.get(one, -1) == number]:
                del values[name]
        return values

    def _rows(self, task: Product, values: Values) -> tuple[Tensor, Tensor | None]:
        """x as the kernel reads it, and the scales of its rows."""
        op, x, x_scale = self.matmuls[task.node], self._value(values, task.x), None
        if op.activation_scale:
            x, x_scale = x
        return x.to(getattr(torch, op.activation.dtype.name)).contiguous(), x_scale

    def _product(
        self, task: Product, values: Values, rows: tuple[Tensor, Tensor | None], out: Any
    ) -> Tensor:
        op, bias = self.matmuls[task.node], None
        if task.bias is not None:
            bias = self._value(values, task.bias).reshape(-1)
            bias = bias.expand(op.n).to(getattr(torch, op.out.name)).contiguous()
        return self.products[task.name].run(*rows, bias, out)

    def _function(self, number: int, island: Island, sizes: tuple[tuple[str, int], ...]) -> Run:
        key = (number, sizes)
        if key not in self._functions:
            self._functions[key] = island_function(
                island, dict(sizes), self.place.device, self._dense, self.islands
            )
        return self._functions[key]

    def _value(self, values: Values, name: str) -> Any:
        return values[name] if name in values else self._constants[name]

    def _plain(self, values: Values, name: str) -> Tensor:
        found = self._value(values, name)
        return plain_rows(found) if isinstance(found, tuple) else found

    def _results(self, values: Values) -> Any:
        results = tuple(self._plain(values, name) for name in self.graph.outputs)
        return results[0] if len(results) == 1 else results

    # -- operands --------------------------------------------------------------------------------

    def _placed(self) -> dict[str, Tensor]:
        """Constants that steps and kernels' biases read, on the device; a low-bit one as the numbers that it stands for."""
        wanted = {name for task in self.tasks for name in task.reads} | set(self.graph.outputs)
        found = {}
        for constant in self.graph.constants:
            if constant.name not in wanted:
                continue
            value = constant.value
            if isinstance(value, Quantized):
                dtype = torch_dtype(constant.type.with_().dtype)
                numbers = torch.from_numpy(value.dequantize())
                found[constant.name] = numbers.to(self.place.device).to(dtype)
            else:
                found[constant.name] = to_torch(value, self.place.device)
        return found

    def _inputs(self, given: Sequence[Tensor]) -> tuple[Values, Sizes]:
        if len(given) != len(self.graph.inputs):
            raise GraphError(
                f"{len(given)} inputs were given",
                at="Executor",
                hint="it takes "
                + ", ".join(f"{one.name}: {one.type}" for one in self.graph.inputs),
            )
        sizes = self.sizes_of(self.graph, given)
        for one, tensor in zip(self.graph.inputs, given, strict=True):
            at = f"input {one.name}: {one.type}"
            dtype = torch_dtype(one.type.dtype)
            if tensor.device != self.place.device or tensor.dtype != dtype:
                raise LaunchError(
                    f"the tensor is {tensor.dtype} on {tensor.device}",
                    at=at,
                    hint=f"give {dtype} on {self.place.device}",
                )
        names = [one.name for one in self.graph.inputs]
        return dict(zip(names, given, strict=True)), sizes

    @staticmethod
    def sizes_of(graph: Graph, given: Sequence[Tensor]) -> Sizes:
        """What the symbols of a graph's shapes are in a call.

        Raises:
            ShapeError: an input does not have its shape.
        """
        sizes: Sizes = {}
        for one, tensor in zip(graph.inputs, given, strict=True):
            bind(one.type.shape, tuple(tensor.shape), sizes, f"input {one.name}: {one.type}")
        return sizes

    # -- memory ----------------------------------------------------------------------------------

    def _memory(self, sizes: Sizes) -> dict[str, Any]:
        """Tensors for the outputs of all kernel calls: in one arena, but for those that the caller gets."""
        parts = {
            name: part
            for task in self.tasks
            if not isinstance(task, Island)
            for name, part in _parts(task, sizes).items()
        }
        numbers = {
            task.name: n for n, task in enumerate(self.tasks) if not isinstance(task, Island)
        }
        ends = _lifetimes(self.tasks, self._last)
        lives = {
            name: Lifetime(part.nbytes, numbers[part.value], ends[part.value])
            for name, part in parts.items()
            if part.value not in self.graph.outputs
        }
        self.arena: Arena = arrange(lives)
        memory = torch.empty(self.arena.nbytes, dtype=torch.uint8, device=self.place.device)
        outs: dict[str, Any] = {}
        for name, part in parts.items():
            if name in lives:
                start = self.arena.offsets[name]
                flat = memory[start : start + part.nbytes].view(part.dtype)
                tensor = flat.view(part.shape)
            else:
                tensor = torch.empty(part.shape, dtype=part.dtype, device=self.place.device)
            known = outs.get(part.value)
            outs[part.value] = tensor if known is None else (known, tensor)
        return outs


class Bound:
    """A call over fixed tensors."""

    def __init__(
        self, executor: Executor, values: Values, sizes: Sizes, outs: Mapping[str, Any]
    ) -> None:
        self._executor, self._values, self._sizes, self._outs = executor, values, sizes, outs

    def __call__(self) -> Any:
        """Run; the results of an earlier call are overwritten where kernels write them."""
        executor = self._executor
        return executor._results(  # noqa: SLF001 - a call of the same module's executor
            executor._run(dict(self._values), self._sizes, self._outs)  # noqa: SLF001
        )


class Captured:
    """A CUDA graph of a call.

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
        """Copy the inputs in, and replay; results are overwritten by the next call."""
        for mine, theirs in zip(self.inputs, inputs, strict=True):
            mine.copy_(theirs)
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


def _parts(task: Product | Quantisation, sizes: Sizes) -> dict[str, _Part]:
    """What a kernel call writes: its result, or codes and then scales."""
    if isinstance(task, Product):
        shape = shape_of(task.type.shape, sizes)
        return {task.name: _Part(task.name, shape, torch_dtype(task.type.dtype))}
    shape = shape_of(task.source.shape, sizes)
    codes = getattr(torch, compute_type(task.target).dtype.name)
    return {
        task.name: _Part(task.name, shape, codes),
        f"{task.name}/scales": _Part(task.name, shape[:-1], torch.float32),
    }


def _last_uses(tasks: Sequence[Task], outputs: Sequence[str]) -> dict[str, int]:
    """Number of the last task that reads each value; outputs stay."""
    last = {name: number for number, task in enumerate(tasks) for name in task.reads}
    return {name: number for name, number in last.items() if name not in outputs}


def _lifetimes(tasks: Sequence[Task], last: Mapping[str, int]) -> dict[str, int]:
    """Last task that may read the memory of each value: what an island writes may be views of what it reads."""
    ends = dict(last)
    end = len(tasks)
    for task in reversed(tasks):
        if isinstance(task, Island):
            needed = max((ends.get(name, end) for name in task.writes), default=0)
            for name in task.reads:
                ends[name] = max(ends.get(name, end), needed)
    for task in tasks:
        if not isinstance(task, Island):
            ends.setdefault(task.name, end)
    return ends


__all__ = ["Bound", "Captured", "Executor"]
