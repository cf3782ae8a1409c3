"""Quantising activations: as ONNX states it (QuantizeLinear, DequantizeLinear), and row by row while a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.epilogue import Coded, EpilogueStep
from ladder.graph.extent import Sizes
from ladder.graph.operators.base import Operator, axis_of
from ladder.graph.quantize_activations import LEAST_SCALE
from ladder.graph.tensor import DTYPES, PER_TOKEN, Array, TensorType, real
from ladder.registry import types
from ladder.ttype import compute_type

#: types that rows of activations are quantised to -> the element's largest value that is used
ROW_TARGETS: Mapping[str, float] = MappingProxyType(
    {"int8": 127.0, "fp8_e4m3fn": 448.0, "fp8_e5m2": 57344.0}
)


def quantized_type(x: TensorType, target: str) -> TensorType:
    """The type of rows that were quantised to ``target``.

    Raises:
        TypeDeclarationError: rows are not quantised to that type.
    """
    if target not in ROW_TARGETS:
        raise TypeDeclarationError(
            f"rows of activations are not quantised to {target!r}",
            at=f"quantise {x}",
            hint=f"one of {', '.join(ROW_TARGETS)}",
        )
    return TensorType(x.shape, target + PER_TOKEN)


def quantize_rows(x: Array, target: str) -> Array:
    """What the codes and scales of quantised rows stand for: :class:`QuantizeActivations` of an x that nothing rounded before.

    Where x is what 16 bits hold, these are the kernel's own codes; a row of zeros stays one.
    """
    if not x.size:
        return real(x)
    top = np.float32(ROW_TARGETS[target])
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(x), axis=-1, keepdims=True).astype(np.float32)
        scale = np.maximum(largest / top, LEAST_SCALE)  # a NaN stays
        scaled = x * real(np.float32(1) / scale)
        if not types[target].is_integer:  # converted to the target from float32
            scaled = real(scaled.astype(np.float32))
        clipped = np.clip(np.nan_to_num(scaled, nan=0.0), -top, top)
        element = types[target]
        values: Array = real(scale) * element.values[element.encode(clipped)]
    return values


def rows_of(values: Array, target: str, static: float | None = None) -> tuple[Array, Array]:
    """The codes ``[..., K]`` and float32 scales ``[...]`` behind what :class:`QuantizeTokens` made; nothing is rounded.

    Without one scale for all, the largest code of a row is the largest of the target, but for rows whose scale is the least
    there is.
    """
    dtype = compute_type(target).dtype
    if static is None:
        largest = np.max(np.abs(values), axis=-1, initial=0.0)
        scale = np.maximum((largest / ROW_TARGETS[target]).astype(np.float32), LEAST_SCALE)
    else:
        scale = np.full(values.shape[:-1], static, np.float32)
    codes = values / real(scale)[..., None]
    return (np.rint(codes) if dtype == np.int8 else codes).astype(dtype), scale


@dataclass(frozen=True)
class QuantizeTokens(Operator):
    """Quantise each row (the last axis) by its largest magnitude, or all by one scale that is known before.

    The result stands for codes and one scale a row.

    Attributes:
        target: a name of :data:`ROW_TARGETS`.
        scale: of all rows, see :class:`~ladder.graph.epilogue.Coded`; None for the scales that rows have by themselves.

    Raises:
        TypeDeclarationError: a scale is given that rows of the target cannot have.
    """

    target: str
    scale: float | None = None
    kind: ClassVar[str] = "quantize_tokens"

    def __post_init__(self) -> None:
        if self.coded is not None:
            object.__setattr__(self, "scale", self.coded.scale)

    @property
    def coded(self) -> Coded | None:
        """The same as a step of an epilogue, where the scale is known."""
        return None if self.scale is None else Coded(self.target, self.scale)

    def infer(self, *given: TensorType) -> TensorType:
        """The shape in the quantised type."""
        return quantized_type(given[0], self.target)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """The numbers that codes and scales stand for."""
        if self.coded is not None:
            return self.coded.apply(given[0], ())
        return quantize_rows(real(given[0]), self.target)


@dataclass(frozen=True)
class QuantizedRows(EpilogueStep):
    """Rows are stored as codes of a type with one scale each; see :class:`QuantizeTokens`."""

    target: str
    kind: ClassVar[str] = "quantized_rows"

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:  # noqa: ARG002
        """The quantised type."""
        return quantized_type(y, self.target)

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002
        """What codes and scales stand for."""
        return quantize_rows(y, self.target)

    def __str__(self) -> str:
        return f"to {self.target} by rows"


@dataclass(frozen=True)
class Quantize(Operator):
    """ONNX QuantizeLinear: ``saturate(round_half_even(x / scale) + zero)``. Inputs: x, scale, and perhaps zero.

    The quotient is taken in float32, as ONNX says, so that halves fall the same way where x is what ONNX has. An x that
    ONNX rounded to float32 and this meaning did not may fall to the other side of a half: one step of difference.

    Attributes:
        dtype: of the codes, an integer type or an fp8 type.
        axis: that scales stand along, or None for one scale.
        block: elements along the axis that share a scale; 0 for one scale to each index of the axis.
    """

    dtype: str
    axis: int | None = None
    block: int = 0
    kind: ClassVar[str] = "quantize"
    arity: ClassVar[tuple[int, int]] = (2, 3)

    def infer(self, *given: TensorType) -> TensorType:
        """The shape in the type of the codes."""
        if self.axis is not None:
            axis_of(self.axis, given[0].rank, self)
        return TensorType(given[0].shape, self.dtype)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """Codes: integers, or numbers of an fp8 type."""
        x, scale, *zero = (np.asarray(one) for one in given)
        spread = spread_scale(scale.astype(np.float32), x.shape, self.axis, self.block)
        with np.errstate(over="ignore"):
            ratio = real(np.asarray(x, np.float32) / spread)
        if self.dtype.startswith("fp8"):
            element = types[self.dtype]
            return real(element.values[element.encode(ratio)])
        codes = np.rint(ratio)
        if zero:
            codes = codes + spread_scale(zero[0], x.shape, self.axis, self.block)
        least, most = integer_limits(self.dtype)
        return np.clip(codes, least, most).astype(np.int64)


@dataclass(frozen=True)
class Dequantize(Operator):
    """ONNX DequantizeLinear: ``(q - zero) * scale``. Inputs: q, scale, and perhaps zero; fields as :class:`Quantize`."""

    axis: int | None = None
    block: int = 0
    kind: ClassVar[str] = "dequantize"
    arity: ClassVar[tuple[int, int]] = (2, 3)

    def infer(self, *given: TensorType) -> TensorType:
        """Numbers of the scale's type."""
        return TensorType(given[0].shape, given[1].element)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64; products of codes and float32 scales are exact."""
        q, scale, *zero = given
        spread = spread_scale(real(scale), q.shape, self.axis, self.block)
        codes = real(q)
        if zero:
            codes = codes - spread_scale(real(zero[0]), q.shape, self.axis, self.block)
        return codes * spread


def spread_scale(scale: Array, shape: tuple[int, ...], axis: int | None, block: int) -> Array:
    """Scales as an array that broadcasts to ``shape``: one, one to each index of an axis, or one to each block of it.

    Raises:
        ShapeError: there are not as many as the shape asks for.
    """
    if scale.size == 1 and scale.ndim <= 1:
        return scale.reshape(())
    axis = axis_of(1 if axis is None else axis, len(shape), "scales")
    if scale.ndim == 1:
        wanted: tuple[int, ...] = (shape[axis],)
        result = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    else:
        block = block or -(-shape[axis] // scale.shape[axis]) if scale.shape[axis] else 1
        wanted = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
        result = np.take(scale, np.arange(shape[axis]) // block, axis=axis, mode="clip")
    if scale.shape != wanted:
        raise ShapeError(
            f"scales or zeros are {list(scale.shape)} for {list(shape)}, expected {list(wanted)}",
            at=f"axis {axis}, blocks of {block}",
            hint="one scale, one to each index of the axis, or one to each block",
        )
    return result


def integer_limits(dtype: str) -> tuple[int, int]:
    """Least and largest integer of a type."""
    bits = DTYPES[dtype][1]
    signed = not dtype.startswith("u")
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
