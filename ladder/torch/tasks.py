"""A graph as what runs one after the other: kernel calls, and islands of framework operators between them.

::

    rms_norm, linear(silu), add    -->  island(rms_norm), product(linear), island(silu, add)

A layer with a kernel is a product; what its kernel leaves of the epilogue are steps of the island behind it. Steps go into
the first island in which all that they read is there; an island holds everything that can run between two kernel calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, Union

from ladder.graph.epilogue import with_operands
from ladder.graph.graph import Graph, Node
from ladder.graph.matmul import MatMul
from ladder.graph.operators import (
    Coded,
    EpilogueStep,
    Linear,
    Operator,
    QuantizedRows,
    QuantizeTokens,
)
from ladder.graph.tensor import TensorType
from ladder.runtime.layer import residual_of, rest_of


@dataclass(frozen=True)
class Product:
    """The matmul of a layer.

    Attributes:
        name: of the value that it makes.
        node: of the layer.
        x: name of the activations; of rows that were quantised, a pair.
        bias: name of the constant that the kernel adds, or None.
        residual: name of the value that it adds, or None.
        type: of the result; of rows of codes, a pair.
    """

    name: str
    node: str
    x: str
    bias: str | None
    residual: str | None
    type: TensorType

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it takes from the run."""
        return tuple(one for one in (self.x, self.bias, self.residual) if one is not None)


@dataclass(frozen=True)
class Quantisation:
    """Rows as codes and a scale each: the value is a pair.

    Attributes:
        name: of the value that it makes.
        x: name of what is quantised.
        source: type of x.
        target: type of the codes.
        coded: the same by a scale that is known before; None where each row has its own.
    """

    name: str
    x: str
    source: TensorType
    target: str
    coded: Coded | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it takes from the run."""
        return (self.x,)


@dataclass(frozen=True)
class Step:
    """One operator of an island, or one step of an epilogue.

    Attributes:
        name: of the value that it makes.
        op: what is computed.
        reads: names of its operands.
        type: of the result.
    """

    name: str
    op: Operator | EpilogueStep
    reads: tuple[str, ...]
    type: TensorType


@dataclass(frozen=True)
class Island:
    """Steps that run without a kernel of ours between them.

    Attributes:
        steps: in order.
        reads: names of values and constants from outside.
        writes: names of results that something outside reads.
    """

    steps: tuple[Step, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


Call = Union[Product, Quantisation]
Task = Union[Product, Quantisation, Island]
Piece = TypeVar("Piece", bound=Union[Product, Quantisation, Step])


def tasks_of(graph: Graph, kernels: Mapping[str, MatMul]) -> tuple[Task, ...]:
    """The tasks of a graph.

    Args:
        graph: what is computed.
        kernels: the matmuls of those layers that kernels run, by the layer's name.
    """
    pieces: list[Call | Step] = [
        piece for node in graph.nodes for piece in _pieces(graph, node, kernels)
    ]
    known = set(graph.types) - {node.name for node in graph.nodes}
    groups: list[Call | list[Step]] = []
    while pieces:
        steps = [one for one in pieces if isinstance(one, Step)]
        if ready := list(_ready(steps, known)):
            groups.append(ready)
        calls = [one for one in pieces if not isinstance(one, Step)]
        groups.extend(_ready(calls, known))
        pieces = [one for one in pieces if one.name not in known]
    return tuple(
        _island(group, groups[place + 1 :], graph.outputs) if isinstance(group, list) else group
        for place, group in enumerate(groups)
    )


def _ready(pieces: Iterable[Piece], known: set[str]) -> Iterator[Piece]:
    """Pieces whose operands are known, those of one another included; they become known."""
    for piece in pieces:
        if known.issuperset(piece.reads):
            known.add(piece.name)
            yield piece


def _island(steps: list[Step], later: list[Call | list[Step]], outputs: Iterable[str]) -> Island:
    made = {step.name for step in steps}
    flat = [one for group in later for one in (group if isinstance(group, list) else [group])]
    wanted = {name for piece in flat for name in piece.reads} | set(outputs)
    reads = dict.fromkeys(name for step in steps for name in step.reads if name not in made)
    writes = tuple(step.name for step in steps if step.name in wanted)
    return Island(tuple(steps), tuple(reads), writes)


def _pieces(graph: Graph, node: Node, kernels: Mapping[str, MatMul]) -> Iterator[Call | Step]:
    """What a node is divided into."""
    if isinstance(node.op, QuantizeTokens):
        x, op = node.inputs[0], node.op
        yield Quantisation(node.name, x, graph.types[x], op.target, op.coded)
        return
    if not isinstance(node.op, Linear):
        yield Step(node.name, node.op, node.inputs, node.type)
        return
    if node.name in kernels:
        yield from _layer(graph, node, kernels[node.name])
        return
    whole = Linear(activation=node.op.activation, out=node.op.out)
    given = tuple(graph.types[name] for name in node.inputs[:2])
    first = Step(_part(node, node.op.epilogue, 0), whole, node.inputs[:2], whole.infer(*given))
    yield first
    yield from _epilogue(graph, node, (node.op.epilogue, 2), first.type)


def _layer(graph: Graph, node: Node, kernel: MatMul) -> Iterator[Call | Step]:
    assert isinstance(node.op, Linear)
    steps, place = rest_of(node.op, kernel)
    sums = _sums(graph, node, kernel, steps)
    added = residual_of(node.op, kernel)
    yield Product(
        name=_part(node, steps, 0),
        node=node.name,
        x=node.inputs[0],
        bias=node.inputs[2] if kernel.bias else None,
        residual=None if added is None else node.inputs[added],
        type=sums,
    )
    yield from _epilogue(graph, node, (steps, place), sums)


def _sums(graph: Graph, node: Node, kernel: MatMul, rest: tuple[EpilogueStep, ...]) -> TensorType:
    """Type of what the kernel stores."""
    assert isinstance(node.op, Linear)
    done = len(node.op.epilogue) - len(rest)
    op = Linear(node.op.epilogue[:done], node.op.activation, kernel.out.name)
    taken = 2 + sum(step.operands for step in op.epilogue)
    return op.infer(*(graph.types[name] for name in node.inputs[:taken]))


def _epilogue(
    graph: Graph, node: Node, rest: tuple[tuple[EpilogueStep, ...], int], y: TensorType
) -> Iterator[Call | Step]:
    """Steps behind a product; the last one has the node's name."""
    steps, place = rest
    for number, (step, operands) in enumerate(with_operands(steps, node.inputs[place:]), start=1):
        before, name = _part(node, steps, number - 1), _part(node, steps, number)
        if isinstance(step, (QuantizedRows, Coded)):
            coded = step if isinstance(step, Coded) else None
            yield Quantisation(name, before, y, step.target, coded)
            return
        y = step.infer(y, tuple(graph.types[one] for one in operands))
        if number == len(steps):
            y = node.type
        yield Step(name, step, (before, *operands), y)


def _part(node: Node, steps: tuple[EpilogueStep, ...], number: int) -> str:
    """Name of what stands behind so many steps of a node's epilogue."""
    return node.name if number == len(steps) else f"{node.name}/{number}"


def last_uses(tasks: Sequence[Task], outputs: Sequence[str]) -> dict[str, int]:
    """Number of the last task that reads each value; outputs stay."""
    last = {name: number for number, task in enumerate(tasks) for name in task.reads}
    return {name: number for name, number in last.items() if name not in outputs}


def last_views(tasks: Sequence[Task], last: Mapping[str, int]) -> dict[str, int]:
    """Last task that may read the memory of each value: what an island writes may be views of what it reads."""
    ends, end = dict(last), len(tasks)
    for task in reversed(tasks):
        if isinstance(task, Island):
            needed = max((ends.get(name, end) for name in task.writes), default=0)
            for name in task.reads:
                ends[name] = max(ends.get(name, end), needed)
        else:
            ends.setdefault(task.name, end)
    return ends
