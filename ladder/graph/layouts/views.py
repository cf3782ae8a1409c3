"""Views: results that are their operand's memory under another arrangement, and where a slice's gaps end that."""

from __future__ import annotations

from collections.abc import Mapping

from ladder.graph.extent import Extent, Shape, divided
from ladder.graph.graph import Graph, Node
from ladder.graph.layouts.arrangement import Arrangement
from ladder.graph.operators import Reshape, Slice, Transpose


def viewed(node: Node, arrangement: Arrangement) -> Arrangement | None:
    """The arrangement under which a view's result is its operand's memory; None where there is none."""
    match node.op:
        case Transpose(order):
            return arrangement.transposed(order)
        case Reshape(shape):
            return arrangement.reshaped(shape)
        case Slice(axis, _, _, step):
            return arrangement.resized(axis, node.type.shape[axis]) if step == 1 else None
    return None


def pulled(node: Node, arrangement: Arrangement, source: Shape) -> Arrangement | None:
    """The arrangement of a view's operand that makes its result lie as given; None where there is none."""
    match node.op:
        case Transpose(order):
            return arrangement.transposed([order.index(i) for i in range(len(order))])
        case Reshape():
            return arrangement.reshaped(source)
        case Slice(axis, _, _, step):
            return arrangement.resized(axis, source[axis]) if step == 1 else None
    return None


def gaps(graph: Graph) -> Mapping[str, frozenset[int]]:
    """Of each value that is a slice of a larger one: the axes whose elements have gaps between them.

    A reshape that would join such an axis to one outside it has no view: its entry is missing from the axes and its node
    is listed by :func:`broken`.
    """
    found: dict[str, frozenset[int]] = {}
    for node in graph.nodes:
        before = found.get(node.inputs[0], frozenset()) if node.inputs else frozenset()
        match node.op:
            case Slice(axis):
                here = {axis} if node.type.shape[axis] != 1 else set()
                found[node.name] = before | here
            case Transpose(order):
                found[node.name] = frozenset(order.index(axis) for axis in before)
            case Reshape(shape):
                places = [_first(graph.types[node.inputs[0]].shape, axis, shape) for axis in before]
                found[node.name] = frozenset(place for place in places if place is not None)
    return found


def broken(graph: Graph) -> frozenset[str]:
    """Reshapes that join an axis with gaps to one outside it, so that no view of the slice exists."""
    known = gaps(graph)
    return frozenset(
        node.name
        for node in graph.of(Reshape)
        if any(
            _first(graph.types[node.inputs[0]].shape, axis, node.type.shape) is None
            for axis in known.get(node.inputs[0], frozenset())
        )
    )


def _first(source: Shape, axis: int, target: Shape) -> int | None:
    """The axis of the target that begins where an axis of the source begins; None where that lies within one."""
    before: Extent = 1
    for extent in source[:axis]:
        before = before * extent
    done: Extent = 1
    for place, extent in enumerate(target):
        if done == before and extent != 1:
            return place
        done = done * extent
        if divided(before, done) is None:
            return None
    return None
