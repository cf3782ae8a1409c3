"""The float64 meaning of a graph by torch, for graphs that are too large for NumPy, and an executor compared with it.

Operators are those of :mod:`ladder.torch.functions` on float64 tensors; weights are dequantised where they lie, rows are
quantised by the formula of :func:`ladder.graph.operators.quantize.quantize_rows`. Tests compare it with the NumPy meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ladder.graph.epilogue import with_operands
from ladder.graph.graph import Graph, Node
from ladder.graph.operators import Linear, QuantizedRows, QuantizeTokens
from ladder.graph.verify import Report, Row, refuse_empty
from ladder.runtime.error_bar import bar_on
from ladder.runtime.layer import weight_of
from ladder.runtime.packed import to_torch
from ladder.torch.executor import Executor, Values
from ladder.torch.functions import apply_step, function_of
from ladder.torch.inputs import Sizes, check_inputs, sizes_of
from ladder.torch.places import Given, quantize_rows, signed
from ladder.torch.static_codes import static_numbers
from ladder.torch.tasks import Product
from ladder.ttype import Quantized

Tensor = Any

#: weights that are dequantised at once
CHUNK_WEIGHTS = 1 << 26


def verify(executor: Executor, *inputs: Tensor) -> Report:
    """Each kernel's product beside the float64 one of the same operands, within the derived bar of its operator.

    The cosine of the report is the least of the outputs, beside the float64 meaning of the whole graph.

    Raises:
        GraphError: a layer has no rows with these inputs; other errors are those of a call.
    """
    refuse_empty(executor.graph, check_inputs(executor.graph, inputs, executor.place.device)[1])
    rows: list[Row] = []

    def beside(task: Product, given: Given, y: Tensor) -> None:
        rows.append(_row(executor, task, given, y))

    results = executor.traced(inputs, beside)
    exact = run(executor.graph, inputs)
    pairs = zip(_tuple(results), _tuple(exact), strict=True)
    return Report(tuple(rows), min((cosine(a, b) for a, b in pairs), default=1.0))


def _row(executor: Executor, task: Product, given: Given, y: Tensor) -> Row:
    node, op = executor.graph.node(task.node), executor.matmuls[task.node]
    x = given.x.double()
    if given.x_scale is not None:
        x = x * given.x_scale.double()[..., None]
    weight = dequantized(weight_of(executor.graph, node), y.device)
    want = x @ weight.T
    if given.bias is not None:
        want = want + given.bias.double()
    added = () if given.residual is None else (given.residual.double(),)
    for step, taken in with_operands(op.epilogue, added):
        want = apply_step(step, want, taken)
    if op.codes is not None:
        y = y.double() * op.codes.scale
    error = float((y.double() - want).norm() / want.norm())
    bar = bar_on(executor.plans[task.node], x, weight)
    return Row(node.name, node.origin, str(op), error, bar, cosine(y, want))


def run(graph: Graph, inputs: Sequence[Tensor]) -> Any:
    """The float64 meaning on the device of the inputs: a tensor, or a tuple of them."""
    device = inputs[0].device
    names = [one.name for one in graph.inputs]
    sizes = sizes_of(graph, inputs)
    values: Values = {name: _wide(tensor) for name, tensor in zip(names, inputs, strict=True)}
    last = {name: node.name for node in graph.nodes for name in node.inputs}
    with torch.no_grad():
        for node in graph.nodes:
            operands = [_value(graph, values, name, device) for name in node.inputs]
            values[node.name] = _meaning(node, operands, sizes, device)
            for name in node.inputs:
                if last[name] == node.name and name not in graph.outputs:
                    values.pop(name, None)
    results = tuple(_value(graph, values, name, device) for name in graph.outputs)
    return results[0] if len(results) == 1 else results


def _meaning(node: Node, operands: list[Tensor], sizes: Sizes, device: Any) -> Tensor:
    if isinstance(node.op, QuantizeTokens):
        if node.op.coded is not None:
            return static_numbers(operands[0], node.op.coded)
        return _rows(operands[0], node.op.target)
    if not isinstance(node.op, Linear):
        y = function_of(node.op, sizes, device)(*operands)
        return _wide(y)
    y = operands[0] @ operands[1].T
    for step, taken in with_operands(node.op.epilogue, operands[2:]):
        if isinstance(step, QuantizedRows):
            y = _rows(y, step.target)
        else:
            y = apply_step(step, y, taken)
    return y


def _rows(x: Tensor, target: str) -> Tensor:
    codes, scales = quantize_rows(x, target)
    return codes.double() * scales.double()[..., None]


def _value(graph: Graph, values: Values, name: str, device: Any) -> Tensor:
    if name in values:
        return values[name]
    constant = graph.constant(name)
    assert constant is not None
    if isinstance(constant.value, Quantized):
        return dequantized(constant.value, device)
    return _wide(to_torch(constant.value, device))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def dequantized(weight: Quantized, device: Any) -> Tensor:
    """A weight as float64 ``[N, K]`` on a device: its codes travel, not its numbers."""
    codes = to_torch(signed(weight.codes), device)
    table = torch.from_numpy(weight.type.element.values.copy()).to(device)
    n, k = weight.shape
    rows, columns = weight.type.group_extents(n, k)
    scales, zeros = (_metadata(weight, name, table) for name in ("scales", "zeros"))
    found = torch.empty((n, k), dtype=torch.float64, device=device)
    step = max(1, CHUNK_WEIGHTS // k // rows) * rows
    for first in range(0, n, step):
        some = table[codes[first : first + step].long() & (len(table) - 1)]
        if scales is not None:
            groups = slice(first // rows, -(-min(n, first + step) // rows))
            scale, zero = (
                None if one is None else _spread(one[groups], (rows, columns), some.shape)
                for one in (scales, zeros)
            )
            if zero is None:
                some = some * scale
            elif weight.type.zero == "rescaled":
                some = some * scale - zero
            else:
                some = (some - zero) * scale
        found[first : first + step] = some
    return found


def _metadata(weight: Quantized, name: str, table: Tensor) -> Tensor | None:
    """Scales, the second level included, or zeros as numbers: float64 by group."""
    array = getattr(weight, name)
    if array is None:
        return None
    if name == "zeros" and weight.type.zero == "integer":
        return table[torch.from_numpy(array.astype(np.int64)).to(table.device)]
    numbers = array.astype(np.float64)
    if name == "scales" and weight.global_scale is not None:
        numbers = numbers * np.float64(weight.global_scale)
    return torch.from_numpy(numbers).to(table.device)


def _spread(groups: Tensor, extents: tuple[int, int], shape: Sequence[int]) -> Tensor:
    rows, columns = extents
    wide = groups.repeat_interleave(columns, 1)[:, : shape[1]]
    return wide.repeat_interleave(rows, 0)[: shape[0]] if rows > 1 else wide


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of the angle between two tensors; 1 where both are zero."""
    x, y = a.double().flatten(), b.double().flatten()
    size = float(x.norm() * y.norm())
    return float(x @ y) / size if size else float(torch.equal(x, y))


def _tuple(one: Any) -> tuple[Tensor, ...]:
    return one if isinstance(one, tuple) else (one,)
