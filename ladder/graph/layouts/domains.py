"""The layouts that are worth a thought for each value: what its neighbours ask for, and what views make of that."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.graph.constant import Constant
from ladder.graph.graph import Graph, Node
from ladder.graph.layouts.access import ACCESS, VIEWS, Reading
from ladder.graph.layouts.arrangement import Arrangement, permuted, row_major
from ladder.graph.layouts.views import pulled, viewed
from ladder.graph.operators import Concat, Linear, MatrixProduct

#: layouts of one value; those that are found first are nearest
MOST = 6

#: rounds over the graph; a layout travels one node a round against the order, any number along it
ROUNDS = 8

Domains = dict[str, list[Arrangement]]


def domains(graph: Graph, reading: Reading) -> Domains:
    """For every value that is no constant: row-major first, then the others."""
    found: Domains = {
        value.name: [row_major(value.type.shape)]
        for value in graph.values
        if not isinstance(value, Constant)
    }
    for node in graph.nodes:
        for name, arrangement in _asked(graph, node, reading):
            _offer(found, name, arrangement)
    for _ in range(ROUNDS):
        before = sum(map(len, found.values()))
        for node in (*graph.nodes, *reversed(graph.nodes)):
            for name, arrangement in list(_carried(graph, node, found)):
                _offer(found, name, arrangement)
        if sum(map(len, found.values())) == before:
            break
    return found


def _offer(found: Domains, name: str, arrangement: Arrangement | None) -> None:
    known = found.get(name)
    if known is None or arrangement is None or arrangement in known or len(known) >= MOST:
        return
    known.append(arrangement)


def _asked(graph: Graph, node: Node, reading: Reading) -> Iterator[tuple[str, Arrangement | None]]:
    """What an operator asks for by itself."""
    if isinstance(node.op, Linear):
        yield node.inputs[0], reading.of(graph.types[node.inputs[0]].shape)
    if isinstance(node.op, MatrixProduct):
        for name in (*node.inputs, node.name):
            shape = graph.types[name].shape
            lead = range(len(shape) - 2)
            yield name, permuted(shape, (*lead, len(shape) - 1, len(shape) - 2))


def _carried(graph: Graph, node: Node, found: Domains) -> Iterator[tuple[str, Arrangement | None]]:
    """What the layouts on one side of a node mean for the other side."""
    if isinstance(node.op, VIEWS):
        yield from _through_view(graph, node, found)
    elif isinstance(node.op, Concat):
        yield from _through_concat(graph, node, found)
    else:
        access = ACCESS[type(node.op)]
        if access.rows and node.inputs[0] in found:
            yield from _rows(graph, node, found)
        if access.alike:
            yield from _alike(graph, node, found)


def _through_view(
    graph: Graph, node: Node, found: Domains
) -> Iterator[tuple[str, Arrangement | None]]:
    (source,) = node.inputs
    for arrangement in found.get(source, ()):
        yield node.name, viewed(node, arrangement)
    for arrangement in found[node.name]:
        yield source, pulled(node, arrangement, graph.types[source].shape)


def _through_concat(
    graph: Graph, node: Node, found: Domains
) -> Iterator[tuple[str, Arrangement | None]]:
    assert isinstance(node.op, Concat)
    axis = node.op.axis % node.type.rank
    for name in node.inputs:
        for arrangement in found[node.name]:
            yield name, arrangement.resized(axis, graph.types[name].shape[axis])
        for arrangement in found.get(name, ()):
            yield node.name, arrangement.resized(axis, node.type.shape[axis])


def _alike(graph: Graph, node: Node, found: Domains) -> Iterator[tuple[str, Arrangement | None]]:
    names = [n for n in (*node.inputs, node.name) if graph.types[n].shape == node.type.shape]
    for one in names:
        for other in names:
            for arrangement in found.get(one, ()):
                yield other, arrangement


def _rows(graph: Graph, node: Node, found: Domains) -> Iterator[tuple[str, Arrangement | None]]:
    """Leading axes in the same order on both sides, the last axis innermost."""
    source = node.inputs[0]
    shapes = graph.types[source].shape, node.type.shape
    if len(shapes[0]) != len(shapes[1]) or shapes[0][:-1] != shapes[1][:-1]:
        return
    for one, other, shape in ((source, node.name, shapes[1]), (node.name, source, shapes[0])):
        for arrangement in found[one]:
            if not arrangement.whole_innermost(-1):
                continue
            lead = [axis for axis, _ in arrangement.stored if axis != len(shape) - 1]
            if len(set(lead)) == len(lead):
                rest = [axis for axis in range(len(shape) - 1) if axis not in lead]
                yield other, permuted(shape, (*lead, *rest, len(shape) - 1))
