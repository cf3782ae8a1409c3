"""The operators of ONNX models: a table from name to converter. Nothing here imports onnx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ladder.errors import ModelImportError
from ladder.graph.epilogue import Biased, EpilogueStep, Scaled
from ladder.graph.importers import onnx_moves as moves
from ladder.graph.importers.onnx_call import Call, Converter
from ladder.graph.importers.onnx_quantized import check_opset, dequantize, matmul_nbits
from ladder.graph.operators import (
    Attention,
    Binary,
    Cast,
    LayerNorm,
    Linear,
    MatrixProduct,
    Quantize,
    Reduce,
    Reshape,
    RMSNorm,
    Rotary,
    Softmax,
    Transpose,
    Unary,
    Where,
)

#: numbers of ONNX's tensor types -> names
DTYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "fp8_e4m3fn", 19: "fp8_e5m2", 21: "uint4",
    22: "int4", 25: "uint2", 26: "int2",
}  # fmt: skip


def _unary(function: str) -> Converter:
    return lambda call: call.add(Unary(function), call.tensor(0))


def _binary(function: str) -> Converter:
    return lambda call: call.add(Binary(function), call.tensor(0), call.tensor(1))


def _chain(function: str) -> Converter:
    """Max, Min and Sum take any number of tensors."""

    def convert(call: Call) -> str:
        made, *others = call.tensors()
        for place, other in enumerate(others, start=1):
            made = call.add(Binary(function), made, other, last=place == len(others))
        return made

    return convert


def _same(call: Call) -> str:
    return call.tensor(0)


def _cast(call: Call) -> str:
    wanted = DTYPES.get(int(call.attributes["to"]))
    if wanted is None:
        raise ModelImportError(
            f"cast to type {call.attributes['to']}", at=call.name, hint="see DTYPES"
        )
    if call.type(0).dtype == wanted:
        return call.tensor(0)
    return call.add(Cast(wanted), call.tensor(0))


def _gelu(call: Call) -> str:
    tanh = call.attributes.get("approximate", "none") == "tanh"
    return call.add(Unary("gelu_tanh" if tanh else "gelu"), call.tensor(0))


def _swish(call: Call) -> str:
    if call.attributes.get("alpha", 1.0) != 1.0:
        raise ModelImportError("Swish with alpha other than 1", at=call.name, hint="spell it out")
    return call.add(Unary("silu"), call.tensor(0))


def _gemm(call: Call) -> str:
    """``alpha * A' B' + beta * C``: a linear layer over B, as [N, K], whatever transB says."""
    a, b = call.tensor(0), call.tensor(1)
    if call.attributes.get("transA", 0):
        a = call.add(Transpose((1, 0)), a, last=False)
    if not call.attributes.get("transB", 0):
        b = call.add(Transpose((1, 0)), b, last=False)
    steps: list[EpilogueStep] = []
    operands = []
    alpha, beta = call.attributes.get("alpha", 1.0), call.attributes.get("beta", 1.0)
    if alpha != 1:
        steps.append(Scaled(float(alpha)))
    if not call.has(2) or beta == 0:
        return call.add(Linear(tuple(steps)), a, b)
    c = call.tensor(2)
    if beta != 1:
        factor = call.values.draft.constant(f"{call.name}.beta", np.asarray(float(beta)))
        c = call.add(Binary("multiply"), factor, c, last=False)
    wide = call.values.draft.type(c)
    if wide.rank <= 1 or wide.shape[0] == 1:
        steps.append(Biased())
        operands.append(c)
        return call.add(Linear(tuple(steps)), a, b, *operands)
    product = call.add(Linear(tuple(steps)), a, b, last=False)
    return call.add(Binary("add"), product, c)


def _softmax(call: Call) -> str:
    return call.add(Softmax(call.axis(-1)), call.tensor(0))


def _norm(kind: type[LayerNorm | RMSNorm]) -> Converter:
    def convert(call: Call) -> str:
        axes = call.rank() - call.axis(-1)
        return call.add(kind(axes, float(call.attributes.get("epsilon", 1e-5))), *call.tensors())

    return convert


def _reduce(function: str) -> Converter:
    def convert(call: Call) -> str:
        axes = call.integers(1, "axes")
        if not axes and call.attributes.get("noop_with_empty_axes", 0):
            return call.tensor(0)
        rank = call.rank()
        wanted = tuple(
            call.from_front(axis, rank) for axis in axes or range(rank) if isinstance(axis, int)
        )
        return call.add(
            Reduce(function, wanted, bool(call.attributes.get("keepdims", 1))), call.tensor(0)
        )

    return convert


def _attention(call: Call) -> str:
    """Attention of operator set 23: [B, H, S, D], or [B, S, H*D] with the numbers of heads as attributes."""
    for name in ("softcap", "softmax_precision", "qk_matmul_output_mode"):
        if call.attributes.get(name, 0):
            raise ModelImportError(f"Attention with {name}", at=call.name, hint="leave it out")
    if any(call.has(place) for place in (4, 5, 6)) or len([o for o in call.outputs if o]) > 1:
        raise ModelImportError(
            "Attention with a cache of its own", at=call.name, hint="concatenate keys before it"
        )
    names = [call.tensor(place) for place in range(3)]
    flat = call.rank() == 3
    if flat:
        heads = [
            int(call.attributes[name]) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")
        ]
        names = [
            moves.into_heads(call, name, count) for name, count in zip(names, heads, strict=True)
        ]
    mask = [call.tensor(3)] if call.has(3) else []
    scale = call.attributes.get("scale")
    op = Attention(
        bool(call.attributes.get("is_causal", 0)), None if scale is None else float(scale)
    )
    made = call.add(op, *names, *mask, last=not flat)
    return moves.out_of_heads(call, made) if flat else made


def _rotary(call: Call) -> str:
    """RotaryEmbedding of operator set 23 on [B, H, S, D]; caches are [B, S, D/2], or tables by position."""
    if call.attributes.get("rotary_embedding_dim", 0):
        raise ModelImportError("rotary_embedding_dim", at=call.name, hint="rotate every feature")
    x = call.tensor(0)
    flat = call.rank() == 3
    if flat:
        x = moves.into_heads(call, x, int(call.attributes["num_heads"]))
    angles = [moves.angles(call, place) for place in (1, 2)]
    op = Rotary(bool(call.attributes.get("interleaved", 0)))
    made = call.add(op, x, *angles, last=not flat)
    return moves.out_of_heads(call, made) if flat else made


def _quantize(call: Call) -> str:
    zeros = call.array(2) if call.has(2) else None
    given = DTYPES.get(int(call.attributes.get("output_dtype", 0)))
    dtype = given or (call.type(2).dtype if call.has(2) else "uint8")
    block = int(call.attributes.get("block_size", 0))
    if zeros is not None:
        check_opset(call, zeros, block)
    return call.add(Quantize(dtype, int(call.attributes.get("axis", 1)), block), *call.tensors())


def _clip(call: Call) -> str:
    made = call.tensor(0)
    for place, function in ((1, "maximum"), (2, "minimum")):
        if call.has(place):
            made = call.add(Binary(function), made, call.tensor(place))
    return made


def _where(call: Call) -> str:
    return call.add(Where(), *call.tensors())


def _flatten(call: Call) -> str:
    from ladder.graph.extent import product

    axis = int(call.attributes.get("axis", 1))
    shape = call.type(0).shape
    axis = axis if axis == len(shape) else call.from_front(axis, len(shape))
    return call.add(Reshape((product(shape[:axis]), product(shape[axis:]))), call.tensor(0))


def _constant(call: Call) -> Any:
    value = next(
        (call.attributes[name] for name in call.attributes if name.startswith("value")), None
    )
    if value is None:
        raise ModelImportError("a constant without a value", at=call.name, hint="check the model")
    array = np.asarray(value)
    if array.dtype == np.float64 and "value" not in call.attributes:
        array = array.astype(np.float32)  # value_float and value_floats are single
    call.values.initializers[call.outputs[0]] = array
    return None


#: ONNX's name -> converter; other domains stand before their operators
CONVERTERS: Mapping[str, Converter] = {
    **{name: _unary(name.lower()) for name in ("Abs", "Cos", "Erf", "Exp", "Log", "Reciprocal", "Relu", "Sigmoid", "Sin", "Sqrt", "Tanh")},
    "Neg": _unary("negative"),
    "Not": _unary("not"),
    **{
        name: _binary(function)
        for name, function in (
            ("Add", "add"), ("Sub", "subtract"), ("Mul", "multiply"), ("Div", "divide"), ("Pow", "power"),
            ("Equal", "equal"), ("Less", "less"), ("LessOrEqual", "less_equal"), ("Greater", "greater"),
            ("GreaterOrEqual", "greater_equal"), ("And", "and"), ("Or", "or"),
        )
    },
    "Max": _chain("maximum"),
    "Min": _chain("minimum"),
    "Sum": _chain("add"),
    "Identity": _same,
    "Dropout": _same,
    "Cast": _cast,
    "Gelu": _gelu,
    "com.microsoft.Gelu": _gelu,
    "Swish": _swish,
    "MatMul": lambda call: call.add(MatrixProduct(), call.tensor(0), call.tensor(1)),
    "Gemm": _gemm,
    "Softmax": _softmax,
    "LayerNormalization": _norm(LayerNorm),
    "RMSNormalization": _norm(RMSNorm),
    "SimplifiedLayerNormalization": _norm(RMSNorm),
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "ReduceMax": _reduce("maximum"),
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "Where": _where,
    "Clip": _clip,
    "Flatten": _flatten,
    "Constant": _constant,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": dequantize,
    "com.microsoft.MatMulNBits": matmul_nbits,
    "Reshape": moves.reshape,
    "Transpose": moves.transpose,
    "Concat": moves.concat,
    "Slice": moves.slices,
    "Split": moves.split,
    "Squeeze": moves.squeeze,
    "Unsqueeze": moves.unsqueeze,
    "Expand": moves.expand,
    "Gather": moves.gather,
    "ConstantOfShape": moves.filled,
    "Range": moves.counted,
}  # fmt: skip
