"""A compiled graph on torch tensors: called, bound to arrays, or captured in a CUDA graph.

run = model.on("cuda", islands="compile")
y = run(x)                   # any sizes; memory comes from torch's caching allocator
step = run.bind(x)           # outputs of kernels in one arena, planned for these sizes
step()
graph = run.capture(x)       # the same as a CUDA graph over copies of these inputs
y = graph(x)                 # copies x in, replays
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ladder.checks import accept
from ladder.errors import LaunchError
from ladder.graph.constant import Constant
from ladder.graph.graph import Graph
from ladder.graph.matmul import MatMul
from ladder.graph.operators import Coded
from ladder.runtime.layer import Layer, weight_of
from ladder.runtime.packed import to_torch
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.torch.bound import Bound, Captured
from ladder.torch.functions import torch_dtype
from ladder.torch.inputs import Sizes, check_inputs
from ladder.torch.islands import HOW, Run, island_function
from ladder.torch.places import (
    Given,
    Place,
    ProductCall,
    RunQuantisation,
    into,
    plain_rows,
)
from ladder.torch.static_codes import static_rows, with_scales
from ladder.torch.tasks import Island, Product, Quantisation, last_uses, tasks_of
from ladder.ttype import Quantized

if TYPE_CHECKING:
    from ladder.graph.verify import Report

Tensor = Any
#: tensors by name; rows that were quantised are a pair of codes and scales
Values = dict[str, Any]
#: functions of islands that are kept, each for its sizes: a cache that grows by a token makes new ones at every call
KEPT = 256
#: sees a product: its task, what its kernel was given, and y
Beside = Callable[[Product, Given, Tensor], None]


def _static_rows(step: Coded, x: Tensor, out: Any) -> tuple[Tensor, Tensor]:
    """Rows quantised by a scale that is known before: no kernel is needed to find it."""
    pair: tuple[Tensor, Tensor] = into(out, static_rows(x, step))
    return pair


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
                self._quantisations[task.name] = (
                    self.place.quantisation(k, task.source.dtype, task.target)
                    if task.coded is None
                    else partial(_static_rows, task.coded)
                )
        self._constants = self._placed()
        self.last = last_uses(self.tasks, self.graph.outputs)
        self._dense = frozenset(
            name for task in self.tasks if not isinstance(task, Island) for name in task.reads
        )

    # -- running ---------------------------------------------------------------------------------

    def __call__(self, *inputs: Tensor) -> Any:
        """Run on tensors of the place's device.

        Raises:
            GraphError: there are too few or too many inputs.
            ShapeError: an input does not have its shape.
            LaunchError: an input is no dense tensor, is on another device or of another type, or requires a gradient.
        """
        values, sizes = self._inputs(inputs)
        return self.results(self.run(values, sizes, {}))

    def traced(self, inputs: Sequence[Tensor], beside: Beside) -> Any:
        """The same, with a look at every product: ``beside(task, given, y)``."""
        values, sizes = self._inputs(inputs)
        return self.results(self.run(values, sizes, {}, beside))

    def verify(self, *inputs: Tensor) -> Report:
        """Each kernel beside float64 on the same operands, and the outputs beside the float64 meaning of the graph.

        See :func:`ladder.torch.meaning.verify`.
        """
        from ladder.torch.meaning import verify

        return verify(self, *inputs)

    def bind(self, *inputs: Tensor) -> Bound:
        """The call over these tensors, with memory for the kernels' outputs; every call of it overwrites its results."""
        values, sizes = self._inputs(inputs)
        return Bound(self, values, sizes)

    def capture(self, *inputs: Tensor) -> Captured:
        """The call as a CUDA graph, over copies of these tensors.

        Raises:
            LaunchError: the place is no GPU, or an input does not fit; other errors are those of a call.
        """
        if self.place.device.type != "cuda":
            raise LaunchError(
                f"the model runs on {self.place.device}",
                at="Executor.capture",
                hint="CUDA graphs are captured on a GPU: model.on('cuda')",
            )
        values, _ = self._inputs(inputs)
        held = tuple(one.clone() for one in values.values())
        return Captured(self.bind(*held), held)

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled.

        Raises:
            LaunchError: always: it holds memory and functions of this process.
        """
        raise LaunchError(
            "an executor stays in its process",
            at=f"Executor on {self.place.device}",
            hint="pickle or save the model, and call model.on(...) in the other one",
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights and of all other constants that lie on the device."""
        packed: dict[tuple[str, Packing], int] = {}
        for task in self.tasks:
            if isinstance(task, Product):
                key = (self.graph.node(task.node).inputs[1], self.plans[task.node].packing)
                packed[key] = self.products[task.name].nbytes
        return sum(packed.values()) + sum(int(one.nbytes) for one in self._constants.values())

    def constant(self, name: str) -> Tensor:
        """A constant on the device."""
        return self._constants[name]

    def run(
        self,
        values: Values,
        sizes: Sizes,
        outs: Mapping[str, Any],
        beside: Beside | None = None,
    ) -> Values:
        """The values of all tasks; ``outs`` has memory for some, and what nobody reads any more is let go."""
        key = tuple(sorted(sizes.items()))
        for number, task in enumerate(self.tasks):
            match task:
                case Island():
                    function = self._function(number, task, key)
                    results = function(*(self._plain(values, name) for name in task.reads))
                    values.update(zip(task.writes, results, strict=True))
                case Product():
                    given = self._given(task, values)
                    y = self.products[task.name].run(given, outs.get(task.name))
                    codes = self.matmuls[task.node].codes
                    values[task.name] = y if codes is None else with_scales(y, codes)
                    if beside is not None:
                        beside(task, given, y)
                case Quantisation():
                    call = self._quantisations[task.name]
                    values[task.name] = call(self._plain(values, task.x), outs.get(task.name))
            for name in [one for one in values if self.last.get(one, -1) == number]:
                del values[name]
        return values

    def _given(self, task: Product, values: Values) -> Given:
        """The operands of a kernel in its types; rows that were quantised as codes and scales."""
        op = self.matmuls[task.node]
        out = getattr(torch, op.out.name)
        x, x_scale = self._value(values, task.x), None
        if op.activation_scale:
            x, x_scale = x
        bias = residual = None
        if task.bias is not None:
            bias = self._value(values, task.bias).reshape(-1).expand(op.n).to(out).contiguous()
        if task.residual is not None:
            residual = self._plain(values, task.residual).to(out).contiguous()
        x = x.to(getattr(torch, op.activation.dtype.name)).contiguous()
        return Given(x, bias, x_scale, residual)

    def _function(self, number: int, island: Island, sizes: tuple[tuple[str, int], ...]) -> Run:
        key = (number, sizes)
        if key not in self._functions:
            if len(self._functions) >= KEPT:
                self._functions.clear()
            self._functions[key] = island_function(
                island, dict(sizes), self.place.device, self._dense, self.islands
            )
        return self._functions[key]

    def _value(self, values: Values, name: str) -> Any:
        return values[name] if name in values else self._constants[name]

    def _plain(self, values: Values, name: str) -> Tensor:
        found = self._value(values, name)
        return plain_rows(found) if isinstance(found, tuple) else found

    def results(self, values: Values) -> Any:
        """The graph's outputs: a tensor, or a tuple of them."""
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
                numbers = torch.from_numpy(value.dequantize()).to(self.place.device)
                found[constant.name] = numbers.to(torch_dtype(self._dense_type(constant)))
            else:
                found[constant.name] = to_torch(value, self.place.device)
        return found

    def _dense_type(self, constant: Constant) -> str:
        """The type in which a low-bit constant's numbers are held: that of its scales, or of a wider result made of it."""
        made = {node.type.dtype for node, _ in self.graph.users[constant.name]}
        wide = next((one for one in ("float64", "float32") if one in made), None)
        return wide or constant.type.with_().dtype

    def _inputs(self, given: Sequence[Any]) -> tuple[Values, Sizes]:
        return check_inputs(self.graph, given, self.place.device)
