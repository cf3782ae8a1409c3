"""Quantised weights of ONNX models as low-bit constants: codes, scales and zeros as the file has them.

=====================================  =======================================================================
in the file                            in the graph
=====================================  =======================================================================
DequantizeLinear of an initializer     a constant in the type of the codes, grouped as the scales stand
com.microsoft MatMulNBits              a linear layer over uintB codes with zeros, or offsetB where none is given
=====================================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ladder.checks import shown
from ladder.errors import LadderError, ModelImportError
from ladder.graph.epilogue import Biased
from ladder.graph.importers.onnx_call import Call
from ladder.graph.operators import Dequantize, Linear
from ladder.registry import types
from ladder.ttype import GroupedType, Quantized, TType, Zero

Array = np.ndarray[Any, Any]

#: NumPy's name of the codes' dtype -> element
ELEMENTS: Mapping[str, str] = {
    **{name: name for name in ("int8", "uint8", "int4", "uint4", "int2", "uint2")},
    "float8_e4m3fn": "fp8_e4m3fn",
    "float8_e5m2": "fp8_e5m2",
    "float4_e2m1fn": "fp4_e2m1",
}

#: first default operator set that holds a type in DequantizeLinear; blocks came with the 4-bit integers
SINCE: Mapping[str, int] = {
    "int4": 21, "uint4": 21, "float4_e2m1fn": 23, "int2": 25, "uint2": 25, "float8_e4m3fn": 19, "float8_e5m2": 19,
}  # fmt: skip
BLOCKS_SINCE = 21

#: bits that MatMulNBits stores without a gap in a byte
NBITS = (2, 4, 8)


def dequantize(call: Call) -> str:
    """DequantizeLinear: of a constant a low-bit constant, of anything else a node."""
    codes = call.array(0)
    axis, block = int(call.attributes.get("axis", 1)), int(call.attributes.get("block_size", 0))
    if codes is not None:
        check_opset(call, codes, block)
        weight = _weight(call, codes, axis, block)
        if weight is not None:
            name = f"{call.inputs[0]}"
            known = call.values.draft.constants.get(name)
            made = call.values.draft.constant(name, weight)
            if known is None or made != name:
                call.values.draft.decide(
                    "import", call.name, f"{call.inputs[0]} is {weight.type}", "its codes are kept"
                )
            return made
    return call.add(Dequantize(axis, block), *call.tensors())


def check_opset(call: Call, codes: Array, block: int) -> None:
    """Refuse types and blocks that the model's operator set does not have yet.

    Raises:
        ModelImportError: it claims an older set than its tensors need.
    """
    needed = max(SINCE.get(codes.dtype.name, 0), BLOCKS_SINCE if block else 0)
    if call.values.opset < needed:
        what = f"blocks of {block}" if block and needed == BLOCKS_SINCE else codes.dtype.name
        raise ModelImportError(
            f"{what} under operator set {call.values.opset}",
            at=call.name,
            hint=f"{call.kind} has them from operator set {needed} on: convert the model",
        )


def _weight(call: Call, codes: Array, axis: int, block: int) -> Quantized | None:
    """A constant of two axes in a type of the catalogue; None where it is another kind of constant, such as a bias."""
    scales, zeros = call.array(1), call.array(2)
    element = ELEMENTS.get(codes.dtype.name)
    if codes.ndim != 2 or element is None or scales is None or (call.has(2) and zeros is None):
        return None
    if zeros is not None and (zeros.dtype, zeros.shape) != (codes.dtype, scales.shape):
        raise ModelImportError(
            f"zero points are {shown(zeros)} beside codes {shown(codes)} and scales {shown(scales)}",
            at=call.name,
            hint="zero points have the type of the codes and the shape of the scales",
        )
    group, scales = _group(call, codes.shape, np.asarray(scales), axis, block)
    kept = None
    if zeros is not None and np.any(zeros.astype(np.float64) != 0):
        kept = _codes(zeros, types[element]).reshape(scales.shape)
    return _quantized(call, types[element], group, _codes(codes, types[element]), scales, kept)


def _quantized(
    call: Call,
    element: TType,
    group: tuple[int | None, int | None],
    codes: Array,
    scales: Array,
    zeros: Array | None,
) -> Quantized:
    zero: Zero | None = None
    if zeros is not None:
        zero = "integer" if zeros.dtype == np.uint8 else "float"
    try:
        wt = GroupedType(element, group, scales.dtype.name, zero)
        return Quantized(wt, codes, scales, zeros)
    except LadderError as error:
        raise ModelImportError(error.what, at=call.name, hint=error.hint) from error


def _codes(array: Array, element: TType) -> Array:
    """Codes of an element: the low bits of integers, the bytes of floats."""
    if array.dtype.name.startswith("float"):
        view: Array = array.view(np.uint8)
        return view
    # by way of bytes: a weight of hundreds of millions of codes has no room for wider ones
    codes: Array = array.astype(np.int8).view(np.uint8) & np.uint8(2**element.bits - 1)
    return codes


def _group(
    call: Call, shape: tuple[int, ...], scales: Array, axis: int, block: int
) -> tuple[tuple[int | None, int | None], Array]:
    """(rows, columns) of a group, and the scales as [rows of groups, columns of groups]."""
    if scales.size == 1:
        return (None, None), scales.reshape(1, 1)
    axis = call.from_front(axis, 2)
    if scales.ndim == 1:
        wanted: tuple[int, ...] = (shape[axis],)
        group: tuple[int | None, int | None] = (1, None) if axis == 0 else (None, 1)
        spread = scales.reshape((-1, 1) if axis == 0 else (1, -1))
    else:
        if not block:
            raise ModelImportError(
                f"scales are {list(scales.shape)} and block_size is not given",
                at=call.name,
                hint="one scale, one to each index of the axis, or block_size",
            )
        wanted = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
        group = (block, 1) if axis == 0 else (1, block)
        spread = scales
    if scales.shape != wanted:
        raise ModelImportError(
            f"scales are {list(scales.shape)} for {list(shape)}, expected {list(wanted)}",
            at=call.name,
            hint="along the axis there is one scale to each index, or to each block",
        )
    return group, spread


def matmul_nbits(call: Call) -> str:
    """com.microsoft MatMulNBits: ``A [..., K]`` times a weight [N, K] of packed codes in blocks along K."""
    n, k, bits, block = map(call.number, ("N", "K", "bits", "block_size"))
    if block < 1:
        raise ModelImportError(f"block_size = {block}", at=call.name, hint="blocks have columns")
    if bits not in NBITS:
        raise ModelImportError(
            f"bits = {bits}", at=call.name, hint=f"{', '.join(map(str, NBITS))} are read"
        )
    packed, scales, zeros = (call.array(place) for place in (1, 2, 3))
    if packed is None or scales is None or (call.has(3) and zeros is None):
        raise ModelImportError(
            "B, scales or zero_points are no constants", at=call.name, hint="weights are constants"
        )
    blocks = -(-k // block)
    _refuse_reordered(call, k, block)
    _check(call, "B", packed, [(n, blocks, block * bits // 8)])
    codes = unpack(packed.reshape(n, -1), bits)[:, :k]
    _check(call, "scales", scales, [(n * blocks,), (n, blocks)])
    zero_codes = None if zeros is None else _nbits_zeros(call, zeros, (n, blocks), bits)
    name = f"{'offset' if zeros is None else 'uint'}{bits}"  # without zeros, 2**(bits - 1) is taken off
    weight = _quantized(call, types[name], (1, block), codes, scales.reshape(n, blocks), zero_codes)
    w = call.values.draft.constant(call.inputs[1], weight)
    call.values.draft.decide("import", call.name, f"{w} is {weight.type}", "its codes are kept")
    steps = (Biased(),) if call.has(5) else ()
    bias = [call.tensor(5)] if call.has(5) else []
    return call.add(Linear(steps), call.tensor(0), w, *bias)


def _nbits_zeros(call: Call, zeros: Array, shape: tuple[int, int], bits: int) -> Array:
    """Zeros as codes from packed bytes (a row ends with its byte), or numbers in the type of A."""
    n, blocks = shape
    if zeros.dtype != np.uint8:
        _check(call, "zero_points", zeros, [(n * blocks,), (n, blocks)])
        return zeros.reshape(n, blocks)
    row = -(-blocks * bits // 8)
    _check(call, "zero_points", zeros, [(n * row,), (n, row)])
    return unpack(zeros.reshape(n, row), bits)[:, :blocks]


def unpack(packed: Array, bits: int) -> Array:
    """Bytes [N, bytes] -> codes [N, 8 / bits * bytes], the first code in the lowest bits of a byte."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> places) & np.uint8(2**bits - 1)
    return np.asarray(codes.reshape(packed.shape[0], -1), np.uint8)


def _check(call: Call, what: str, array: Array, wanted: list[tuple[int, ...]]) -> None:
    if array.shape not in wanted:
        raise ModelImportError(
            f"{what} is {list(array.shape)}, expected {' or '.join(str(list(w)) for w in wanted)}",
            at=call.name,
            hint="N, K, bits and block_size say how much there has to be",
        )


def _refuse_reordered(call: Call, k: int, block: int) -> None:
    """g_idx may only say what blocks say anyhow; an order of its own would mean other groups."""
    if not call.has(4):
        return
    given = call.array(4)
    if given is None or given.shape[0] < k or not np.array_equal(given[:k], np.arange(k) // block):
        raise ModelImportError(
            "g_idx puts columns into groups in an order of its own",
            at=call.name,
            hint="reorder the columns of B, and the layer before, to blocks in order",
        )
