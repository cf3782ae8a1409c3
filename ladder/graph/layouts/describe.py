"""From an assignment to what people and later stages read: layouts, conversions, placements, notes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from ladder.graph.graph import Graph, Node
from ladder.graph.layouts.access import VIEWS, Prices
from ladder.graph.layouts.arrangement import Arrangement, row_major
from ladder.graph.layouts.costs import is_view
from ladder.graph.layouts.solution import Conversion, Layouts, Note, Placement
from ladder.graph.operators import (
    Binary,
    Cast,
    Coded,
    LayerNorm,
    Linear,
    QuantizedRows,
    QuantizeTokens,
    RMSNorm,
    Rotary,
    Unary,
    Where,
)

if TYPE_CHECKING:
    from ladder.graph.layouts.propagate import Problem

#: operators whose kernels quantise what they write
SOURCES = (LayerNorm, RMSNorm, Unary, Binary, Where, Cast, Rotary, Linear)


def described(
    graph: Graph, problem: Problem, chosen: Mapping[Hashable, int], device: str
) -> Layouts:
    """The layouts of a graph in full."""
    picked = {variable: problem.options[variable][index] for variable, index in chosen.items()}
    stored = {name: picked["s", name] for name in problem.domains}
    read = {
        (node.name, place): picked["u", node.name, place]
        for node in graph.nodes
        for place, name in enumerate(node.inputs)
        if name in stored
    }
    conversions = _conversions(graph, problem, stored, read)
    before = sum(
        1
        for node in graph.of(*VIEWS)
        if not is_view(
            node,
            row_major(graph.types[node.inputs[0]].shape),
            row_major(node.type.shape),
            problem.no_view,
        )
    )
    return Layouts(
        device,
        tuple(stored.items()),
        tuple((name, place, arrangement) for (name, place), arrangement in read.items()),
        tuple(conversions),
        tuple(_placements(graph, problem.prices)),
        tuple(_notes(graph, problem, stored, read)),
        (before, problem.us(problem.plain())),
        problem.us(chosen),
    )


def _conversions(
    graph: Graph,
    problem: Problem,
    stored: Mapping[str, Arrangement],
    read: Mapping[tuple[str, int], Arrangement],
) -> list[Conversion]:
    found = []
    for name, arrangement in stored.items():
        wanted: dict[Arrangement, list[str]] = {}
        for node, place in graph.users[name]:
            wanted.setdefault(read[node.name, place], []).append(node.name)
        if name in graph.outputs:
            wanted.setdefault(row_major(graph.types[name].shape), []).append("the caller")
        us = problem.prices.conversion(graph.types[name])
        for one, readers in wanted.items():
            if one != arrangement:
                why = _why(graph, name, len(wanted))
                found.append(Conversion(name, arrangement, one, tuple(readers), us, why))
    for node in graph.of(*VIEWS):
        source = read.get((node.name, 0))
        if not is_view(node, source, stored[node.name], problem.no_view) and source is not None:
            why = f"no arrangement of {node.inputs[0]} is {node.op.kind}d in place"
            if node.name in problem.no_view:
                why = "it joins an axis that has gaps"
            us = problem.prices.conversion(node.type)
            users = tuple(user.name for user, _ in graph.users[node.name]) or ("the caller",)
            found.append(Conversion(node.name, source, stored[node.name], users, us, why))
    return found


def _why(graph: Graph, name: str, layouts: int) -> str:
    if graph.find(name) is None:
        return "the caller gives it row-major"
    if layouts > 1:
        return f"its {len(graph.users[name])} readers want {layouts} layouts, and one conversion is cheaper"
    return "its source cannot write what is wanted"


def _notes(
    graph: Graph,
    problem: Problem,
    stored: Mapping[str, Arrangement],
    read: Mapping[tuple[str, int], Arrangement],
) -> list[Note]:
    notes = []
    for node in graph.nodes:
        arrangement = stored[node.name]
        if isinstance(node.op, VIEWS):
            notes.append(_of_view(node, problem, arrangement, read.get((node.name, 0))))
        elif not arrangement.is_row_major:
            readers = ", ".join(user.name for user, _ in graph.users[node.name])
            text = f"{node.op.kind} writes {arrangement}, as {readers} wants it"
            notes.append(Note("propagated", node.name, text))
    for constant in graph.constants:
        if constant.type.weight is not None:
            text = f"{constant.type.dtype} is packed for its kernel when the graph is compiled"
            notes.append(Note("offline", constant.name, text))
    return notes


def _of_view(
    node: Node, problem: Problem, arrangement: Arrangement, source: Arrangement | None
) -> Note:
    if source is None:
        return Note("offline", node.name, "its operand is a constant")
    if is_view(node, source, arrangement, problem.no_view):
        text = f"{node.op.kind} is {node.inputs[0]} as it lies, read as {arrangement}"
        return Note("cancelled", node.name, text)
    return Note("stopped", node.name, f"{node.op.kind} moves {source} to {arrangement}")


def _placements(graph: Graph, prices: Prices) -> list[Placement]:
    """Where each activation is quantised and each weight decoded."""
    found = []
    for node in graph.of(QuantizeTokens):
        given = graph.types[node.inputs[0]]
        writing = prices.passing(node.type)
        alone = prices.launch_us + prices.passing(given) + writing
        source = graph.find(node.inputs[0])
        while source is not None and isinstance(source.op, VIEWS):
            source = graph.find(source.inputs[0])
        if source is None or not isinstance(source.op, SOURCES):
            who = "the caller gives it" if source is None else f"{source.name} is the framework's"
            why = f"{who}: a kernel of its own, {alone:.2f} us"
            found.append(Placement(node.name, "global", why))
            continue
        others = [user.name for user, _ in graph.users[node.inputs[0]] if user.name != node.name]
        both = f"; it also writes what {', '.join(others)} reads" if others else ""
        why = f"{source.name} writes codes and scales, {writing:.2f} us, not {alone:.2f} us by a kernel of its own{both}"
        found.append(Placement(node.name, "source", why))
    for node in graph.of(Linear):
        assert isinstance(node.op, Linear)
        if any(isinstance(step, (QuantizedRows, Coded)) for step in node.op.epilogue):
            found.append(Placement(node.name, "source", "its epilogue quantises rows"))
        weight = graph.constant(node.inputs[1])
        if weight is not None and weight.type.weight is not None:
            text = f"{weight.type.weight.element.name} of {weight.name}; its kernel's plan may say shared"
            found.append(Placement(node.name, "register", text))
    return found
