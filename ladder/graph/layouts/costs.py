"""Costs of a node for the layouts of its operands and of its result, in microseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ladder.graph.graph import Graph, Node
from ladder.graph.layouts.access import (
    ACCESS,
    PLAIN,
    SECTOR_BYTES,
    VIEWS,
    Access,
    Prices,
    Reading,
)
from ladder.graph.layouts.arrangement import Arrangement
from ladder.graph.layouts.views import viewed
from ladder.graph.operators import Concat, Linear, Slice
from ladder.graph.tensor import TensorType

#: an operand's layout, None for a constant: it is laid out offline as its reader wants it
Operands = Sequence[Arrangement | None]


def node_us(
    graph: Graph,
    node: Node,
    operands: Operands,
    out: Arrangement,
    prices: Prices,
    reading: Reading,
    no_view: frozenset[str],
) -> float:
    """What these layouts add to a node's own time; inf where it cannot read or write them."""
    plainness = PLAIN * prices.passing(node.type) * (not out.is_row_major)
    if isinstance(node.op, VIEWS):
        (source,) = operands
        if is_view(node, source, out, no_view):
            return plainness
        return prices.conversion(node.type) + plainness
    access = ACCESS[type(node.op)]
    if not _allowed(node, access, operands, out, reading):
        return math.inf
    return (
        _beside(graph, node, access, operands, out, prices)
        + _written(node, access, operands, out, prices)
        + plainness
    )


def is_view(
    node: Node, source: Arrangement | None, out: Arrangement, no_view: frozenset[str]
) -> bool:
    """Whether a reshape, transpose or slice is its operand's memory as it lies."""
    if source is None:
        return True
    return node.name not in no_view and viewed(node, source) == out


def _allowed(
    node: Node, access: Access, operands: Operands, out: Arrangement, reading: Reading
) -> bool:
    for place, operand in enumerate(operands):
        if operand is None:
            continue
        if access.plain and not operand.is_row_major:
            return False
        if isinstance(node.op, Linear) and place == 0:
            if not reading.accepts(operand):
                return False
            continue
        if not _lies(operand, access.of(place)):
            return False
    return _lies(out, access.out) and (not access.plain or out.is_row_major)


def _lies(arrangement: Arrangement, axes: tuple[int, ...] | None) -> bool:
    if axes is None or not arrangement.cut:
        return True
    return any(arrangement.whole_innermost(axis) for axis in axes if -axis <= len(arrangement.cut))


def _beside(
    graph: Graph, node: Node, access: Access, operands: Operands, out: Arrangement, prices: Prices
) -> float:
    """Operands that are read beside the result, in another layout than its own."""
    if not access.alike:
        return 0.0
    us = 0.0
    for name, operand in zip(node.inputs, operands, strict=True):
        tensor = graph.types[name]
        if operand is None or tensor.shape != node.type.shape or operand == out:
            continue
        if isinstance(node.op, Linear) and name == node.inputs[0]:
            continue
        us += _scattered(tensor, operand, out, prices)
    return us


def _written(
    node: Node, access: Access, operands: Operands, out: Arrangement, prices: Prices
) -> float:
    """A result whose rows do not stand as the operand's do, or whose innermost run is short."""
    source = operands[0] if operands else None
    if not access.rows or source is None:
        return 0.0
    alike = (
        len(source.cut) == len(out.cut)
        and source.swizzle is None
        and out.whole_innermost(-1)
        and source.without(-1) == out.without(-1)
    )
    if alike or out.is_row_major:
        return 0.0
    last = len(out.cut) - 1
    short = prices.run_bytes(node.type, out) < SECTOR_BYTES or out.innermost[0] != last
    return prices.passing(node.type) * (1.0 if short else PLAIN)


def _scattered(
    tensor: TensorType, arrangement: Arrangement, other: Arrangement, prices: Prices
) -> float:
    """One more pass where the runs of two layouts do not meet."""
    same = arrangement.innermost[0] == other.innermost[0]
    runs = min(prices.run_bytes(tensor, one) for one in (arrangement, other))
    return prices.passing(tensor) * (PLAIN if same and runs >= SECTOR_BYTES else 1.0)


def concat_us(
    graph: Graph, node: Node, place: int, operand: Arrangement, out: Arrangement, prices: Prices
) -> float:
    """What one operand adds to a concatenation: nothing where its source writes it into the result, else a copy there.

    The copies are one kernel; its launch is shared out among all operands.
    """
    assert isinstance(node.op, Concat)
    name = node.inputs[place]
    tensor = graph.types[name]
    plainness = PLAIN * prices.passing(tensor) * (not out.is_row_major)
    if in_place(graph, node, name, operand, out):
        return plainness
    fits = out.resized(node.op.axis, tensor.shape[node.op.axis]) == operand
    launch = prices.launch_us / len(node.inputs)
    return prices.passing(tensor) * (2 if fits else 3) + launch + plainness


def in_place(graph: Graph, node: Node, name: str, operand: Arrangement, out: Arrangement) -> bool:
    """Whether the source of an operand of a concatenation can write it where it belongs."""
    assert isinstance(node.op, Concat)
    source = graph.find(name)
    if source is None or isinstance(source.op, Slice) or len(graph.users[name]) > 1:
        return False
    while isinstance(source.op, VIEWS):  # a view is written by whoever writes its operand
        before = graph.find(source.inputs[0])
        if before is None or isinstance(before.op, Slice) or len(graph.users[source.inputs[0]]) > 1:
            return False
        source = before
    return out.resized(node.op.axis, graph.types[name].shape[node.op.axis]) == operand
