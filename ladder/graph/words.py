"""A graph in words: the table that it prints as, and the explanation of what was decided."""

from __future__ import annotations

from collections import Counter

from ladder.graph.graph import Graph


def table(graph: Graph) -> str:
    """One line a value: name, type, what makes it, from what."""
    rows = [(one.name, str(one.type), "input") for one in graph.inputs]
    rows += [(one.name, str(one.type), "constant") for one in graph.constants]
    rows += [
        (node.name, str(node.type), f"{node.op} of {', '.join(node.inputs)}" if node.inputs else str(node.op))
        for node in graph.nodes
    ]  # fmt: skip
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"{name:<{widths[0]}}  {type_:<{widths[1]}}  {what}" for name, type_, what in rows]
    lines.append(f"returns {', '.join(graph.outputs)}")
    lines.append(summary(graph))
    return "\n".join(lines)


def summary(graph: Graph) -> str:
    """Counts of operators and bytes of constants in one line."""
    counts = Counter(node.op.kind for node in graph.nodes)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return f"{len(graph.nodes)} nodes ({kinds}), {graph.weight_bytes / 1e6:.3f} MB of constants"


def explain(graph: Graph) -> str:
    """Every decision with its reason, then the layouts."""
    lines = [summary(graph)]
    lines += [str(decision) for decision in graph.decisions]
    lines += [
        f"foreign  {part[0]}: {', '.join(part)} are left to the caller's framework"
        for part in graph.partitions
    ]
    if graph.layouts is not None:
        lines += ["", str(graph.layouts)]
    return "\n".join(lines)
