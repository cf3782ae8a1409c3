"""Layout propagation: every value's layout at once, so that what layouts cost in all is least.

A layout travels along edges: through a transpose or reshape it becomes another arrangement of the same memory, so maps
compose, and what was turned and turned back lies as it did. Where readers disagree, or a source cannot write what a reader
needs, a conversion stands on the edge, once for all readers that want the same. Row-major everywhere is one of the
assignments that are compared, so the answer is never dearer than leaving all as it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import product as combinations
from typing import Any

import numpy as np

from ladder.checks import accept, integer, shown
from ladder.errors import DeviceError, GraphError
from ladder.graph.extent import Symbolic
from ladder.graph.graph import Decision, Graph
from ladder.graph.layouts.access import Contiguous, Prices, Reading
from ladder.graph.layouts.costs import node_us
from ladder.graph.layouts.describe import described
from ladder.graph.layouts.domains import Domains, domains
from ladder.graph.layouts.eliminate import Factor, cheapest, total
from ladder.graph.layouts.views import broken
from ladder.registry import devices

#: what a symbolic extent is taken as where the caller does not say
SIZE = 256

#: microseconds of a launch on a device that does not say
LAUNCH_US = 2.0

OUTPUT = "output"


def propagate(
    graph: Graph,
    device: Any = "h200",
    *,
    sizes: Mapping[str, int] | None = None,
    reading: Reading | None = None,
) -> Graph:
    """The graph with a layout for every value, decided for the least cost on a device.

    Args:
        graph: fused or not.
        device: a device or the name of one; its memory rate and launch time are asked.
        sizes: what symbols of shapes are taken as, 256 where nothing is said.
        reading: how kernels read the x of linear layers; :class:`Contiguous` by default, :class:`Blocked` for tiles.

    Raises:
        GraphError: a size is given for a symbol that the graph does not have, or no assignment is possible.
        DeviceError: the name of the device is unknown.
    """
    target = devices[device] if isinstance(device, str) else device
    if not isinstance(getattr(target, "dram_bytes_per_second", None), float):
        raise DeviceError(
            f"{shown(target)} is no device",
            at="propagate(device=...)",
            hint="a device of ladder.devices, or the name of one",
        )
    prices = Prices(
        target.dram_bytes_per_second / 1e6,
        float(getattr(getattr(target, "cost", None), "launch_us", LAUNCH_US)),
        _sizes(graph, sizes or {}),
    )
    problem = Problem(graph, prices, reading or Contiguous())
    chosen, fixed = problem.solve()
    layouts = described(graph, problem, chosen, str(target.name))
    decisions = [
        Decision("layout", str(one), "row-major", "too many layouts meet there") for one in fixed
    ]
    return replace(graph, layouts=layouts, decisions=(*graph.decisions, *decisions))


def _sizes(graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    names = {
        name
        for tensor in graph.types.values()
        for extent in tensor.shape
        if isinstance(extent, Symbolic)
        for name in extent.symbols
    }
    if unknown := sorted(set(given) - names):
        raise GraphError(
            f"the graph has no symbol {', '.join(unknown)}",
            at="propagate(sizes=...)",
            hint=f"it has: {', '.join(sorted(names)) or 'none'}",
        )
    positive = integer(1)
    for name, size in given.items():
        accept(size, positive, f"size of {name}", at="propagate(sizes=...)", error=GraphError)
    return {name: int(given.get(name, SIZE)) for name in names}


class Problem:
    """The variables and tables of one graph: S of each value as stored, U of each operand as read."""

    def __init__(self, graph: Graph, prices: Prices, reading: Reading) -> None:
        self.graph = graph
        self.prices = prices
        self.reading = reading
        self.no_view = broken(graph)
        self.domains: Domains = domains(graph, reading)
        for one in graph.inputs:  # the caller hands arrays over as they are
            self.domains[one.name] = self.domains[one.name][:1]
        self.variables: dict[Hashable, int] = {
            ("s", name): len(options) for name, options in self.domains.items()
        }
        self.options: dict[Hashable, list[Any]] = {("s", n): o for n, o in self.domains.items()}
        self.factors: list[Factor] = []
        for node in graph.nodes:
            for place, name in enumerate(node.inputs):
                if name in self.domains:
                    self._add(("u", node.name, place), self._readable(name))
        for node in graph.nodes:
            self.factors.append(self._node(node))
        for name in self.domains:
            self.factors.append(self._value(name))

    def _readable(self, name: str) -> list[Any]:
        """What a reader may want of a value: its own options, and for an input those that were dropped from storage."""
        return domains_of_reader(self.graph, name, self.domains, self.reading)

    def _add(self, variable: Hashable, options: list[Any]) -> None:
        self.variables[variable] = len(options)
        self.options[variable] = options

    def _node(self, node: Any) -> Factor:
        places = [i for i, name in enumerate(node.inputs) if name in self.domains]
        scope = (*(("u", node.name, place) for place in places), ("s", node.name))
        shape = tuple(self.variables[one] for one in scope)
        costs = np.empty(shape)
        for index in np.ndindex(*shape):
            picked = dict(zip(scope, index, strict=True))
            operands = [
                self.options["u", node.name, i][picked["u", node.name, i]] if i in places else None
                for i in range(len(node.inputs))
            ]
            out = self.options["s", node.name][picked["s", node.name]]
            costs[index] = node_us(
                self.graph, node, operands, out, self.prices, self.reading, self.no_view
            )
        return Factor(scope, costs)

    def _value(self, name: str) -> Factor:
        """Conversions between how a value is stored and how it is read: one for each layout that is wanted."""
        stored = ("s", name)
        readers = [("u", node.name, place) for node, place in self.graph.users[name]]
        scope = (stored, *readers)
        us = self.prices.conversion(self.graph.types[name])
        costs = np.empty(tuple(self.variables[one] for one in scope))
        options = [self.options[one] for one in scope]
        for index in combinations(*(range(len(one)) for one in options)):
            picked = [one[i] for one, i in zip(options, index, strict=True)]
            wanted = {one for one in picked[1:] if one != picked[0]}
            if name in self.graph.outputs and not picked[0].is_row_major:
                wanted.add(self.domains[name][0])
            costs[index] = us * len(wanted)
        return Factor(scope, costs)

    def solve(self) -> tuple[dict[Hashable, int], list[Hashable]]:
        """The least assignment."""
        chosen, fixed = cheapest(self.variables, self.factors)
        if not np.isfinite(total(self.factors, chosen)):
            raise GraphError(
                "no assignment of layouts is possible",
                at="propagate",
                hint="an operator reads or writes what no other can make: report the graph",
            )
        return chosen, fixed

    def us(self, chosen: Mapping[Hashable, int]) -> float:
        """What an assignment costs."""
        return total(self.factors, chosen)

    def plain(self) -> dict[Hashable, int]:
        """Row-major everywhere."""
        return dict.fromkeys(self.variables, 0)


def domains_of_reader(graph: Graph, name: str, known: Domains, reading: Reading) -> list[Any]:
    """Options of an operand; an input of the graph is stored row-major and may be read in any layout that its readers know."""
    if graph.find(name) is not None:
        return known[name]
    return domains(graph, reading)[name]
