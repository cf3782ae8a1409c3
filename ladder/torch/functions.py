"""Operators of graphs as functions of torch tensors, in the types of the graph's edges.

What torch has as one function is that function, so that its own kernels run; the rest is spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.nn import functional

from ladder.errors import GraphError
from ladder.graph.epilogue import with_operands
from ladder.graph.extent import Sizes, shape_of, value_of
from ladder.graph.operators import (
    ROW_TARGETS,
    Activated,
    AddResidual,
    Attention,
    Biased,
    Binary,
    Cast,
    Coded,
    Concat,
    Dequantize,
    EpilogueStep,
    Expand,
    Extents,
    Gated,
    Gather,
    LayerNorm,
    Linear,
    MatrixProduct,
    Operator,
    Quantize,
    Range,
    Reduce,
    Reshape,
    RMSNorm,
    Rotary,
    Scaled,
    Slice,
    Softmax,
    Transpose,
    Unary,
    Where,
)
from ladder.graph.operators.quantize import integer_limits
from ladder.torch.static_codes import static_numbers

Tensor = Any
#: from operands to the result; symbols of shapes are known
Function = Callable[..., Tensor]
#: from the operator, the symbols' sizes and the device to its function
Maker = Callable[[Any, Sizes, Any], Function]

#: types of edges whose names torch spells otherwise
_NAMES = {"fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}

UNARY: Mapping[str, Function] = MappingProxyType(
    {
        "abs": torch.abs,
        "cos": torch.cos,
        "erf": torch.erf,
        "exp": torch.exp,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "log": torch.log,
        "negative": torch.neg,
        "not": torch.logical_not,
        "reciprocal": torch.reciprocal,
        "relu": functional.relu,
        "rsqrt": torch.rsqrt,
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "sin": torch.sin,
        "sqrt": torch.sqrt,
        "square": torch.square,
        "tanh": torch.tanh,
    }
)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    whole = not (a.is_floating_point() or b.is_floating_point())
    return torch.div(a, b, rounding_mode="trunc" if whole else None)


BINARY: Mapping[str, Function] = MappingProxyType(
    {
        "add": torch.add,
        "and": torch.logical_and,
        "divide": _divide,
        "equal": torch.eq,
        "greater": torch.gt,
        "greater_equal": torch.ge,
        "less": torch.lt,
        "less_equal": torch.le,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "multiply": torch.mul,
        "not_equal": torch.ne,
        "or": torch.logical_or,
        "power": torch.pow,
        "subtract": torch.sub,
    }
)

REDUCTIONS: Mapping[str, Function] = MappingProxyType(
    {"sum": torch.sum, "mean": torch.mean, "maximum": torch.amax, "minimum": torch.amin}
)


def torch_dtype(name: str) -> Any:
    """The torch dtype of an edge's type.

    Raises:
        GraphError: torch has no such type.
    """
    found = getattr(torch, _NAMES.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise GraphError(
            f"torch has no type {name}", at="torch", hint="run the graph by its NumPy meaning"
        )
    return found


def function_of(op: Operator, sizes: Sizes, device: Any) -> Function:
    """An operator as a function of torch tensors.

    Raises:
        GraphError: torch does not run it.
    """
    make = MAKERS.get(type(op))
    if make is None:
        raise GraphError(
            f"{op.kind} has no torch function",
            at=str(op),
            hint="run the graph by its NumPy meaning: model(x, mode='meaning')",
        )
    return make(op, sizes, device)


# -- steps of an epilogue --------------------------------------------------------------------------


def apply_step(step: EpilogueStep, y: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
    """A step of an epilogue on the stored sums ``[..., N]``.

    Raises:
        GraphError: torch does not run it.
    """
    match step:
        case Biased() | AddResidual():
            return y + operands[0]
        case Scaled(factor):
            return y * factor
        case Activated(function):
            return UNARY[function](y)
        case Coded():
            return static_numbers(y, step)
        case Gated(function):
            gate, up = y.chunk(2, dim=-1)
            return UNARY[function](gate) * up
    raise GraphError(f"{step} has no torch function", at=str(step), hint="leave the graph unfused")


# -- operators ---------------------------------------------------------------------------------------


def _linear(op: Linear, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    # paired ahead: what torch.compile traces is a plain loop
    places = range(sum(step.operands for step in op.epilogue))
    steps = tuple(with_operands(op.epilogue, places))

    def run(x: Tensor, w: Tensor, *operands: Tensor) -> Tensor:
        y = functional.linear(x, w.to(x.dtype))
        for step, taken in steps:
            y = apply_step(step, y, tuple(operands[place] for place in taken))
        return y

    return run


def _attention(op: Attention, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        causal = op.causal
        if mask is not None:
            mask = mask if mask.dtype == torch.bool else mask.to(q.dtype)
            if causal:
                mask, causal = _with_causal(mask, q.shape[-2], k.shape[-2]), False
        grouped = q.shape[-3] != k.shape[-3]
        flat = q.ndim == 3  # torch groups heads of batches only
        if flat:
            q, k, v = (one.unsqueeze(0) for one in (q, k, v))
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=op.scale, enable_gqa=grouped
        )
        return y.squeeze(0) if flat else y

    return run


def _with_causal(mask: Tensor, rows: int, columns: int) -> Tensor:
    seen = torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril()
    return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, -math.inf)


def _rotary(op: Rotary, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if cos.shape[-1] != x.shape[-1]:
            cos, sin = (
                one.repeat_interleave(2, -1) if op.interleaved else torch.cat([one, one], -1)
                for one in (cos, sin)
            )
        if op.interleaved:
            turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        else:
            lower, upper = x.chunk(2, dim=-1)
            turned = torch.cat([-upper, lower], -1)
        return x * cos + turned * sin

    return run


def _softmax(op: Softmax, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(x: Tensor) -> Tensor:
        empty = x.amax(op.axis, keepdim=True) == -math.inf  # of such rows torch makes NaN
        return torch.softmax(x, op.axis).masked_fill(empty, 0)

    return run


def _layer_norm(op: LayerNorm, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        x, shape = _as_wide(x, op.out), x.shape[-op.axes :]
        return functional.layer_norm(x, shape, _affine(weight, x), _affine(bias, x), op.eps)

    def _affine(one: Tensor | None, x: Tensor) -> Tensor | None:
        return None if one is None else one.to(x.dtype).expand(x.shape[-op.axes :])

    return run


def _rms_norm(op: RMSNorm, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(x: Tensor, weight: Tensor | None = None) -> Tensor:
        x, shape = _as_wide(x, op.out), x.shape[-op.axes :]
        given = None if weight is None else weight.to(x.dtype).expand(shape)
        return functional.rms_norm(x, shape, given, op.eps)

    return run


def _as_wide(x: Tensor, out: str) -> Tensor:
    """An operand in the type of a result that is wider, so that nothing rounds it to its own."""
    return x.to(torch.promote_types(x.dtype, torch_dtype(out))) if out else x


def _reduce(op: Reduce, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(x: Tensor) -> Tensor:
        if op.function != "product":
            return REDUCTIONS[op.function](x, op.axes, op.keep)
        for axis in sorted((a % x.ndim for a in op.axes), reverse=True):
            x = x.prod(axis, keepdim=op.keep)
        return x

    return run


def _slice(op: Slice, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    taken = slice(value_of(op.start, sizes), value_of(op.stop, sizes), op.step)

    def run(x: Tensor) -> Tensor:
        place: list[slice] = [slice(None)] * x.ndim
        place[op.axis] = taken
        return x[tuple(place)]

    return run


def _gather(op: Gather, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(data: Tensor, indices: Tensor) -> Tensor:
        axis = op.axis % data.ndim
        size, indices = data.shape[axis], indices.long()
        # on a GPU, and compiled, torch's own kernels assert it: looking at the numbers would wait for them
        if indices.numel() and indices.device.type == "cpu" and not torch.compiler.is_compiling():
            op.check(size, *(int(one) for one in indices.aminmax()))
        if op.from_end:
            indices = torch.where(indices < 0, indices + size, indices)
        if axis == 0 and data.ndim == 2:
            return functional.embedding(indices, data)
        rows = torch.index_select(data, axis, indices.reshape(-1))
        return rows.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])

    return run


def _range(op: Range, sizes: Sizes, device: Any) -> Function:
    start, count = value_of(op.start, sizes), value_of(op.count, sizes)
    return lambda: torch.arange(start, start + op.step * count, op.step, device=device)


def _spread(scale: Tensor, shape: Any, op: Dequantize | Quantize) -> Tensor:
    """Scales or zeros so that they broadcast, as :func:`ladder.graph.operators.quantize.spread_scale` says."""
    if scale.numel() == 1 and scale.ndim <= 1:
        return scale.reshape(())
    axis = (1 if op.axis is None else op.axis) % len(shape)
    if scale.ndim == 1:
        return scale.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    block = op.block or -(-shape[axis] // scale.shape[axis])
    return scale.repeat_interleave(block, axis).narrow(axis, 0, shape[axis])


def _dequantize(op: Dequantize, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    def run(q: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        codes = q.to(scale.dtype)
        if zero is not None:
            codes = codes - _spread(zero.to(scale.dtype), q.shape, op)
        return codes * _spread(scale, q.shape, op)

    return run


def _quantize(op: Quantize, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    dtype = torch_dtype(op.dtype)
    limits = None if dtype.is_floating_point else integer_limits(op.dtype)
    top = ROW_TARGETS.get(op.dtype, math.inf)

    def run(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        ratio = x.float() / _spread(scale.float(), x.shape, op)
        if limits is None:
            return ratio.clamp(-top, top).to(dtype)
        codes = ratio.round()
        if zero is not None:
            codes = codes + _spread(zero.float(), x.shape, op)
        return codes.clamp(*limits).to(dtype)

    return run


# what sizes say is worked out before the function runs: torch.compile reads tensors only


def _cast(op: Cast, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    dtype = torch_dtype(op.dtype)
    return lambda x: x.to(dtype)


def _expand(op: Expand, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    shape = shape_of(op.shape, sizes)
    return lambda x: x.expand(shape)


def _extent(op: Extents, sizes: Sizes, device: Any) -> Function:
    value = value_of(op.value, sizes)
    return lambda: torch.full((), value, device=device)


def _reshape(op: Reshape, sizes: Sizes, device: Any) -> Function:  # noqa: ARG001
    shape = shape_of(op.shape, sizes)
    return lambda x: x.reshape(shape)


MAKERS: Mapping[type[Operator], Maker] = MappingProxyType(
    {
        Attention: _attention,
        Binary: lambda op, sizes, device: BINARY[op.function],  # noqa: ARG005
        Cast: _cast,
        Concat: lambda op, sizes, device: lambda *x: torch.cat(x, op.axis),  # noqa: ARG005
        Dequantize: _dequantize,
        Expand: _expand,
        Extents: _extent,
        Gather: _gather,
        LayerNorm: _layer_norm,
        Linear: _linear,
        MatrixProduct: lambda op, sizes, device: torch.matmul,  # noqa: ARG005
        Quantize: _quantize,
        RMSNorm: _rms_norm,
        Range: _range,
        Reduce: _reduce,
        Reshape: _reshape,
        Rotary: _rotary,
        Slice: _slice,
        Softmax: _softmax,
        Transpose: lambda op, sizes, device: lambda x: x.permute(op.order),  # noqa: ARG005
        Unary: lambda op, sizes, device: UNARY[op.function],  # noqa: ARG005
        Where: lambda op, sizes, device: torch.where,  # noqa: ARG005
    }
)
