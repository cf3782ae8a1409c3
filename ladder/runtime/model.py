"""A model that is ready to run: a graph, and a plan for each of its low-bit layers.

Without a GPU it runs by meaning, in one of two ways: the float64 meaning of the graph, or, slower, with each low-bit layer run
by the NumPy meaning of its plan, which rounds where the kernel rounds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ladder.checks import PATH, accept, one_of, shown
from ladder.errors import GraphError, LadderError, LaunchError
from ladder.graph.epilogue import AddResidual
from ladder.graph.graph import GRAPH, Graph, Node
from ladder.graph.interpret import ForeignFunctions, trace
from ladder.graph.matmul import MatMul
from ladder.graph.operators import Linear
from ladder.graph.serial import load as load_graph
from ladder.graph.tensor import DTYPES, FLOATS, Array, TensorType
from ladder.graph.verify import Report, Row, cosine, relative
from ladder.runtime.error_bar import error_bar
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.search import schedule
from ladder.ttype import Quantized

FORMAT = "ladder.model/1"
PLANS = "plans.json"
MODES = one_of(("meaning", "plan"))


@dataclass(frozen=True)
class Layer:
    """A low-bit layer and how it runs.

    Attributes:
        node: its name in the graph.
        plan: of its matmul; a set where the number of rows is symbolic. None where no kernel takes it.
        why: the reason for None.
    """

    node: str
    plan: Plan | PlanSet | None
    why: str = ""


@dataclass(frozen=True)
class Model:
    """A compiled graph; :func:`compile_graph` makes one.

    Attributes:
        graph: what is computed.
        layers: its low-bit layers in order.

    Raises:
        GraphError: the layers are not those of the graph, or a plan is of another operator than its layer.
    """

    graph: Graph
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        nodes = [node.name for node in _low_bit(self.graph)]
        if (names := [layer.node for layer in self.layers]) != nodes:
            raise GraphError(
                f"there are plans for the layers {shown(names)}, the graph has {shown(nodes)}",
                at="Model",
                hint="compile_graph(graph) plans them",
            )
        for layer in self.layers:
            if layer.plan is None:
                continue
            op = _matmul(self.graph, self.graph.node(layer.node))
            if layer.plan.op != op:
                raise GraphError(
                    f"the plan of {layer.node} is of {layer.plan.op}, the layer is {op}",
                    at="Model",
                    hint="compile_graph(graph) plans it",
                )

    def __call__(
        self, *inputs: Any, mode: str = "meaning", foreign: ForeignFunctions | None = None
    ) -> Any:
        """Run on arrays or torch tensors (of the CPU); the results are of the first input's library and the graph's types.

        Args:
            inputs: as the graph's.
            mode: ``"meaning"`` for float64 throughout, ``"plan"`` for low-bit layers by the NumPy meaning of their plans.
            foreign: functions of operators that were left to the caller's framework.

        Raises:
            GraphError: there are too few or too many inputs.
            ShapeError: an input does not have its shape.
            LaunchError: the mode is unknown.
        """
        mode = accept(mode, MODES, "mode", at="Model", error=LaunchError)
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

    def plan_of(self, node: str) -> Plan | PlanSet | None:
        """The plan of a layer; None for a node that has none."""
        return self._plans.get(node)

    @property
    def _plans(self) -> Mapping[str, Plan | PlanSet]:
        return {layer.node: layer.plan for layer in self.layers if layer.plan is not None}

    def _by_plan(self, node: Node, operands: Sequence[Array]) -> Array | None:
        plan = self._plans.get(node.name)
        if plan is None:
            return None
        return _run_plan(self.graph, node, plan, operands)

    def verify(self, *inputs: Any) -> Report:
        """Each layer's plan beside its float64 meaning on the same operands, within the derived error bar of its operator.

        The cosine of the report is that of the outputs when all layers run by their plans.
        """
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
            x = _rounded(operands[0], plan.op)
            weight, bias = _weight(self.graph, node), _bias(plan.op, operands)
            residual = _residual(node, plan.op, operands)
            got = plan.run(x, weight, bias, residual=residual).astype(np.float64)
            want = plan.op.reference(x, weight, bias, residual=residual)
            bar = error_bar(plan.op)
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
        """Write a folder that :meth:`load` reads, without TVM.

        Raises:
            GraphError: the folder cannot be written.
        """
        path = accept(folder, PATH, "folder", at="Model.save", error=GraphError)
        self.graph.save(path)
        records = [
            {
                "node": layer.node,
                "why": layer.why,
                "set": isinstance(layer.plan, PlanSet),
                "plan": None if layer.plan is None else layer.plan.to_json(),
            }
            for layer in self.layers
        ]
        text = json.dumps({"format": FORMAT, "layers": records})
        (path / PLANS).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Any) -> Model:
        """Read what :meth:`save` wrote.

        Raises:
            GraphError: the folder holds no model, or a damaged one.
            PlanError: a plan cannot be read.
        """
        path = accept(folder, PATH, "folder", at="Model.load", error=GraphError)
        graph = load_graph(path)
        try:
            document = json.loads((path / PLANS).read_text(encoding="utf-8"))
            found, records = document["format"], document["layers"]
            layers = tuple(_layer(record) for record in records)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise GraphError(
                f"the model cannot be read: {error}", at=path, hint="save it again"
            ) from error
        if found != FORMAT:
            raise GraphError(
                f"the folder holds format {found!r}, expected {FORMAT!r}",
                at=path,
                hint="save the model again with this version",
            )
        return cls(graph, layers)

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
    for node in _low_bit(graph):
        try:
            op = _matmul(graph, node)
        except LadderError as error:
            layers.append(Layer(node.name, None, error.what))
            continue
        if op not in plans:
            plans[op] = schedule(op, device)
        layers.append(Layer(node.name, plans[op]))
    return Model(graph, tuple(layers))


def _low_bit(graph: Graph) -> tuple[Node, ...]:
    """Layers whose weight has a low-bit type."""
    return tuple(
        node for node in graph.of(Linear) if graph.types[node.inputs[1]].weight is not None
    )


def _matmul(graph: Graph, node: Node) -> MatMul:
    """The matmul of a layer.

    Raises:
        LadderError: no kernel has its types.
    """
    assert isinstance(node.op, Linear)
    x, w = (graph.types[name] for name in node.inputs[:2])
    return node.op.matmul(x, w)


def _layer(record: Mapping[str, Any]) -> Layer:
    text = record["plan"]
    plan: Plan | PlanSet | None = None
    if text is not None:
        plan = PlanSet.from_json(text) if record["set"] else Plan.from_json(text)
    return Layer(record["node"], plan, record["why"])


def _run_plan(graph: Graph, node: Node, plan: Plan | PlanSet, operands: Sequence[Array]) -> Array:
    """A layer by its plan, and what its kernel does not do of its epilogue by meaning."""
    assert isinstance(node.op, Linear)
    x, weight, bias = _rounded(operands[0], plan.op), _weight(graph, node), _bias(plan.op, operands)
    y = plan.run(x, weight, bias, residual=_residual(node, plan.op, operands)).astype(np.float64)
    done = node.op.kernel_steps
    place = 2 + sum(step.operands for step in node.op.epilogue[:done])
    for step in node.op.epilogue[done:]:
        y = step.apply(y, tuple(operands[place : place + step.operands]))
        place += step.operands
    return np.asarray(y)


def _rounded(x: Array, op: MatMul) -> Array:
    return x.astype(op.activation.dtype)


def _bias(op: MatMul, operands: Sequence[Array]) -> Array | None:
    return operands[2].reshape(-1).astype(op.out.dtype) if op.bias else None


def _residual(node: Node, op: MatMul, operands: Sequence[Array]) -> Array | None:
    """The residual that a kernel adds, rounded to the type of its outputs."""
    if not op.residual:
        return None
    assert isinstance(node.op, Linear)
    steps = node.op.epilogue[: node.op.kernel_steps]
    before = itertools.takewhile(lambda step: not isinstance(step, AddResidual), steps)
    return operands[2 + sum(step.operands for step in before)].astype(op.out.dtype)


def _weight(graph: Graph, node: Node) -> Quantized:
    constant = graph.constant(node.inputs[1])
    assert constant is not None
    assert isinstance(constant.value, Quantized)
    return constant.value


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
