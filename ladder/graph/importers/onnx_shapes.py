"""Arithmetic with shapes: Shape, Gather, Concat and their like on small integer tensors, worked out while a model is read.

Exporters spell ``x.view(b, s, -1)`` as a dozen nodes on shapes. What they compute is a polynomial in the symbols of the
inputs' shapes, and becomes an extent of the graph; no node is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ladder.graph.extent import Extent, divided
from ladder.graph.importers.onnx_call import Call, Known


def known(call: Call) -> Known | None:
    """The integers that a node makes, if they follow from shapes and constants; None for everything else."""
    rule = _RULES.get(call.kind)
    return None if rule is None else rule(call)


def _given(call: Call, place: int) -> Known | None:
    return call.values.integers(call.inputs[place]) if call.has(place) else None


def _shape(call: Call) -> Known | None:
    shape = call.type(0).shape
    start, stop = call.attributes.get("start", 0), call.attributes.get("end")
    return tuple(shape[start:stop])


def _size(call: Call) -> Known | None:
    return call.type(0).elements


def _gather(call: Call) -> Known | None:
    data, places = _given(call, 0), _given(call, 1)
    if not isinstance(data, tuple) or places is None:
        return None
    if isinstance(places, tuple):
        return tuple(data[int(place)] for place in places if isinstance(place, int))
    return data[places] if isinstance(places, int) else None


def _concat(call: Call) -> Known | None:
    parts = [_given(call, place) for place in range(len(call.inputs))]
    if any(part is None for part in parts):
        return None
    joined: list[Extent] = []
    for part in parts:
        joined += part if isinstance(part, tuple) else [part]  # type: ignore[list-item]  # no None is left
    return tuple(joined)


def _slice(call: Call) -> Known | None:
    data = _given(call, 0)
    ends = [_given(call, place) for place in (1, 2, 4)]
    start, stop, step = (one[0] if isinstance(one, tuple) else 1 for one in ends)
    if not isinstance(data, tuple) or not isinstance(ends[0], tuple):
        return None
    if not isinstance(start, int) or not isinstance(stop, int) or not isinstance(step, int):
        return None
    return data[start:stop:step]


def _scalar(call: Call) -> Known | None:
    data = _given(call, 0)
    return data[0] if isinstance(data, tuple) and len(data) == 1 else data


def _vector(call: Call) -> Known | None:
    data = _given(call, 0)
    return data if data is None or isinstance(data, tuple) else (data,)


def _same(call: Call) -> Known | None:
    integer = call.kind == "Identity" or call.attributes.get("to") in (6, 7)
    return _given(call, 0) if integer else None


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Call], Known | None]:
    def rule(call: Call) -> Known | None:
        a, b = _given(call, 0), _given(call, 1)
        if a is None or b is None:
            return None
        if not isinstance(a, tuple) and not isinstance(b, tuple):
            return function(a, b)  # type: ignore[no-any-return]
        left = a if isinstance(a, tuple) else (a,)
        right = b if isinstance(b, tuple) else (b,)
        count = max(len(left), len(right))
        pairs = zip(left * (count // len(left)), right * (count // len(right)), strict=True)
        made = tuple(function(x, y) for x, y in pairs)
        return None if None in made else made

    return rule


def _quotient(a: Extent, b: Extent) -> Extent | None:
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if b else None
    return divided(a, b)


_RULES: Mapping[str, Callable[[Call], Known | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _scalar,
    "Unsqueeze": _vector,
    "Cast": _same,
    "Identity": _same,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_quotient),
}
