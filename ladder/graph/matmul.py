"""The matmul operator: what is computed, with which types, and nothing about how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.checks import (
    TRUTH,
    Expected,
    accept,
    accept_fields,
    instance,
    integer,
    one_of,
    optional,
    several,
    shown,
)
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.epilogue import (
    KERNEL_STEPS,
    AddResidual,
    Coded,
    EpilogueStep,
    Gated,
    refusal,
    with_operands,
)
from ladder.ttype import (
    ComputeType,
    Dense,
    GroupedType,
    Quantized,
    TType,
    compute_type,
    int4,
    uint4,
    weight_type,
)
from ladder.ttype.arrays import as_values

#: activation types that a matmul takes, and output types that it writes
ACTIVATIONS = ("float16", "bfloat16", "int8", "fp8_e4m3fn", "fp8_e5m2", "int4", "uint4")
OUTPUTS = ("float16", "bfloat16", "float32")

#: activations beside which weights have a type of their own: the first that reaches as far as the weight's values
WEIGHTS_BESIDE: Mapping[str, tuple[ComputeType, ...]] = MappingProxyType(
    dict.fromkeys(("int4", "uint4"), (int4, uint4))
)

#: largest sum of products that int32 holds
MAX_SUM = 2**31 - 1

#: largest extent of one axis: kernels count rows and columns in 32 bits, the padding of a last tile or block included;
#: offsets into arrays are 64 bits wide wherever an array can be that large
MAX_EXTENT = 2**31 - 2**16

MAKE = "ladder.matmul(m, n, k, activation=..., weight=...) takes types by name"

STEPS = several(
    instance(EpilogueStep, 'ladder.matmul(..., epilogue=("silu", "residual")) takes them by name'),
    "a tuple of steps",
)

QUANTIZED = instance(Quantized, "ladder.quantize(weights, type) makes one")

#: the same by name
NAMED_STEPS: Expected[tuple[EpilogueStep, ...]] = several(
    Expected(
        "a step",
        lambda value: (
            isinstance(value, EpilogueStep) or (isinstance(value, str) and value in KERNEL_STEPS)
        ),
        lambda value: KERNEL_STEPS[value] if isinstance(value, str) else value,
        f'steps are {", ".join(KERNEL_STEPS)}: epilogue=("silu", "residual")',
    ),
    "a tuple of names of steps",
)

#: field -> what it has to be
_MATMUL: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "m": optional(integer(0, MAX_EXTENT)),
        **dict.fromkeys(("n", "k"), integer(1, MAX_EXTENT)),
        **dict.fromkeys(("activation", "out"), instance(ComputeType, MAKE)),
        "weight": instance(GroupedType, MAKE),
        **dict.fromkeys(("bias", "activation_scale"), TRUTH),
        "epilogue": STEPS,
    }
)


@dataclass(frozen=True)
class MatMul:
    """``y[m, n] = x_scale[m] * sum_k x[m, k] * w[n, k] (+ bias[n])``, then the steps of an epilogue.

    Products of int8 activations are added exactly, in int32, as far as one scale of the weight reaches; all others in float32.

    Attributes:
        m: rows of x and y (tokens), or None for any number including 0.
        n: rows of the weight (output channels).
        k: columns of x and of the weight.
        activation: type of x, one of :data:`ACTIVATIONS`. With those of 8 and 4 bits the weight's values have to be exact in
            :attr:`weight_compute`. Rows of 4-bit ones are stored two to a byte (:meth:`~ladder.ttype.ComputeType.pack`).
        weight: the number format of w; a bare element is a type without scales, a dense one is that of x.
        out: type of y, float16, bfloat16 or float32; where y is stored as codes, of a bias and a residual alone.
        bias: whether ``bias[n]``, of the out type, is added.
        activation_scale: whether each row of x has a scale ``x_scale[m]``, float32 (1 where it is not declared).
        epilogue: what happens to the sums, bias included, before they are rounded to the out type: activation functions, a
            residual ``r[m, out_n]`` that is added, a gate, after which y has n / 2 columns (the first half of the weight's
            rows is the gate, the second what it gates), and last codes of y by one scale.

    Raises:
        TypeDeclarationError: a field is of another kind, or no kernel does the epilogue; :func:`matmul` takes names too
            and says more.
    """

    m: int | None
    n: int
    k: int
    activation: ComputeType
    weight: GroupedType
    out: ComputeType
    bias: bool = False
    activation_scale: bool = False
    epilogue: tuple[EpilogueStep, ...] = ()

    def __post_init__(self) -> None:
        accept_fields(self, _MATMUL, at="MatMul", error=TypeDeclarationError)
        if isinstance(self.element, Dense) and self.element.compute != self.activation:
            raise TypeDeclarationError(
                f"a weight of {self.element} is multiplied with activations of {self.activation}",
                at="MatMul",
                hint=f"dense weights are not converted: activations of {self.element}, or weights of {self.activation}",
            )
        if why := refusal(self.epilogue, self.n):
            raise TypeDeclarationError(
                f"the epilogue {', '.join(map(str, self.epilogue))} has no kernel: {why}",
                at="MatMul",
                hint=f"one gate, then one residual, among {', '.join(KERNEL_STEPS)}; codes last",
            )

    @property
    def element(self) -> TType:
        """The element type of the weight."""
        return self.weight.element

    @property
    def weight_compute(self) -> ComputeType:
        """The compute type that weights are decoded to: that of x, or beside integers of 4 bits either of them."""
        offered = WEIGHTS_BESIDE.get(self.activation.name)
        if offered is None:
            return self.activation
        low, high = self.element.min, self.element.max
        return next((t for t in offered if t.min <= low and high <= t.max), offered[0])

    @property
    def gated(self) -> bool:
        """Whether half of the channels gate the other half."""
        return any(isinstance(step, Gated) for step in self.epilogue)

    @property
    def residual(self) -> bool:
        """Whether a residual is added."""
        return any(isinstance(step, AddResidual) for step in self.epilogue)

    @property
    def codes(self) -> Coded | None:
        """The step that makes codes of y; None where y is stored as numbers."""
        last = self.epilogue[-1] if self.epilogue else None
        return last if isinstance(last, Coded) else None

    @property
    def stored(self) -> ComputeType:
        """Type of the array that is written: that of the codes of y, else ``out``."""
        return self.out if self.codes is None else compute_type(self.codes.target)

    @property
    def out_n(self) -> int:
        """Columns of y: n, or half of it where the other half is the gate."""
        return self.n // 2 if self.gated else self.n

    def reference(
        self,
        x: ArrayLike,
        weight: Quantized,
        bias: ArrayLike | None = None,
        x_scale: ArrayLike | None = None,
        residual: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """The operator's meaning in float64: x ``[..., k]``, weight ``[n, k]`` -> y ``[..., out_n]``, not rounded, or its codes.

        Args:
            x: activations, as numbers.
            weight: the quantised weight.
            bias: ``[n]``, or None.
            x_scale: ``[...]``, one number to each row of x, or None for 1.
            residual: ``[..., out_n]`` where the epilogue adds one, else None.

        Raises:
            ShapeError: an operand does not fit the operator.
            TypeDeclarationError: the weight is not quantised, or an operand does not hold real numbers.
        """
        accept(weight, QUANTIZED, "weight", at=self, error=TypeDeclarationError)
        if weight.shape != (self.n, self.k):
            raise ShapeError(
                f"weight is {list(weight.shape)}, the operator wants {[self.n, self.k]}",
                at=self,
                hint="weights are [n, k]: output channels first",
            )
        rows = self._operand("x", x, self.k)
        y = rows @ weight.dequantize().T
        if x_scale is not None:
            y = y * self._row_scales(x_scale, rows.shape[:-1])[..., None]
        if bias is not None:
            y = y + self._operand("bias", bias, self.n)
        added = self._residual(residual, rows.shape[:-1])
        for step, operands in with_operands(self.epilogue, added):
            y = step.apply(y, operands)
        if self.codes is not None:
            y = y / self.codes.scale  # exact: y is a code times the scale
        return np.asarray(y, dtype=np.float64)

    def _residual(
        self, given: ArrayLike | None, rows: tuple[int, ...]
    ) -> tuple[NDArray[np.float64], ...]:
        """The residual in float64, where there is one."""
        if (given is not None) != self.residual:
            raise ShapeError(
                "the residual is missing" if given is None else "a residual is given",
                at=self,
                hint='matmul(..., epilogue=("residual",)) declares one',
            )
        if given is None:
            return ()
        values = as_values(given, at=f"residual of {self}")
        if values.shape != (*rows, self.out_n):
            raise ShapeError(
                f"residual is {list(values.shape)}, y is {[*rows, self.out_n]}",
                at=self,
                hint="a residual has the shape of the result",
            )
        return (values,)

    def _row_scales(self, given: ArrayLike, rows: tuple[int, ...]) -> NDArray[np.float64]:
        scales = as_values(given, at=f"x_scale of {self}")
        if scales.shape != rows:
            raise ShapeError(
                f"x_scale is {list(scales.shape)}, x has rows {list(rows)}",
                at=self,
                hint="one number to each row of x",
            )
        return scales

    def _operand(self, name: str, given: ArrayLike, extent: int) -> NDArray[np.float64]:
        """An operand in float64, after a look at its last axis; a bias has no other."""
        values = as_values(given, at=f"{name} of {self}")
        if values.shape[-1:] != (extent,) or (name == "bias" and values.ndim != 1):
            wanted = f"[{extent}]" if name == "bias" else f"[..., {extent}]"
            raise ShapeError(
                f"{name} is {list(values.shape)}, the operator takes {wanted}",
                at=self,
                hint="k comes last" if name == "x" else "one number to each output channel",
            )
        return values

    def __str__(self) -> str:
        m = "any" if self.m is None else self.m
        bias = " + bias" if self.bias else ""
        scaled = " * scale[m]" if self.activation_scale else ""
        steps = "".join(f", {step}" for step in self.epilogue)
        return (
            f"matmul(x {self.activation.name}[{m}, {self.k}]{scaled}, w {self.weight}[{self.n}, {self.k}]{bias}{steps}"
            f" -> {self.stored.name}[{m}, {self.out_n}])"
        )


def matmul(  # noqa: PLR0913  one argument to each field of the operator
    m: int | None,
    n: int,
    k: int,
    *,
    activation: str | ComputeType,
    weight: str | GroupedType | TType | ComputeType,
    out: str | ComputeType = "float16",
    bias: bool = False,
    activation_scale: bool = False,
    epilogue: Sequence[str | EpilogueStep] = (),
) -> MatMul:
    """Declare a matmul of activations ``[m, k]`` with a low-bit weight ``[n, k]``, or one of the activations' own type.

    Types may be given by name, and so may steps of the epilogue (:data:`~ladder.graph.epilogue.KERNEL_STEPS`), for example
    ``("residual",)`` or ``("silu_gate",)``. ``m=None`` declares an operator for any number of tokens.

    Raises:
        ShapeError: an extent is not a positive integer (m may be 0) or is larger than :data:`MAX_EXTENT`; with integer
            activations, sums of k products may leave int32 (:func:`most_columns`).
        TypeDeclarationError: a type is unknown or not offered in its place, ``bias`` or ``activation_scale`` is no truth
            value, or the epilogue holds steps that no kernel does.
    """
    at = f"matmul(m={shown(m)}, n={shown(n)}, k={shown(k)})"
    bias = accept(
        bias,
        TRUTH,
        "bias",
        at=at,
        error=TypeDeclarationError,
        hint="it says whether one is added; its values are given with each call",
    )
    activation_scale = accept(
        activation_scale,
        TRUTH,
        "activation_scale",
        at=at,
        error=TypeDeclarationError,
        hint="it says whether rows of x are scaled; the scales are given with each call",
    )
    kind = _compute(activation, ACTIVATIONS, "activation")
    most_k = most_columns(kind)
    return MatMul(
        m=None if m is None else _extent("m", m, 0, at),
        n=_extent("n", n, 1, at),
        k=_extent("k", k, 1, at, most_k),
        activation=kind,
        weight=weight_type(weight),
        out=_compute(out, OUTPUTS, "out"),
        bias=bias,
        activation_scale=activation_scale,
        epilogue=accept(epilogue, NAMED_STEPS, "epilogue", at=at, error=TypeDeclarationError),
    )


def most_columns(activation: ComputeType) -> int:
    """The most columns of x: with integers, so many that products of any operands add up in int32."""
    if activation.is_float:
        return MAX_EXTENT
    beside = WEIGHTS_BESIDE.get(activation.name, (activation,))
    largest = max(max(-t.min, t.max) for t in beside) * max(-activation.min, activation.max)
    return MAX_SUM // int(largest)


def _extent(name: str, given: object, least: int, at: str, most: int = MAX_EXTENT) -> int:
    hint = "m=None means any number of tokens" if name == "m" else "weights are [n, k]"
    if most != MAX_EXTENT:
        hint = "sums of more integer products may leave int32: split the columns, or choose another activation type"
    return accept(given, integer(least, most), name, at=at, error=ShapeError, hint=hint)


def _compute(given: str | ComputeType, allowed: tuple[str, ...], where: str) -> ComputeType:
    found = compute_type(given)
    if not one_of(allowed).fits(found.name):
        raise TypeDeclarationError(
            f"{where} = {found.name} is not offered",
            at=f"matmul({where}=...)",
            hint=f"choose one of {', '.join(allowed)}",
        )
    return found
