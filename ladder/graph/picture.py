"""A graph as an SVG: one row of boxes after the other, edges with types and layouts, conversions in red.

Plain text of about a kilobyte a node; nothing is needed to make it, and any browser shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

import networkx as nx

from ladder.graph.graph import Graph, Node
from ladder.graph.layouts.access import VIEWS
from ladder.graph.operators import Linear, QuantizeTokens

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 250, 46, 30, 64, 20

#: fill of a box: layers, views that cost nothing, quantisation, all others, what comes from outside
COLORS: Mapping[str, str] = {
    "layer": "#cfe3ff",
    "view": "#f2f2f2",
    "quantise": "#ffe3b3",
    "other": "#e2f0d9",
    "outside": "#ffffff",
}

Places = Mapping[str, tuple[float, float]]


def svg(graph: Graph) -> str:
    """The picture as text; constants stand in their reader's box."""
    places, width, height = _places(graph)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" font-family="monospace" font-size="11">'
        ),
        (
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker></defs>'
        ),
    ]
    for node in graph.nodes:
        for place, name in enumerate(node.inputs):
            if name in places:
                parts.append(_edge(graph, node, place, name, places))
    parts += [_box(graph, name, places[name]) for name in places]
    return "\n".join([*parts, "</svg>", ""])


def _places(graph: Graph) -> tuple[Places, float, float]:
    """Left upper corners: as far down as the longest way from an input, side by side in the graph's order."""
    network = nx.DiGraph()
    values = [*(one.name for one in graph.inputs), *(node.name for node in graph.nodes)]
    network.add_nodes_from(values)
    for node in graph.nodes:
        network.add_edges_from((name, node.name) for name in node.inputs if name in network)
    rows = list(nx.topological_generations(network))
    order = {name: i for i, name in enumerate(values)}
    widest = max(map(len, rows), default=1)
    width = 2 * MARGIN + widest * (BOX_WIDTH + GAP_X) - GAP_X
    found = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for j, name in enumerate(sorted(row, key=order.__getitem__)):
            found[name] = (left + j * (BOX_WIDTH + GAP_X), MARGIN + i * (BOX_HEIGHT + GAP_Y))
    return found, width, 2 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y


def _box(graph: Graph, name: str, place: tuple[float, float]) -> str:
    node = graph.find(name)
    x, y = place
    fill = COLORS["outside"] if node is None else COLORS[_sort(node)]
    strong = ' stroke-width="2"' if name in graph.outputs else ""
    lines = [name, str(graph.types[name]) if node is None else str(node.op)]
    if node is not None:
        held = [one for one in node.inputs if graph.constant(one) is not None]
        lines += [", ".join(str(graph.types[one]) for one in held)] if held else []
    text = "".join(
        f'<text x="{x + 6:g}" y="{y + 14 + 13 * i:g}">{escape(_short(line))}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<g><title>{escape(" = ".join(lines))}</title><rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}"'
        f' height="{BOX_HEIGHT}" rx="5" fill="{fill}" stroke="#444"{strong}/>{text}</g>'
    )


def _sort(node: Node) -> str:
    if isinstance(node.op, Linear):
        return "layer"
    if isinstance(node.op, QuantizeTokens):
        return "quantise"
    return "view" if isinstance(node.op, VIEWS) else "other"


def _edge(graph: Graph, node: Node, place: int, name: str, places: Places) -> str:
    (x0, y0), (x1, y1) = places[name], places[node.name]
    start = (x0 + BOX_WIDTH / 2, y0 + BOX_HEIGHT)
    end = (x1 + BOX_WIDTH * (place + 1) / (len(node.inputs) + 1), y1)
    words, converted = _label(graph, node, place, name)
    color = "#c00" if converted else "#666"
    # nearer to the reader, and a line lower for each operand, so that neighbours do not cover each other
    near = 0.45 + 0.18 * (place % 3)
    middle = tuple(a + near * (b - a) for a, b in zip(start, end, strict=True))
    return (
        f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" stroke="{color}"'
        f' marker-end="url(#end)"/><text x="{middle[0]:g}" y="{middle[1]:g}" fill="{color}" font-size="9"'
        f' text-anchor="middle">{escape(words)}</text>'
    )


def _label(graph: Graph, node: Node, place: int, name: str) -> tuple[str, bool]:
    """Type and layout of an edge, and whether a conversion stands on it."""
    words = str(graph.types[name])
    if graph.layouts is None:
        return words, False
    stored, read = graph.layouts.of[name], graph.layouts.operands[node.name, place]
    if stored != read:
        return f"{words} {stored} -> {read}", True
    if isinstance(node.op, VIEWS) and any(
        node.name == one.value for one in graph.layouts.conversions
    ):
        return f"{words} {stored} -> {graph.layouts.of[node.name]}", True
    return (words if stored.is_row_major else f"{words} {stored}"), False


def _short(line: str) -> str:
    most = BOX_WIDTH // 7
    return line if len(line) <= most else f"{line[: most - 3]}..."
