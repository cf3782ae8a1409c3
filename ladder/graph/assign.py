"""Types for a graph's layers: weights quantised by the rule of their group, activations by row, each where a rule says so.

before --> after::

    linear(x float32[b, s, K], w float32[N, K]) --> linear(x; read as float16; w int4-g128 [N, K])
    linear(x, w)                                --> linear(quantize_tokens(x), w int8)
    linear(dequantize(quantize(x, s), s), w)    --> linear(quantize_tokens(x; scale s), w int8)
    quantize_tokens(rms_norm(x float16))        --> quantize_tokens(rms_norm(x float16; out float32))

A code turns on the last place of what it is made of, and a code that differs makes the next layer's differ more: so a norm that
only a quantisation reads is not rounded to 16 bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ladder.errors import GraphError, LadderError
from ladder.graph.draft import Draft
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import (
    ROW_TARGETS,
    Dequantize,
    LayerNorm,
    Linear,
    Quantize,
    QuantizeTokens,
    RMSNorm,
)
from ladder.graph.rules import Rule, rules_of
from ladder.ttype import GroupedType, Quantized, quantize


def assign(graph: Graph, rules: Any) -> Graph:
    """The graph with the types that rules say.

    A weight that came quantised keeps its codes, scales and zeros; a rule then says only how x is read. A constant that
    two layers share is quantised once for each type that it gets.

    Args:
        graph: with plain linear layers, as importers make it.
        rules: see :func:`ladder.graph.rules.rules_of`.

    Raises:
        GraphError: no layer fits any rule.
        TypeDeclarationError: a weight has no form in its type.
    """
    wanted = rules_of(rules)
    draft = Draft(graph)
    used: set[Rule] = set()
    made: dict[tuple[str, GroupedType], str] = {}
    for node in graph.of(Linear):
        weight = draft.constants.get(node.inputs[1])
        if weight is None:
            draft.decide("assign", node.name, "left", "its weight is no constant")
            continue
        rule = next((one for one in wanted if one.fits(node, weight.name, weight.type)), None)
        if rule is None:
            draft.decide("assign", node.name, "left", "no rule fits")
            continue
        used.add(rule)
        _apply(draft, node, rule, made)
    if not used:
        raise GraphError(
            f"none of {len(graph.of(Linear))} linear layers fits a rule",
            at="; ".join(map(str, wanted)),
            hint="names are matched whole: '*q_proj*'",
        )
    for rule in wanted:
        if rule not in used:
            draft.decide("assign", str(rule), "unused", "no layer is left for it")
    _keep_norms_wide(draft)
    return draft.graph()


def _apply(draft: Draft, node: Node, rule: Rule, made: dict[tuple[str, GroupedType], str]) -> None:
    x, w, *operands = node.inputs
    value = draft.constants[w].value
    wt = rule.type
    if isinstance(value, Quantized):
        name, how = w, "taken as it is in the model"
    elif wt is None:
        draft.decide("assign", node.name, "kept", str(rule))
        return
    else:
        name = made.get((w, wt)) or draft.constant(
            f"{w}.{wt.label or wt.element.name}", _quantized(value, wt, w), (w,)
        )
        made[w, wt] = name
        how = "quantised by the rule of its group"
    op = node.op
    assert isinstance(op, Linear)
    out = rule.out or op.out
    if rule.activation in ROW_TARGETS:
        x = _rows(draft, x, rule)
        out = out or node.type.dtype  # what it was before x was quantised
    draft.put(
        node.name,
        replace(op, activation=rule.activation, out=out),
        (x, name, *operands),
    )
    draft.decide("assign", node.name, f"w {draft.type(name).dtype}, x {rule.activation}", how)


def _quantized(value: np.ndarray[Any, Any], wt: GroupedType, name: str) -> Quantized:
    try:
        return quantize(value, wt)
    except LadderError as error:
        raise type(error)(error.what, at=f"{name} as {wt}", hint=error.hint) from error


def _rows(draft: Draft, x: str, rule: Rule) -> str:
    """The value x with its rows quantised; layers that read one x share the node."""
    target, scale = rule.activation, rule.activation_scale
    name = f"{x}.{target}"
    if scale is None and (before := _quantised_before(draft, x, target)) is not None:
        x, scale = before
        draft.decide("assign", name, f"by the scale {scale:g}", "the model quantises it so")
    op = QuantizeTokens(target, scale)
    for node, _ in draft.users(x):
        if node.op == op:
            return node.name
    return draft.add(op, (x,), name)


def _quantised_before(draft: Draft, x: str, target: str) -> tuple[str, float] | None:
    """Of a value that a model quantises to a type by one scale, and back: what it quantises, and the scale."""
    after = draft.nodes.get(x)
    before = draft.nodes.get(after.inputs[0]) if after is not None else None
    if after is None or before is None or not isinstance(after.op, Dequantize):
        return None
    if not isinstance(before.op, Quantize) or before.op.dtype != target:
        return None
    (scale, *zero), (same, *other) = (_numbers(draft, one) for one in (before, after))
    if scale is None or same is None or scale.size != 1 or not np.array_equal(scale, same):
        return None
    if any(one is None or np.any(one != 0) for one in (*zero, *other)):
        return None
    return before.inputs[0], float(scale.reshape(()))


def _numbers(draft: Draft, node: Node) -> list[np.ndarray[Any, Any] | None]:
    """Scale and zero of a node that quantises, None for one that is no plain constant."""
    found = [draft.constants.get(name) for name in node.inputs[1:]]
    return [
        None if one is None or isinstance(one.value, Quantized) else one.values() for one in found
    ]


def _keep_norms_wide(draft: Draft) -> None:
    """A norm of 16-bit numbers that only a quantisation reads hands it float32."""
    for node in list(draft.nodes.values()):
        norm = draft.nodes.get(node.inputs[0]) if isinstance(node.op, QuantizeTokens) else None
        if norm is None or not isinstance(norm.op, (LayerNorm, RMSNorm)):
            continue
        if norm.type.bits == 16 and draft.sole_user(norm.name) is not None:
            draft.put(norm.name, replace(norm.op, out="float32"), norm.inputs)
            draft.decide("assign", norm.name, "y float32", "only a quantisation reads it")
