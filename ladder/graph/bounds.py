"""How far a framework's result of one operator may be from the float64 meaning on the same operands; derived, not fitted.

A framework rounds after every operation to its type, unit roundoff u (float32 2**-24, float16 2**-11, bfloat16 2**-8).
Forward analysis (Higham, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4): a sum of n products, in any order,
is off by at most ``n u sum |x||w|`` to first order; and as roundings have no common sign, by at most ``6 sqrt(n) u sum |x||w|``
but for a chance of ``2 n exp(-18)`` (Higham and Mary 2019, theorem 2.4). The smaller of the two is taken. Sums of 16-bit operands
are kept in float32 by the frameworks, so the bound of a node has two parts: roundings of stored values at the type's u, and
additions at the finer of u and float32's, each times the magnitudes that are rounded or added. Results below the normal
numbers of a type are off by its smallest number instead, which is added.

Where the graph's weight or rows are codes and the model's are not, each differs by at most a, half the element's largest gap
times the scale; :class:`Quantisation` carries that through the product and the epilogue. The worst case is ``|x| @ a.T``. Roundings
to codes do not know the other operand, hence ``E|e|^2 = sum x^2 e^2 <= sum x^2 a^2``: twice the root of that is the bound, unless
the worst case is smaller (roundings that are spread evenly stay below 0.58 of the root; the rest is room for chance in small
layers). Activation functions have slopes of at most :data:`SLOPE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ladder.graph.epilogue import with_operands
from ladder.graph.graph import Node
from ladder.graph.operators import (
    FUNCTIONS,
    ROW_TARGETS,
    Activated,
    Attention,
    Binary,
    Coded,
    Dequantize,
    EpilogueStep,
    Gated,
    LayerNorm,
    Linear,
    MatrixProduct,
    Operator,
    Quantize,
    QuantizedRows,
    QuantizeTokens,
    Reduce,
    RMSNorm,
    Rotary,
    Scaled,
    Softmax,
    Unary,
)
from ladder.graph.tensor import Array
from ladder.registry import types
from ladder.ttype import Dense, Quantized, TType
from ladder.ttype.quantized import spread

#: unit roundoff of each float type
ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}

#: unit roundoff -> smallest number above zero: a result below the normal ones is off by at most half of it
SMALLEST: Mapping[float, float] = {
    2.0**-53: 2.0**-1074,
    2.0**-24: 2.0**-149,
    2.0**-11: 2.0**-24,
    2.0**-8: 2.0**-133,
}

#: unit roundoff of sums of 16-bit operands
SUMS = 2.0**-24

#: roundings of stored values, and additions, of each element: times their magnitudes
Counted = tuple[Array, Array | float]

#: roundings of a function of a library: two units in the last place, and those of its argument
FUNCTION_ROUNDINGS = 16


#: deviations within which a sum of roundings stays but for a chance of 2 n exp(-18)
CHANCE = 6.0

#: room above the root of the expected square of a layer's error
ROOM = 2.0

#: steepest slope of the epilogue's activation functions (GELU: 1.129 at 1.41; the others stay below)
SLOPE = 1.13


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What codes may change about a linear layer's operands.

    Attributes:
        x: largest error of each element of x, or 0.
        w: largest error of each weight [N, K], or 0.
    """

    x: Array | float = 0.0
    w: Array | float = 0.0


EXACT = Quantisation()


def bound(
    node: Node,
    operands: Sequence[Array],
    result: Array,
    roundoff: float,
    quantisation: Quantisation = EXACT,
) -> Array:
    """Largest error of each element of a node's result, where every operation rounds once with ``roundoff``.

    ``operands`` are those that the graph used. Integers and moves have no error.
    """
    if isinstance(node.op, Linear):
        return _linear(node.op, operands, roundoff, quantisation)
    rule = BOUNDS.get(type(node.op))
    if rule is None or not node.type.is_float:
        return np.zeros(result.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        stored, summed = rule(node.op, operands, result)
        counted = roundoff * np.asarray(stored) + min(roundoff, SUMS) * np.asarray(summed)
        counted = counted + FUNCTION_ROUNDINGS * SMALLEST.get(roundoff, 0.0)
    return np.broadcast_to(np.nan_to_num(counted, nan=0.0, posinf=0.0), result.shape)


def half_gap(element: TType) -> float:
    """Half the largest distance of neighbouring values of an element."""
    ends = np.unique(element.values[np.isfinite(element.values)])
    return float(np.max(np.diff(ends), initial=0.0)) / 2


def weight_error(weight: Quantized) -> Array | float:
    """How far quantising may have moved each weight [N, K]: half a gap times the scale, and a rounded zero point.

    Numbers of a dense element lie as close as they are small: a rounding moves each by its own size, at most.
    """
    element = weight.type.element
    if isinstance(element, Dense):
        roundoff = ROUNDOFF[element.compute.name]
        return roundoff * np.abs(weight.dequantize()) + SMALLEST[roundoff] / 2
    if weight.scales is None:
        return half_gap(element)
    full = weight.scales.astype(np.float64) * float(weight.global_scale or 1.0)
    allowed = half_gap(element) * full
    if weight.zeros is not None and weight.type.zero != "integer":
        zeros = np.abs(weight.zeros.astype(np.float64))
        rounded = ROUNDOFF.get(weight.type.scale or "", 2.0**-8) * zeros
        allowed = allowed + (rounded if weight.type.zero == "rescaled" else full * rounded)
    rows = slice(0, weight.shape[0])
    return spread(allowed, weight.type.group_extents(*weight.shape), weight.shape, rows)


def row_error(x: Array, op: QuantizeTokens | QuantizedRows | Coded) -> Array:
    """How far quantising rows may have moved each element of x that did not saturate, given what came out of it."""
    target = op.target
    scale = getattr(op, "scale", None)
    if scale is None:
        scale = np.max(np.abs(x), axis=-1, keepdims=True, initial=0.0) / ROW_TARGETS[target]
    return np.asarray(half_gap(types[target]) * scale * (1 + 2.0**-20))


def additions(count: int) -> float:
    """Roundings that a sum of ``count`` products amounts to."""
    return min(count + 1.0, CHANCE * math.sqrt(count + 1))


def independent(x: Array, w: Array) -> Array:
    """``|sum_k x_k w_k|`` for [..., K] and [N, K] magnitudes, one side of which has signs that do not know the other side."""
    return np.asarray(np.minimum(x @ w.T, ROOM * np.sqrt((x**2) @ (w**2).T)))


def _linear(
    op: Linear, operands: Sequence[Array], roundoff: float, quantisation: Quantisation
) -> Array:
    x, w, *others = operands
    magnitude = np.abs(x) @ np.abs(w).T
    y = x @ w.T
    finer = min(roundoff, SUMS)
    error = finer * additions(w.shape[1]) * magnitude + roundoff * np.abs(y)
    # below the normal numbers roundings are absolute: of each weight, each product, and the result
    error = error + SMALLEST.get(finer, 0.0) * (np.abs(x) + 1).sum(axis=-1, keepdims=True)
    error = error + SMALLEST.get(roundoff, 0.0)
    if isinstance(quantisation.w, np.ndarray) or quantisation.w:
        error = error + independent(np.abs(x), np.broadcast_to(quantisation.w, w.shape))
    if isinstance(quantisation.x, np.ndarray):
        moved = np.broadcast_to(quantisation.x, x.shape)
        error = error + independent(moved, np.abs(w) + quantisation.w)
    for step, given in with_operands(op.epilogue, others):
        error = _through(step, y, error)
        y = step.apply(y, given)
        error = error + roundoff * FUNCTION_ROUNDINGS * (
            np.abs(y) + sum(np.abs(one) for one in given)
        )
    return np.asarray(error)


def _through(step: EpilogueStep, y: Array, error: Array) -> Array:
    """What a step of the epilogue makes of an error of its input."""
    match step:
        case Scaled(factor):
            return abs(factor) * error
        case Activated():
            return SLOPE * error
        case Gated(function):
            half = y.shape[-1] // 2
            gate, up = np.abs(FUNCTIONS[function](y[..., :half])), np.abs(y[..., half:])
            of_gate, of_up = SLOPE * error[..., :half], error[..., half:]
            return np.asarray(of_gate * (up + of_up) + gate * of_up)
        case QuantizedRows() | Coded():
            return np.asarray(error + row_error(np.abs(y) + error, step))
    return error


def _product(op: Operator, operands: Sequence[Array], result: Array) -> Counted:  # noqa: ARG001
    a, b = (np.abs(one) for one in operands)
    return np.abs(result), (a @ b) * additions(a.shape[-1])


def _attention(op: Operator, operands: Sequence[Array], result: Array) -> Counted:  # noqa: ARG001
    """Scores are off by ``D u |q||k|``, hence their exponentials by that, relatively; then T sums of products."""
    assert isinstance(op, Attention)
    q, k, v = (np.abs(one) for one in operands[:3])
    times = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(one, times, axis=-3) for one in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if op.scale is None else op.scale
    scores = float(np.max(scale * (q @ np.swapaxes(k, -1, -2)), initial=0.0))
    size = np.max(v, axis=-2, keepdims=True, initial=0.0)
    stored = (4 * scores + FUNCTION_ROUNDINGS) * size
    return stored, (2 * additions(q.shape[-1]) * scores + 3 * additions(v.shape[-2])) * size


def _norm(op: Operator, operands: Sequence[Array], result: Array) -> Counted:
    assert isinstance(op, (LayerNorm, RMSNorm))
    x, *affine = operands
    axes = tuple(range(-op.axes, 0))
    spread_of_x = np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + op.eps)
    deviation = spread_of_x
    if isinstance(op, LayerNorm):  # the mean is taken off: what cancels is priced at its full size
        deviation = np.sqrt(np.var(x, axis=axes, keepdims=True) + op.eps)
    size = (np.abs(x) + spread_of_x) / deviation * (spread_of_x / deviation)
    size = size * np.abs(affine[0]) if affine else size
    size = size + np.abs(result)
    return FUNCTION_ROUNDINGS * size, additions(math.prod(x.shape[axis] for axis in axes)) * size


def _softmax(op: Operator, operands: Sequence[Array], result: Array) -> Counted:
    assert isinstance(op, Softmax)
    x = operands[0]
    finite = np.where(np.isfinite(x), np.abs(x), 0)
    largest = np.max(finite, axis=op.axis, keepdims=True, initial=0.0)
    return result * (FUNCTION_ROUNDINGS + 2 * largest), result * additions(x.shape[op.axis])


def _reduce(op: Operator, operands: Sequence[Array], result: Array) -> Counted:
    assert isinstance(op, Reduce)
    count = math.prod(operands[0].shape[axis] for axis in op.axes)
    return np.abs(result), additions(count) * op.evaluate(np.abs(operands[0]), sizes={})


def _binary(op: Operator, operands: Sequence[Array], result: Array) -> Counted:
    assert isinstance(op, Binary)
    size = np.abs(result)
    if op.function in ("add", "subtract"):
        size = np.abs(operands[0]) + np.abs(operands[1])
    return (FUNCTION_ROUNDINGS if op.function == "power" else 2) * size, 0.0


def _function(op: Operator, operands: Sequence[Array], result: Array) -> Counted:  # noqa: ARG001
    """Also what rounding the argument does: ``|x| u`` times a slope of at most 2, or of the result's own size."""
    size = np.abs(result) + np.abs(operands[0]) * np.maximum(1, np.abs(result))
    return FUNCTION_ROUNDINGS * size, 0.0


def _rotary(op: Operator, operands: Sequence[Array], result: Array) -> Counted:  # noqa: ARG001
    size = np.max(np.abs(operands[0]), axis=-1, keepdims=True, initial=0.0)
    angles = sum(float(np.max(np.abs(one), initial=0.0)) for one in operands[1:])
    return 8 * angles * size, 0.0


def _stepwise(op: Operator, operands: Sequence[Array], result: Array) -> Counted:  # noqa: ARG001
    return 4 * np.abs(result), 0.0


#: class of operator -> what is counted; what is not listed moves numbers and changes none
BOUNDS: Mapping[type[Operator], Callable[[Operator, Sequence[Array], Array], Counted]] = {
    MatrixProduct: _product,
    Attention: _attention,
    LayerNorm: _norm,
    RMSNorm: _norm,
    Softmax: _softmax,
    Reduce: _reduce,
    Binary: _binary,
    Unary: _function,
    Rotary: _rotary,
    Dequantize: _stepwise,
    Quantize: _stepwise,
}
