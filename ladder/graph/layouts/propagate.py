"""Layout propagation: every value's layout at once, so that what layouts cost in all is least.

A layout travels along edges: through a transpose or reshape it becomes another arrangement of the same memory, so maps
compose, and what was turned and turned back lies as it did. Where readers disagree, or a source cannot write what a reader
needs, a conversion stands on the edge, once for all readers that want the same. Row-major everywhere is one of the
assignments that are compared, so the answer is never dearer than leaving all as it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ladder.checks import accept, integer, shown
from ladder.errors import DeviceError, GraphError
from ladder.graph.extent import Symbolic
from ladder.graph.graph import Decision, Graph, Node
from ladder.graph.layouts.access import Contiguous, Prices, Reading
from ladder.graph.layouts.costs import concat_us, node_us
from ladder.graph.layouts.describe import described
from ladder.graph.layouts.domains import Domains, domains
from ladder.graph.layouts.eliminate import Factor, cheapest, total
from ladder.graph.layouts.views import broken
from ladder.graph.operators import Concat
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
        wanted = domains(graph, reading)
        given = {one.name for one in graph.inputs}  # the caller hands arrays over as they are
        self.domains: Domains = {
            name: options[:1] if name in given else options for name, options in wanted.items()
        }
        self.readable = wanted
        self.variables: dict[Hashable, int] = {
            ("s", name): len(options) for name, options in self.domains.items()
        }
        self.options: dict[Hashable, list[Any]] = {("s", n): o for n, o in self.domains.items()}
        self.factors: list[Factor] = []
        for node in graph.nodes:
            for place, name in enumerate(node.inputs):
                if name in self.domains:
                    self._add(("u", node.name, place), wanted[name])
        for node in graph.nodes:
            self.factors += self._node(node)
        for name in self.domains:
            self.factors += self._value(name)

    def _add(self, variable: Hashable, options: list[Any]) -> None:
        self.variables[variable] = len(options)
        self.options[variable] = options

    def _node(self, node: Node) -> list[Factor]:
        places = [i for i, name in enumerate(node.inputs) if name in self.domains]
        if isinstance(
            node.op, Concat
        ):  # its operands do not know each other: a table for each of them
            return [self._joined(node, place) for place in places]
        scope = (*(("u", node.name, place) for place in places), ("s", node.name))
        costs = np.empty(tuple(self.variables[one] for one in scope))
        for index in np.ndindex(*costs.shape):
            picked = [self.options[one][i] for one, i in zip(scope, index, strict=True)]
            given = dict(zip(places, picked, strict=False))
            operands = [given.get(i) for i in range(len(node.inputs))]
            costs[index] = node_us(
                self.graph, node, operands, picked[-1], self.prices, self.reading, self.no_view
            )
        return [Factor(scope, costs)]

    def _joined(self, node: Node, place: int) -> Factor:
        """One operand of a concatenation beside the result."""
        scope = (("u", node.name, place), ("s", node.name))
        costs = np.empty(tuple(self.variables[one] for one in scope))
        for i, operand in enumerate(self.options[scope[0]]):
            for j, out in enumerate(self.options[scope[1]]):
                costs[i, j] = concat_us(self.graph, node, place, operand, out, self.prices)
        return Factor(scope, costs)

    def _value(self, name: str) -> list[Factor]:
        """Conversions between how a value is stored and how it is read: one for each layout that is wanted.

        A variable of its own says into which layouts the value is converted, so that any number of readers make small
        tables: each reader takes the value as it is stored, or one of those.
        """
        stored, made = ("s", name), ("c", name)
        options = self.options[stored]
        wanted = self.readable[name]
        subsets = [
            frozenset(one for bit, one in enumerate(wanted) if number >> bit & 1)
            for number in range(1 << len(wanted))
        ]
        self._add(made, subsets)
        us = self.prices.conversion(self.graph.types[name])
        costs = np.empty((len(options), len(subsets)))
        for (i, one), (j, subset) in product(enumerate(options), enumerate(subsets)):
            # the caller reads an output row-major
            asked = subset | {wanted[0]} if name in self.graph.outputs else subset
            costs[i, j] = us * len(asked - {one})
        factors = [Factor((stored, made), costs)]
        for node, place in self.graph.users[name]:
            table = np.full((len(options), len(subsets), len(wanted)), np.inf)
            for (i, one), (j, subset) in product(enumerate(options), enumerate(subsets)):
                for k, read in enumerate(wanted):
                    if read == one or read in subset:
                        table[i, j, k] = 0.0
            factors.append(Factor((stored, made, ("u", node.name, place)), table))
        return factors

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
