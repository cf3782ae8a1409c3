"""A low-bit layer of a graph: its matmul, its weight, and what of its epilogue its kernel leaves to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from ladder.graph import quantize_activations
from ladder.graph.graph import Graph, Node
from ladder.graph.matmul import MatMul
from ladder.graph.operators import AddResidual, Coded, EpilogueStep, Linear, QuantizeTokens
from ladder.graph.operators.quantize import rows_of
from ladder.graph.quantize_activations import SOURCES, TARGETS
from ladder.graph.tensor import Array
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.quantize_plan import QuantizePlan
from ladder.scheduler.search import schedule
from ladder.ttype import Quantized


@dataclass(frozen=True)
class Layer:
    """A low-bit layer and how it runs.

    Attributes:
        node: its name in the graph.
        plan: of its matmul; a set where the number of rows is symbolic. None where no kernel takes it.
        why: the reason for None.
    """

    node: str
    plan: Plan | PlanSet | None
    why: str = ""


def low_bit(graph: Graph) -> tuple[Node, ...]:
    """Layers whose weight has a low-bit type."""
    return tuple(
        node for node in graph.of(Linear) if graph.types[node.inputs[1]].weight is not None
    )


def matmul_of(graph: Graph, node: Node) -> MatMul:
    """The matmul of a layer.

    Raises:
        LadderError: no kernel has its types.
    """
    assert isinstance(node.op, Linear)
    x, w = (graph.types[name] for name in node.inputs[:2])
    return node.op.matmul(x, w)


def weight_of(graph: Graph, node: Node) -> Quantized:
    """The weight of a low-bit layer."""
    constant = graph.constant(node.inputs[1])
    assert constant is not None
    assert isinstance(constant.value, Quantized)
    return constant.value


def rest_of(op: Linear, kernel: MatMul) -> tuple[tuple[EpilogueStep, ...], int]:
    """The steps of a layer's epilogue that its kernel does not do, and which input of the layer their operands begin at.

    This is the one place where an epilogue is divided between the kernel and what runs around it.
    """
    done = int(kernel.bias) + len(kernel.epilogue)
    return op.epilogue[done:], 2 + sum(step.operands for step in op.epilogue[:done])


def residual_of(op: Linear, kernel: MatMul) -> int | None:
    """Which input of a layer its kernel adds as the residual; None where it adds none."""
    if not kernel.residual:
        return None
    before = takewhile(lambda step: not isinstance(step, AddResidual), op.epilogue)
    return 2 + sum(step.operands for step in before)


class PlanOperands(NamedTuple):
    """What a layer's plan takes, in the order of ``plan.run``."""

    x: Array
    weight: Quantized
    bias: Array | None
    x_scale: Array | None
    residual: Array | None


def kernel_operands(
    graph: Graph, node: Node, op: MatMul, operands: Sequence[Array]
) -> PlanOperands:
    """The operands of a layer as its kernel takes them, from the float64 ones of its node.

    Rows that were quantised become the codes and scales that they stand for; all others are rounded to the kernel's type.
    """
    assert isinstance(node.op, Linear)
    bias = None
    if op.bias:
        bias = np.broadcast_to(operands[2].reshape(-1), (op.n,)).astype(op.out.dtype)
    x, x_scale = operands[0].astype(op.activation.dtype), None
    if op.activation_scale:
        x, x_scale = rows_of(operands[0], op.activation.name, static_scale(graph, node.inputs[0]))
    place = residual_of(node.op, op)
    residual = None if place is None else operands[place].astype(op.out.dtype)
    return PlanOperands(x, weight_of(graph, node), bias, x_scale, residual)


def static_scale(graph: Graph, name: str) -> float | None:
    """The scale that all rows of a value were quantised by; None where each has its own."""
    node = graph.find(name)
    if node is None:
        return None
    if isinstance(node.op, QuantizeTokens):
        return node.op.scale
    last = node.op.epilogue[-1:] if isinstance(node.op, Linear) else ()
    return next((step.scale for step in last if isinstance(step, Coded)), None)


def quantisation_plan(k: int, source: str, target: str, device: Any) -> QuantizePlan | None:
    """The plan that quantises any number of rows of k numbers; None where no kernel takes the types."""
    if source not in SOURCES or target not in TARGETS:
        return None
    return schedule(quantize_activations(None, k, source=source, target=target), device)
