"""A graph run on the memory that propagation decided: the proof that no layout changes what is computed.

Every value is a flat array in its own arrangement. Views hand that array on untouched; a reader sees it through the
arrangement that it reads; only conversions move elements. The results have to equal those of :func:`interpret.run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.errors import GraphError
from ladder.graph.graph import Graph, Node
from ladder.graph.interpret import inputs_of, meaning
from ladder.graph.layouts.access import VIEWS
from ladder.graph.layouts.arrangement import row_major
from ladder.graph.layouts.solution import Layouts
from ladder.graph.layouts.views import broken, viewed
from ladder.graph.operators import Slice
from ladder.graph.tensor import Array


def run(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, int]:
    """The results, and how often elements were moved only to lie elsewhere.

    Raises:
        GraphError: the graph has no layouts yet.
    """
    if graph.layouts is None:
        raise GraphError("the graph has no layouts", at="execute", hint="graph.propagate(device)")
    walk = _Walk(graph, graph.layouts, inputs)
    for node in graph.nodes:
        walk.node(node)
    results = tuple(
        walk.read_as(name, row_major(graph.types[name].shape)) for name in graph.outputs
    )
    return (results[0] if len(results) == 1 else results), walk.moved


class _Walk:
    def __init__(self, graph: Graph, layouts: Layouts, inputs: Sequence[Any]) -> None:
        self.graph = graph
        self.layouts = layouts
        self.no_view = broken(graph)
        values, self.sizes = inputs_of(graph, inputs)
        self.memory = {n: layouts.of[n].store(v, self.sizes) for n, v in values.items()}
        self.converted: set[tuple[str, Any]] = set()
        self.moved = 0

    def read_as(self, name: str, wanted: Any) -> Array:
        """A value as a tensor, read in a layout; a conversion is counted once for all who want the same."""
        stored = self.layouts.of[name]
        if wanted != stored and (name, wanted) not in self.converted:
            self.converted.add((name, wanted))
            self.moved += 1
        array = stored.load(self.memory[name], self.sizes)
        if wanted == stored:
            return array
        return np.asarray(wanted.load(wanted.store(array, self.sizes), self.sizes))

    def node(self, node: Node) -> None:
        """One node: a view shares memory, all others compute and store."""
        out = self.layouts.of[node.name]
        if isinstance(node.op, VIEWS) and node.inputs[0] in self.memory:
            source = self.layouts.operands[node.name, 0]
            same = source == self.layouts.of[node.inputs[0]]
            if node.name not in self.no_view and viewed(node, source) == out:
                if not isinstance(node.op, Slice) and same:
                    self.memory[node.name] = self.memory[node.inputs[0]]
                    return
            else:
                self.moved += 1
        operands = [self._operand(node, place, name) for place, name in enumerate(node.inputs)]
        result = np.asarray(meaning(node, operands, self.sizes, {}))
        self.memory[node.name] = out.store(result, self.sizes)

    def _operand(self, node: Node, place: int, name: str) -> Array:
        if name in self.memory:
            return self.read_as(name, self.layouts.operands[node.name, place])
        constant = self.graph.constant(name)
        assert constant is not None
        return constant.values()
