"""The operator graph: a model as a frozen value on networkx."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

import networkx as nx

from ladder.checks import TEXT, shown
from ladder.errors import GraphError
from ladder.graph.constant import Constant
from ladder.graph.operators import Foreign, Operator
from ladder.graph.tensor import TensorType

if TYPE_CHECKING:
    from ladder.graph.interpret import ForeignFunctions
    from ladder.graph.layouts.solution import Layouts


@dataclass(frozen=True)
class Input:
    """A tensor that every call gives.

    Attributes:
        name: as the model calls it.
        type: its shape may hold symbols.
    """

    name: str
    type: TensorType


@dataclass(frozen=True)
class Node:
    """An operator on values; the node's name is also that of the value that it makes.

    Attributes:
        name: unique in the graph, for example ``self_attn.q_proj``.
        op: what is computed.
        inputs: names of inputs, constants and other nodes.
        type: of the result.
        origin: what the imported model calls this value; "" where it has no such value.
    """

    name: str
    op: Operator
    inputs: tuple[str, ...]
    type: TensorType
    origin: str = field(default="", compare=False)


Value = Union[Input, Constant, Node]


@dataclass(frozen=True)
class Decision:
    """Something that was done to a graph, and why.

    Attributes:
        stage: which part decided: import, rewrite, assign, fuse, layout.
        at: the node or value.
        what: what was done or left.
        why: the reason.
    """

    stage: str
    at: str
    what: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.stage:<8} {self.at}: {self.what}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Graph:
    """A model: inputs, constants, nodes in an order in which they can run, and the values that a call returns.

    Every change makes another graph. Two graphs are equal when they compute the same by the same nodes; what was decided
    on the way there and how values are laid out take no part in that.

    Attributes:
        inputs: in the order of a call's arguments.
        constants: weights and small tensors.
        nodes: each after those that it reads.
        outputs: names of values, in the order in which a call returns them.
        decisions: what was done to the graph so far.
        layouts: how values lie in memory, once :meth:`propagate` has decided it.

    Raises:
        GraphError: a name is doubled or unknown, or a node stands before what it reads.
        ShapeError: the inputs of a node do not fit its operator.
    """

    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    layouts: Layouts | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        known: dict[str, TensorType] = {}
        for value in self.values:
            if value.name in known:
                raise GraphError(
                    f"two values are called {value.name!r}", at="graph", hint="names are unique"
                )
            if isinstance(value, Node):
                _check(value, known)
            known[value.name] = value.type
        if missing := [name for name in self.outputs if name not in known]:
            raise GraphError(
                f"no value is called {missing[0]!r}", at="outputs", hint="name a node or an input"
            )

    # -- looking things up ------------------------------------------------------------------------

    @property
    def values(self) -> tuple[Value, ...]:
        """Inputs, constants and nodes."""
        return (*self.inputs, *self.constants, *self.nodes)

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """Type of every value, by name."""
        return {value.name: value.type for value in self.values}

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _constants(self) -> Mapping[str, Constant]:
        return {constant.name: constant for constant in self.constants}

    def node(self, name: str) -> Node:
        """A node by name.

        Raises:
            GraphError: there is no such node.
        """
        if not TEXT.fits(name) or name not in self._nodes:
            raise GraphError(
                f"no node is called {shown(name)}",
                at="graph",
                hint=f"nodes: {', '.join(list(self._nodes)[:8])}, ...",
            )
        return self._nodes[name]

    def find(self, name: str) -> Node | None:
        """The node of a name, None where the name is an input's, a constant's or nobody's."""
        return self._nodes.get(name)

    def constant(self, name: str) -> Constant | None:
        """The constant of a name, None where the name is another value's."""
        return self._constants.get(name)

    @cached_property
    def users(self) -> Mapping[str, tuple[tuple[Node, int], ...]]:
        """Of every value: who reads it, as ``(node, which of its inputs)``."""
        found: dict[str, list[tuple[Node, int]]] = {name: [] for name in self.types}
        for node in self.nodes:
            for place, name in enumerate(node.inputs):
                found[name].append((node, place))
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def network(self) -> nx.MultiDiGraph:
        """The graph for networkx's algorithms, frozen: an edge for each operand, with its value's type."""
        network = nx.MultiDiGraph()
        for value in self.values:
            network.add_node(value.name, value=value)
        for node in self.nodes:
            for place, name in enumerate(node.inputs):
                network.add_edge(name, node.name, operand=place, type=self.types[name])
        return nx.freeze(network)

    def of(self, *kinds: type[Operator]) -> tuple[Node, ...]:
        """The nodes whose operators are of some classes."""
        return tuple(node for node in self.nodes if isinstance(node.op, kinds))

    @property
    def foreign(self) -> tuple[Node, ...]:
        """Nodes that are left to the caller's framework."""
        return self.of(Foreign)

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...]:
        """Foreign nodes that read each other, together: each is one call into the caller's framework, named by its first node."""
        names = {node.name for node in self.foreign}
        joined = nx.Graph()
        joined.add_nodes_from(node.name for node in self.nodes if node.name in names)
        joined.add_edges_from(
            (source, node.name)
            for node in self.foreign
            for source in node.inputs
            if source in names
        )
        return tuple(
            tuple(node.name for node in self.nodes if node.name in part)
            for part in nx.connected_components(joined)
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(constant.nbytes for constant in self.constants)

    # -- the journey ------------------------------------------------------------------------------

    def assign(self, rules: Any) -> Graph:
        """Weights and activations in the types that rules say; see :func:`ladder.graph.assign.assign`."""
        from ladder.graph.assign import assign

        return assign(self, rules)

    def fuse(self) -> Graph:
        """Epilogues, gated pairs and shared inputs joined; see :func:`ladder.graph.fuse.fuse`."""
        from ladder.graph.fuse import fuse

        return fuse(self)

    def propagate(self, device: Any = "h200", **options: Any) -> Graph:
        """Layouts decided on every edge; see :func:`ladder.graph.layouts.propagate`."""
        from ladder.graph.layouts.propagate import propagate

        return propagate(self, device, **options)

    def run(self, *inputs: Any, foreign: ForeignFunctions | None = None) -> Any:
        """The float64 meaning: arrays in, array or tuple of arrays out; see :func:`ladder.graph.interpret.run`."""
        from ladder.graph.interpret import run

        return run(self, inputs, foreign=foreign)

    def explain(self) -> str:
        """What was decided about the graph, and why."""
        from ladder.graph.words import explain

        return explain(self)

    def svg(self) -> str:
        """A picture: nodes, and edges with types and layouts."""
        from ladder.graph.picture import svg

        return svg(self)

    def with_(self, **changes: Any) -> Graph:
        """A copy with some fields replaced, checked again."""
        return replace(self, **changes)

    def decided(self, decisions: Iterable[Decision]) -> Graph:
        """A copy that remembers more decisions."""
        return replace(self, decisions=(*self.decisions, *decisions))

    # -- keeping ----------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Inputs, nodes, outputs and the types of constants as stable text; see :mod:`ladder.graph.serial`."""
        from ladder.graph.serial import to_json

        return to_json(self)

    def save(self, folder: Any) -> None:
        """Write a folder that :func:`ladder.graph.serial.load` reads."""
        from ladder.graph.serial import save

        save(self, folder)

    @staticmethod
    def load(folder: Any) -> Graph:
        """Read what :meth:`save` wrote; see :func:`ladder.graph.serial.load`."""
        from ladder.graph.serial import load

        return load(folder)

    def __str__(self) -> str:
        from ladder.graph.words import table

        return table(self)


def _check(node: Node, known: Mapping[str, TensorType]) -> None:
    if missing := [name for name in node.inputs if name not in known]:
        raise GraphError(
            f"{node.name} reads {missing[0]!r}, which no value before it is called",
            at=f"{node.name} = {node.op}",
            hint="nodes stand after what they read",
        )
    least, most = node.op.arity
    if not least <= len(node.inputs) <= most:
        raise GraphError(
            f"{node.name} has {len(node.inputs)} inputs",
            at=f"{node.name} = {node.op}",
            hint=f"{node.op.kind} takes {least}" + (f" to {most}" if most != least else ""),
        )
    found = node.op.infer(*(known[name] for name in node.inputs))
    if found != node.type:
        raise GraphError(
            f"{node.name} is said to be {node.type} and is {found}",
            at=f"{node.name} = {node.op}",
            hint="types follow from the operator: leave them to Draft.add",
        )
