"""What a matmul does to its sums before it stores them, as data: each step is a value with a meaning.

A fused graph states here what its kernels are to do; operands of the steps follow x and the weight among the operator's
inputs, in the order of the steps. The step that quantises rows is beside the operator that does: ``operators/quantize.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeVar

import numpy as np

from ladder.checks import accept, number, one_of
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.graph.extent import Shape, divided, same
from ladder.graph.functions import ACTIVATIONS, FUNCTIONS
from ladder.graph.static_codes import CODE_TARGETS, static_codes
from ladder.graph.tensor import PER_TOKEN, Array, TensorType, real


@dataclass(frozen=True)
class EpilogueStep:
    """A step between the sums ``[..., N]`` and the stored output."""

    kind: ClassVar[str]
    #: operands that it takes
    operands: ClassVar[int] = 0

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:  # noqa: ARG002 - as all steps
        """Type of the result; raises ShapeError where an operand does not fit."""
        return y

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:
        """The meaning, in float64."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Biased(EpilogueStep):
    """``y + bias[N]``."""

    kind: ClassVar[str] = "bias"
    operands: ClassVar[int] = 1

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:
        """One number to each output channel."""
        shape: Shape = operands[0].shape
        if len(shape) > y.rank or any(extent != 1 for extent in shape[:-1]):
            raise ShapeError(f"bias {operands[0]} on {y}", at=self.kind, hint="a bias is [N]")
        if shape and shape[-1] != 1:
            same(shape[-1], y.shape[-1], "bias and output channels", self.kind)
        return y

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:
        """The sum."""
        return y + operands[0]


@dataclass(frozen=True)
class Scaled(EpilogueStep):
    """``factor * y``."""

    factor: float
    kind: ClassVar[str] = "scaled"

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002 - as all steps
        """The product."""
        return self.factor * y

    def __str__(self) -> str:
        return f"times {self.factor:g}"


@dataclass(frozen=True)
class Activated(EpilogueStep):
    """A function of :data:`ACTIVATIONS` on each element."""

    function: str
    kind: ClassVar[str] = "activated"

    def __post_init__(self) -> None:
        accept(self.function, one_of(ACTIVATIONS), "function", at=self.kind, error=ShapeError)

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002 - as all steps
        """Function of the sums."""
        return FUNCTIONS[self.function](y)

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True)
class Gated(EpilogueStep):
    """``f(gate) * up``: the first half of the channels is the gate, the second the up projection; N becomes N/2."""

    function: str
    kind: ClassVar[str] = "gated"

    def __post_init__(self) -> None:
        accept(self.function, one_of(ACTIVATIONS), "function", at=self.kind, error=ShapeError)

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:  # noqa: ARG002 - as all steps
        """Half as many channels."""
        half = divided(y.shape[-1], 2)
        if half is None:
            raise ShapeError(f"{y.shape[-1]} channels", at=self.kind, hint="two equal halves")
        return y.with_(shape=(*y.shape[:-1], half))

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002 - as all steps
        """Gate by gate."""
        half = y.shape[-1] // 2
        return FUNCTIONS[self.function](y[..., :half]) * y[..., half:]

    def __str__(self) -> str:
        return f"{self.function}(gate)*up"


@dataclass(frozen=True)
class AddResidual(EpilogueStep):
    """``y + residual``, of y's shape."""

    kind: ClassVar[str] = "residual"
    operands: ClassVar[int] = 1

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:
        """The same shape."""
        if operands[0].shape != y.shape:
            raise ShapeError(f"residual {operands[0]} on {y}", at=self.kind, hint="shapes agree")
        return y

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:
        """The sum."""
        return y + operands[0]


@dataclass(frozen=True)
class Coded(EpilogueStep):
    """``y / scale`` as codes of a type, rounded to nearest even and saturating: what is stored are the codes.

    Attributes:
        target: a name of :data:`~ladder.graph.static_codes.CODE_TARGETS`.
        scale: of all outputs, a normal number of float32 above zero.

    Raises:
        TypeDeclarationError: the target or the scale is another one.
    """

    target: str
    scale: float
    kind: ClassVar[str] = "coded"

    def __post_init__(self) -> None:
        at, error = self.kind, TypeDeclarationError
        accept(self.target, one_of(CODE_TARGETS), "target", at=at, error=error)
        scale = accept(self.scale, number(above_zero=True), "scale", at=at, error=error)
        limits = np.finfo(np.float32)
        if not limits.smallest_normal <= np.float64(scale) <= limits.max:
            raise TypeDeclarationError(
                f"scale = {scale:g} is no normal number of float32",
                at=at,
                hint=f"from {limits.smallest_normal:.3g} to {limits.max:.3g}",
            )
        object.__setattr__(self, "scale", float(np.float32(scale)))

    def infer(self, y: TensorType, operands: tuple[TensorType, ...]) -> TensorType:  # noqa: ARG002 - as all steps
        """Rows of codes, whose scales are all the same."""
        return TensorType(y.shape, self.target + PER_TOKEN)

    def apply(self, y: Array, operands: tuple[Array, ...]) -> Array:  # noqa: ARG002 - as all steps
        """The numbers that codes and scale stand for, exactly."""
        return real(static_codes(y, self.target, self.scale)) * self.scale

    def __str__(self) -> str:
        return f"to {self.target} by {self.scale:g}"


T = TypeVar("T")


def with_operands(
    steps: Iterable[EpilogueStep], operands: Sequence[T]
) -> Iterator[tuple[EpilogueStep, tuple[T, ...]]]:
    """Each step with its own of ``operands`` (arrays, tensors, types or names), which lie one behind the other."""
    first = 0
    for step in steps:
        last = first + step.operands
        yield step, tuple(operands[first:last])
        first = last


#: steps that kernels of matmuls do, by the names that :func:`ladder.matmul` takes
KERNEL_STEPS: Mapping[str, EpilogueStep] = MappingProxyType(
    {
        **{name: Activated(name) for name in ACTIVATIONS},
        **{f"{name}_gate": Gated(name) for name in ACTIVATIONS},
        "residual": AddResidual(),
    }
)


def refusal(steps: Sequence[EpilogueStep], n: int) -> str:
    """Why no kernel does these steps on its n channels; empty where one does."""
    kinds = [type(step) for step in steps]
    if Coded in kinds[:-1]:
        return f"a step stands behind {steps[kinds.index(Coded)]}"
    for step in steps:
        if step not in KERNEL_STEPS.values() and not isinstance(step, Coded):
            return f"kernels do not do {step}"
    for kind in (Gated, AddResidual):
        if kinds.count(kind) > 1:
            return f"{kind.kind} stands there {kinds.count(kind)} times"
    if Gated in kinds and n % 2:
        return f"{n} channels have no two equal halves"
    if Gated in kinds and AddResidual in kinds[: kinds.index(Gated)]:
        return "a residual of the gated output cannot be added before the gate"
    return ""
