"""A model that is ready to run: a graph, and a plan for each of its low-bit layers.

Without a GPU it runs by meaning, in one of two ways: the float64 meaning of the graph, or, slower, with each low-bit layer run
by the NumPy meaning of its plan, which rounds where the kernel rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ladder.checks import (
    PATH,
    Expected,
    accept,
    accept_fields,
    instance,
    one_of,
    optional,
    several,
    shown,
)
from ladder.errors import GraphError, LadderError, LaunchError
from ladder.files import Contents, load_document, replacing, save_document
from ladder.graph.epilogue import with_operands
from ladder.graph.graph import GRAPH, Graph, Node
from ladder.graph.interpret import ForeignFunctions, inputs_of, trace
from ladder.graph.matmul import MatMul
from ladder.graph.operators import Linear, QuantizeTokens
from ladder.graph.serial import ARRAYS
from ladder.graph.serial import GRAPH as GRAPH_FILE
from ladder.graph.serial import load as load_graph
from ladder.graph.serial import write as write_graph
from ladder.graph.tensor import DTYPES, FLOATS, Array, TensorType
from ladder.graph.verify import Report, Row, cosine, refuse_empty, relative
from ladder.model.built import KERNELS, RECORD, WEIGHTS, Built, build
from ladder.model.built import load as load_built
from ladder.runtime.choices import schedule
from ladder.runtime.error_bar import bar_on
from ladder.runtime.layer import Layer, kernel_operands, low_bit, matmul_of, rest_of
from ladder.runtime.plain import check_gradient
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet

if TYPE_CHECKING:
    from ladder.torch.executor import Executor

FORMAT = "ladder.model/2"
PLANS = "plans.json"
CONTENTS = Contents("model", GRAPH_FILE, (ARRAYS, PLANS, RECORD, KERNELS, WEIGHTS))
LAYER: Expected[Layer] = Expected(
    "a Layer",
    lambda value: isinstance(value, Layer) and isinstance(value.plan, (Plan, PlanSet, type(None))),
    lambda value: value,
    "compile_graph(graph) plans them",
)
MODES = one_of(("meaning", "plan"))


#: what the fields of a model have to be
FIELDS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "graph": GRAPH,
        "layers": several(LAYER, "a tuple of Layer"),
        "built": optional(instance(Built, "model.build() makes one")),
    }
)


@dataclass(frozen=True)
class Model:
    """A compiled graph; :func:`compile_graph` makes one.

    Attributes:
        graph: what is computed.
        layers: its low-bit layers in order.
        built: its kernels and packed weights; None before :meth:`build`.

    Raises:
        GraphError: a field is of another kind, the layers are not those of the graph, or a plan is of another operator than
            its layer.
    """

    graph: Graph
    layers: tuple[Layer, ...]
    built: Built | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        accept_fields(self, FIELDS, at="Model", error=GraphError)
        nodes = [node.name for node in low_bit(self.graph)]
        if (names := [layer.node for layer in self.layers]) != nodes:
            raise GraphError(
                f"there are plans for the layers {shown(names)}, the graph has {shown(nodes)}",
                at="Model",
                hint="compile_graph(graph) plans them",
            )
        for layer in self.layers:
            if layer.plan is None:
                continue
            op = matmul_of(self.graph, self.graph.node(layer.node))
            if layer.plan.op != op:
                raise GraphError(
                    f"the plan of {layer.node} is of {layer.plan.op}, the layer is {op}",
                    at="Model",
                    hint="compile_graph(graph) plans it",
                )

    def __call__(
        self, *inputs: Any, mode: str | None = None, foreign: ForeignFunctions | None = None
    ) -> Any:
        """Run on arrays or torch tensors; the results are of the first input's library and the graph's types.

        Args:
            inputs: as the graph's.
            mode: None to run tensors of a GPU there, by kernels and torch's operators, and all else by meaning;
                ``"meaning"`` for float64 throughout, ``"plan"`` for low-bit layers by the NumPy meaning of their plans.
            foreign: functions of operators that were left to the caller's framework; not on a GPU.

        Raises:
            GraphError: there are too few or too many inputs.
            ShapeError: an input does not have its shape.
            LaunchError: the mode is unknown, or an input requires a gradient; on a GPU also as an executor raises it.
        """
        for place, one in enumerate(inputs):
            check_gradient(one, f"input {place}")
        if mode is None and inputs and getattr(inputs[0], "is_cuda", False):
            return self.on(inputs[0].device)(*inputs)
        mode = accept(
            "meaning" if mode is None else mode, MODES, "mode", at="Model", error=LaunchError
        )
        values = trace(
            self.graph,
            inputs,
            foreign=foreign,
            keep=self.graph.outputs,
            instead=self._by_plan if mode == "plan" else None,
        )
        results = tuple(
            _like(inputs, values[name], self.graph.types[name]) for name in self.graph.outputs
        )
        return results[0] if len(results) == 1 else results

    def build(self) -> Model:
        """The model with its kernels compiled and its weights packed: it runs, and is saved and loaded, without TVM.

        Raises:
            LoweringError: TVM is missing and the cache lacks a kernel.
            ToolchainError: the compiler refused a kernel.
        """
        return replace(self, built=build(self.graph, self.layers, self.device))

    def on(self, place: Any = "cuda", *, islands: str = "eager", builder: Any = None) -> Executor:
        """The model ready to run on torch tensors, its weights packed and put there once; kept for the next time.

        Args:
            place: a device of torch, or its name (``"cuda:1"``); ``"emulator"`` runs kernels' instructions on the CPU, and
                ``"cpu"`` the NumPy meaning of plans, both for tensors of the CPU.
            islands: how operators between kernels run, ``"eager"``, or ``"compile"`` for torch.compile.
            builder: where kernels come from, a :class:`~ladder.torch.places.Builder`; None for those that were built, or to
                compile them through the cache.

        Raises:
            LaunchError: there is no such place, torch finds no GPU, or torch itself is missing.
            GraphError: torch does not run an operator of the graph.
            LoweringError: TVM is missing, and the cache lacks a kernel.
        """
        try:
            from ladder.torch.executor import Executor
            from ladder.torch.places import place_of
        except ModuleNotFoundError as error:
            raise LaunchError(
                f"a model runs on torch: {error}", at="Model.on", hint="pip install 'ladder[torch]'"
            ) from error

        if builder is None:
            builder = self.built or self._compiler
        where = place_of(place, builder, self.device)
        key = (type(where), where.device, islands, id(builder))  # which the executor's place holds
        if key not in self._executors:
            self._executors[key] = Executor(self.graph, self.layers, where, islands)
        return self._executors[key]

    @cached_property
    def _compiler(self) -> Any:
        from ladder.torch.places import Compiler

        return Compiler()

    @cached_property
    def _executors(self) -> dict[Any, Executor]:
        return {}

    @property
    def device(self) -> Any:
        """The device that the layers were planned for; the default one where no layer has a plan."""
        return next((plan.device for plan in self._plans.values()), "h200")

    def plan_of(self, node: str) -> Plan | PlanSet | None:
        """The plan of a layer; None for a node that has none."""
        return next((layer.plan for layer in self.layers if layer.node == node), None)

    @property
    def _plans(self) -> Mapping[str, Plan | PlanSet]:
        return {layer.node: layer.plan for layer in self.layers if layer.plan is not None}

    def _by_plan(self, node: Node, operands: Sequence[Array]) -> Array | None:
        """A node as kernels compute it: products by their plans, quantised rows from what 16 bits hold."""
        if isinstance(node.op, QuantizeTokens):
            source = DTYPES[self.graph.types[node.inputs[0]].element][0]
            return node.op.evaluate(operands[0].astype(source).astype(np.float64), sizes={})
        plan = self._plans.get(node.name)
        if plan is None:
            return None
        return _run_plan(self.graph, node, plan, operands)

    def verify(self, *inputs: Any) -> Report:
        """Each layer's plan beside its float64 meaning on the same operands, within the derived error bar of its operator.

        The cosine of the report is that of the outputs when all layers run by their plans.

        Raises:
            GraphError: there are too few or too many inputs, or a layer has no rows with them.
            ShapeError: an input does not have its shape.
        """
        refuse_empty(self.graph, inputs_of(self.graph, inputs)[1])
        rows: list[Row] = []
        by_plan = {name: self._row(rows) for name in self._plans}

        def beside(node: Node, operands: Sequence[Array]) -> Array | None:
            if node.name in by_plan:
                by_plan[node.name](node, operands)
            return None

        exact = trace(self.graph, inputs, keep=self.graph.outputs, instead=beside)
        rounded = trace(self.graph, inputs, keep=self.graph.outputs, instead=self._by_plan)
        cosines = [cosine(rounded[name], exact[name]) for name in self.graph.outputs]
        return Report(tuple(rows), min(cosines, default=1.0))

    def _row(self, rows: list[Row]) -> Callable[[Node, Sequence[Array]], None]:
        def measure(node: Node, operands: Sequence[Array]) -> None:
            plan = self._plans[node.name]
            given = kernel_operands(self.graph, node, plan.op, operands)
            got = plan.run(*given).astype(np.float64)
            want = plan.op.reference(*given)
            x_scale = 1 if given.x_scale is None else given.x_scale[..., None]
            rows_of_x = given.x.astype(np.float64) * x_scale
            bar = bar_on(plan, rows_of_x, given.weight.dequantize())
            rows.append(
                Row(
                    node.name,
                    node.origin,
                    str(plan.op),
                    relative(got, want),
                    bar,
                    cosine(got, want),
                )
            )

        return measure

    def explain(self) -> str:
        """The graph's decisions, then the plan of each layer, or why it has none."""
        lines = [self.graph.explain(), ""]
        for layer in self.layers:
            how = f"left to its meaning: {layer.why}" if layer.plan is None else str(layer.plan)
            lines.append(f"{layer.node}: {how}")
        return "\n".join(lines)

    def save(self, folder: Any) -> None:
        """Write a folder that :meth:`load` reads, without TVM; of a model that was built, with its kernels and packed weights.

        It is written whole or not at all; a model, or a graph, that stands there is replaced.

        Raises:
            GraphError: the folder holds something else, or cannot be written.
        """
        path = accept(folder, PATH, "folder", at="Model.save", error=GraphError)
        records = [
            {"node": layer.node, "why": layer.why, **self._plan_record(layer.plan)}
            for layer in self.layers
        ]
        with replacing(path, CONTENTS, at="Model.save", error=GraphError) as new:
            write_graph(self.graph, new)
            if self.built is not None:
                self.built.write(new)
            save_document(new / PLANS, {"format": FORMAT, "layers": records})

    def _plan_record(self, plan: Plan | PlanSet | None) -> dict[str, Any]:
        """A plan as text, or the number of the kernel that was built of it, which has the plan."""
        if self.built is not None and plan is not None:
            return {"kernel": list(self.built.kernels).index(plan)}
        return {
            "set": isinstance(plan, PlanSet),
            "plan": None if plan is None else plan.to_json(),
        }

    @classmethod
    def load(cls, folder: Any) -> Model:
        """Read what :meth:`save` wrote.

        Raises:
            GraphError: the folder holds no model, or one that cannot be read.
            ArtifactError: it is of another version, or a file is not as it was written.
            PlanError: a plan cannot be read.
        """
        path = accept(folder, PATH, "folder", at="Model.load", error=GraphError)
        graph, built = load_graph(path), load_built(path)
        try:
            records = load_document(path / PLANS, FORMAT)["layers"]
            plans = () if built is None else tuple(built.kernels)
            layers = tuple(_layer(record, plans) for record in records)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise GraphError(
                f"the model cannot be read: {error}", at=path, hint="save it again"
            ) from error
        return cls(graph, layers, built)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what lies on devices: another process calls :meth:`on` itself."""
        return (Model, (self.graph, self.layers, self.built))

    def __str__(self) -> str:
        planned = len(self._plans)
        return f"{self.graph}\n{planned} of {len(self.layers)} low-bit layers have plans"


def compile_graph(graph: Graph, device: Any = "h200") -> Model:
    """Choose a plan for each low-bit layer of a graph.

    A layer that no kernel takes runs by its meaning, and :meth:`Model.explain` says why; equal operators share one plan.

    Raises:
        GraphError: what was given is no graph.
        DeviceError: the name of the device is unknown.
    """
    graph = accept(graph, GRAPH, "graph", at="compile_graph", error=GraphError)
    plans: dict[MatMul, Plan | PlanSet] = {}
    layers = []
    for node in low_bit(graph):
        try:
            op = matmul_of(graph, node)
        except LadderError as error:
            layers.append(Layer(node.name, None, error.what))
            continue
        if op not in plans:
            plans[op] = schedule(op, device)
        layers.append(Layer(node.name, plans[op]))
    return Model(graph, tuple(layers))


def _layer(record: Mapping[str, Any], built: Sequence[Any]) -> Layer:
    if "kernel" in record:
        return Layer(record["node"], built[record["kernel"]], record["why"])
    text = record["plan"]
    plan: Plan | PlanSet | None = None
    if text is not None:
        plan = PlanSet.from_json(text) if record["set"] else Plan.from_json(text)
    return Layer(record["node"], plan, record["why"])


def _run_plan(graph: Graph, node: Node, plan: Plan | PlanSet, operands: Sequence[Array]) -> Array:
    """A layer by its plan, and what its kernel does not do of its epilogue by meaning."""
    assert isinstance(node.op, Linear)
    y = plan.run(*kernel_operands(graph, node, plan.op, operands)).astype(np.float64)
    if plan.op.codes is not None:
        y = y * plan.op.codes.scale
    steps, place = rest_of(node.op, plan.op)
    for step, given in with_operands(steps, operands[place:]):
        y = step.apply(y, given)
    return np.asarray(y)


def _like(inputs: Sequence[Any], value: Array, type_: TensorType) -> Any:
    """A result in the graph's type and the library of the first input."""
    first = inputs[0] if inputs else None
    if first is None or isinstance(first, np.ndarray) or not hasattr(first, "detach"):
        return value.astype(DTYPES[type_.element][0])
    import array_api_compat

    library = array_api_compat.array_namespace(first)
    if type_.dtype not in FLOATS:
        return library.asarray(value.astype(DTYPES[type_.element][0]))
    dtype = getattr(library, type_.dtype)
    return library.asarray(value).to(dtype)  # one rounding, also to bfloat16, which NumPy lacks


__all__ = ["Layer", "Model", "compile_graph"]
