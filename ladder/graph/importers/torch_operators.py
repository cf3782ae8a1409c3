"""The operators of ``torch.export`` programs: a table from name to converter. Nothing here imports torch.

A converter is given a :class:`Call`, adds nodes, and returns the name of the value, or a list of names where torch returns
several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ladder.errors import ModelImportError
from ladder.graph.epilogue import Biased
from ladder.graph.importers import torch_moves as moves
from ladder.graph.importers.torch_call import Call, Converter
from ladder.graph.operators import (
    Attention,
    Binary,
    Cast,
    Expand,
    LayerNorm,
    Linear,
    MatrixProduct,
    Range,
    Reduce,
    Reshape,
    RMSNorm,
    Softmax,
    Unary,
    Where,
)
from ladder.graph.tensor import DTYPES


def _same(call: Call) -> str:
    return call.tensor(0)


def _unary(function: str) -> Converter:
    return lambda call: call.add(Unary(function), call.tensor(0))


def _binary(function: str) -> Converter:
    return lambda call: call.add(Binary(function), call.tensor(0), call.tensor(1))


def _added(function: str) -> Converter:
    def convert(call: Call) -> str:
        other = call.tensor(1)
        alpha = call.kwargs.get("alpha", 1)
        if alpha != 1:
            other = call.add(Binary("multiply"), other, call.value(alpha), last=False)
        return call.add(Binary(function), call.tensor(0), other)

    return convert


def _gelu(call: Call) -> str:
    tanh = call.arg(1, "approximate", "none") == "tanh"
    return call.add(Unary("gelu_tanh" if tanh else "gelu"), call.tensor(0))


def _linear(call: Call) -> str:
    bias = call.arg(2, "bias")
    steps = (Biased(),) if bias is not None else ()
    operands = [call.value(bias)] if bias is not None else []
    return call.add(Linear(steps), call.tensor(0), call.tensor(1), *operands)


def _product(call: Call) -> str:
    return call.add(MatrixProduct(), call.tensor(0), call.tensor(1))


def _addmm(call: Call) -> str:
    if (call.kwargs.get("alpha", 1), call.kwargs.get("beta", 1)) != (1, 1):
        raise ModelImportError("alpha and beta other than 1", at=call.name, hint="scale yourself")
    product = call.add(MatrixProduct(), call.tensor(1), call.tensor(2), last=False)
    return call.add(Binary("add"), product, call.tensor(0))


def _softmax(call: Call) -> str:
    return call.add(Softmax(int(call.arg(1)) % call.rank()), call.tensor(0))


def _affine(call: Call, *places: int) -> list[str]:
    return [call.value(call.arg(place)) for place in places if call.arg(place) is not None]


def _layer_norm(call: Call) -> str:
    op = LayerNorm(len(call.arg(1)), float(call.arg(4, "eps", 1e-5)))
    if call.arg(2) is None and call.arg(3) is not None:
        raise ModelImportError("a bias without a weight", at=call.name, hint="give both")
    return call.add(op, call.tensor(0), *_affine(call, 2, 3))


def _rms_norm(call: Call) -> str:
    eps = call.arg(3, "eps")
    if eps is None:
        eps = float(np.finfo(call.type(0).dtype).eps)  # PyTorch's documented default
    return call.add(RMSNorm(len(call.arg(1)), float(eps)), call.tensor(0), *_affine(call, 2))


def _reduce(function: str) -> Converter:
    def convert(call: Call) -> str:
        given = call.arg(1, "dim")
        axes = [given] if isinstance(given, int) else list(given or range(call.rank()))
        rank = call.rank()
        op = Reduce(
            function, tuple(int(a) % rank for a in axes), bool(call.arg(2, "keepdim", False))
        )
        return call.add(op, call.tensor(0))

    return convert


def _attention(call: Call) -> str:
    if call.arg(4, "dropout_p", 0.0):
        raise ModelImportError("dropout", at=call.name, hint="export the module in eval mode")
    mask = call.arg(3, "attn_mask")
    op = Attention(bool(call.arg(5, "is_causal", False)), call.kwargs.get("scale"))
    heads, groups = call.type(0).shape[-3], call.type(1).shape[-3]
    if heads != groups and not call.kwargs.get("enable_gqa"):
        raise ModelImportError("heads of q and k differ", at=call.name, hint="enable_gqa=True")
    operands = [] if mask is None else [call.value(mask)]
    return call.add(op, call.tensor(0), call.tensor(1), call.tensor(2), *operands)


def _cast(call: Call) -> str:
    wanted = call.results[0].dtype
    if call.type(0).dtype == wanted:
        return call.tensor(0)
    return call.add(Cast(wanted), call.tensor(0))


def _where(call: Call) -> str:
    return call.add(Where(), call.tensor(0), call.tensor(1), call.tensor(2))


def _masked_fill(call: Call) -> str:
    return call.add(Where(), call.tensor(1), call.tensor(2), call.tensor(0))


def _arange(start: int | None, stop: int) -> Converter:
    def convert(call: Call) -> str:
        first = 0 if start is None else call.arg(start)
        op = Range(call.shape[0], first, int(call.arg(stop + 1, "step", 1) or 1))
        made = call.add(op)
        wanted = call.results[0].dtype
        return made if wanted == "int64" else call.add(Cast(wanted), made)

    return convert


def _filled(value: Any = None, place: int | None = None) -> Converter:
    def convert(call: Call) -> str:
        number = call.arg(place) if place is not None else value
        wanted = call.results[0].dtype
        array = np.asarray(number).astype(DTYPES[wanted][0])
        constant = call.draft.constant(f"const.{number}.{wanted}", array)
        return call.add(Expand(call.shape), constant) if call.shape else constant

    return convert


def _triangle(function: str) -> Converter:
    """tril and triu: what lies beyond a diagonal of the last two axes is 0."""

    def convert(call: Call) -> str:
        rows, columns = call.shape[-2:]
        row = call.add(Range(rows, int(call.arg(1, "diagonal", 0))), last=False)
        row = call.add(Reshape((rows, 1)), row, last=False)
        kept = call.add(Binary(function), call.add(Range(columns), last=False), row, last=False)
        return call.add(Where(), kept, call.tensor(0), call.value(0.0))

    return convert


def _eye(call: Call) -> str:
    rows, columns = call.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise ModelImportError("eye of a symbolic size", at=call.name, hint="make it static")
    return call.draft.constant(call.name, np.eye(rows, columns, dtype=np.float32))


def _clamp(call: Call) -> str:
    found = call.tensor(0)
    for place, name, function in ((1, "min", "maximum"), (2, "max", "minimum")):
        if (end := call.arg(place, name)) is not None:
            found = call.add(Binary(function), found, call.value(end))
    return found


_UNARIES = {
    **{name: name for name in ("abs", "cos", "erf", "exp", "log", "reciprocal", "relu", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh")},
    "neg": "negative",
    "square": "square",
    "logical_not": "not",
    "bitwise_not": "not",
}  # fmt: skip
_BINARIES = {
    "mul": "multiply",
    "div": "divide",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}

#: torch's name -> converter
CONVERTERS: Mapping[str, Converter] = {
    **{f"aten.{name}.default": _unary(function) for name, function in _UNARIES.items()},
    **{
        f"aten.{name}.{overload}": _binary(function)
        for name, function in _BINARIES.items()
        for overload in ("Tensor", "Scalar")
    },
    **{f"aten.{name}.{o}": _added(f) for name, f in (("add", "add"), ("sub", "subtract")) for o in ("Tensor", "Scalar")},
    **{f"aten.pow.{o}": _binary("power") for o in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    "aten.rsub.Scalar": lambda call: call.add(Binary("subtract"), call.tensor(1), call.tensor(0)),
    "aten.maximum.default": _binary("maximum"),
    "aten.minimum.default": _binary("minimum"),
    "aten.logical_and.default": _binary("and"),
    "aten.logical_or.default": _binary("or"),
    "aten.bitwise_and.Tensor": _binary("and"),
    "aten.bitwise_or.Tensor": _binary("or"),
    "aten.__and__.Tensor": _binary("and"),
    "aten.__or__.Tensor": _binary("or"),
    "aten.clamp.default": _clamp,
    "aten.gelu.default": _gelu,
    "aten.linear.default": _linear,
    **dict.fromkeys(("aten.matmul.default", "aten.mm.default", "aten.bmm.default"), _product),
    "aten.addmm.default": _addmm,
    "aten.softmax.int": _softmax,
    "aten._softmax.default": _softmax,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.mean.dim": _reduce("mean"),
    "aten.sum.dim_IntList": _reduce("sum"),
    "aten.amax.default": _reduce("maximum"),
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.embedding.default": moves.embedding,
    "aten.index_select.default": moves.index_select,
    "aten.index.Tensor": moves.take_index,
    **dict.fromkeys(
        (
            *("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"),
            *("aten.flatten.using_ints", "aten.unflatten.int", "aten.squeeze.dim"),
            *("aten.squeeze.default", "aten.squeeze.dims", "aten.unsqueeze.default"),
        ),
        moves.reshape,
    ),
    "aten.transpose.int": moves.transpose,
    "aten.t.default": moves.matrix_transpose,
    "aten.permute.default": moves.permute,
    "aten.cat.default": moves.concat,
    "aten.stack.default": moves.stack,
    "aten.chunk.default": moves.split(2),
    "aten.split.Tensor": moves.split(2),
    "aten.split_with_sizes.default": moves.split(2),
    "aten.unbind.int": moves.unbind,
    "aten.slice.Tensor": moves.take_slice,
    "aten.select.int": moves.take_one,
    "aten.expand.default": moves.expand,
    **dict.fromkeys(
        (
            *("aten.contiguous.default", "aten.clone.default", "aten.dropout.default"),
            *("aten.alias.default", "aten.detach.default", "aten.detach_.default"),
            *("aten.lift_fresh_copy.default", "aten.to.device"),
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            *("aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default"),
            *("aten.type_as.default", "aten.to.other"),
        ),
        _cast,
    ),
    "aten.where.self": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.ScalarOther": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.arange.default": _arange(None, 0),
    "aten.arange.start": _arange(0, 1),
    "aten.arange.start_step": _arange(0, 1),
    "aten.full.default": _filled(place=1),
    "aten.full_like.default": _filled(place=1),
    "aten.tril.default": _triangle("less_equal"),
    "aten.triu.default": _triangle("greater_equal"),
    "aten.repeat_interleave.self_int": moves.repeat,
    "aten.eye.default": _eye,
    "aten.eye.m": _eye,
    "aten.scalar_tensor.default": _filled(place=0),
    **dict.fromkeys(("aten.ones.default", "aten.ones_like.default"), _filled(1.0)),
    **dict.fromkeys(("aten.zeros.default", "aten.zeros_like.default"), _filled(0.0)),
}  # fmt: skip
