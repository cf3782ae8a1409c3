"""A graph while it is being made or changed: the one mutable thing, gone when the graph is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import networkx as nx

from ladder.errors import GraphError, LadderError
from ladder.graph.constant import Constant
from ladder.graph.graph import Decision, Graph, Input, Node, Value
from ladder.graph.operators import Operator
from ladder.graph.tensor import TensorType


class Draft:
    """Values under names; importers add to it, rewrites replace in it, :meth:`graph` orders it and drops what is unused."""

    def __init__(self, graph: Graph | None = None) -> None:
        self.inputs: dict[str, Input] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: dict[str, Node] = {}
        self.outputs: list[str] = []
        self.decisions: list[Decision] = []
        if graph is not None:
            self.inputs = {value.name: value for value in graph.inputs}
            self.constants = {value.name: value for value in graph.constants}
            self.nodes = {value.name: value for value in graph.nodes}
            self.outputs = list(graph.outputs)
            self.decisions = list(graph.decisions)

    # -- adding -----------------------------------------------------------------------------------

    def input(self, name: str, type_: TensorType) -> str:
        """An input of the graph; returns the name that it got."""
        name = self.free(name)
        self.inputs[name] = Input(name, type_)
        return name

    def constant(self, name: str, value: object, sources: tuple[str, ...] = ()) -> str:
        """A constant; the same array under the same name is kept once."""
        known = self.constants.get(name)
        constant = Constant(name, value, sources)  # type: ignore[arg-type]  # checked there
        if known is not None and known == constant:
            return name
        name = self.free(name)
        self.constants[name] = constant.renamed(name)
        return name

    def add(self, op: Operator, inputs: Iterable[str], name: str, origin: str = "") -> str:
        """A node; its type is inferred. Returns the name that it got: ``name``, or one with a number.

        Raises:
            GraphError: an input is unknown.
            LadderError: the inputs do not fit the operator; the error names the node.
        """
        given = tuple(inputs)
        try:
            found = op.infer(*(self.type(one) for one in given))
        except LadderError as error:
            at = f"{name} = {op} of {', '.join(given)}"
            raise type(error)(error.what, at=at, hint=error.hint) from error
        name = self.free(name)
        self.nodes[name] = Node(name, op, given, found, origin)
        return name

    def free(self, name: str) -> str:
        """``name``, or the first of ``name_2``, ``name_3``, ... that is not taken."""
        name = re.sub(r"\s+", "_", name) or "value"
        result, count = name, 1
        while result in self.inputs or result in self.constants or result in self.nodes:
            count += 1
            result = f"{name}_{count}"
        return result

    # -- asking -----------------------------------------------------------------------------------

    def type(self, name: str) -> TensorType:
        """Type of a value."""
        tables: tuple[Mapping[str, Value], ...] = (self.nodes, self.constants, self.inputs)
        for values in tables:
            if name in values:
                return values[name].type
        raise GraphError(f"no value is called {name!r}", at="graph", hint="add it first")

    def users(self, name: str) -> list[tuple[Node, int]]:
        """Nodes that read a value, with the place among their inputs."""
        return [
            (node, place)
            for node in self.nodes.values()
            for place, given in enumerate(node.inputs)
            if given == name
        ]

    def sole_user(self, name: str) -> Node | None:
        """The node that alone reads a value, if the value is not also an output."""
        users = self.users(name)
        return users[0][0] if len(users) == 1 and name not in self.outputs else None

    # -- changing ---------------------------------------------------------------------------------

    def replace(self, old: str, new: str) -> None:
        """Whoever reads ``old`` reads ``new`` instead, outputs included."""
        for name, node in list(self.nodes.items()):
            if old in node.inputs and name != new:
                inputs = tuple(new if one == old else one for one in node.inputs)
                self.nodes[name] = Node(name, node.op, inputs, node.type, node.origin)
        self.outputs = [new if one == old else one for one in self.outputs]

    def put(self, name: str, op: Operator, inputs: Iterable[str]) -> None:
        """Another operator for a node that keeps its name, its type inferred anew."""
        given = tuple(inputs)
        found = op.infer(*(self.type(one) for one in given))
        self.nodes[name] = Node(name, op, given, found, self.nodes[name].origin)

    def decide(self, stage: str, at: str, what: str, why: str = "") -> None:
        """Remember a decision."""
        decision = Decision(stage, at, what, why)
        if (
            decision not in self.decisions
        ):  # rules that look at a node one after the other say it once
            self.decisions.append(decision)

    # -- finishing --------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The graph: nodes in order, without those that no output needs; types inferred anew.

        Raises:
            GraphError: nodes read each other in a circle.
        """
        needed = self._needed()
        network = nx.DiGraph()
        network.add_nodes_from(name for name in self.nodes if name in needed)
        for name in network.nodes:
            network.add_edges_from(
                (one, name) for one in self.nodes[name].inputs if one in self.nodes
            )
        place = {name: i for i, name in enumerate(self.nodes)}
        try:
            order = list(nx.lexicographical_topological_sort(network, key=place.__getitem__))
        except nx.NetworkXUnfeasible as error:
            raise GraphError(
                "nodes read each other in a circle", at="graph", hint="a rewrite went wrong"
            ) from error
        for name in order:
            self.put(name, self.nodes[name].op, self.nodes[name].inputs)
        return Graph(
            tuple(self.inputs.values()),
            tuple(value for name, value in self.constants.items() if name in needed),
            tuple(self.nodes[name] for name in order),
            tuple(self.outputs),
            tuple(self.decisions),
        )

    def _needed(self) -> set[str]:
        needed: set[str] = set()
        waiting = list(self.outputs)
        while waiting:
            name = waiting.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in self.nodes:
                waiting += self.nodes[name].inputs
        return needed
