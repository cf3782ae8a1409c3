"""Steps between a kernel's float32 sums and its store, each a stage with its NumPy meaning; and those an operator asks for.

Activation functions are :mod:`ladder.scheduler.formulas`, in float32. A gate takes two channels that a thread holds together:
:mod:`ladder.scheduler.row_order` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ladder.graph.epilogue import Activated, AddResidual, Coded, EpilogueStep, Gated
from ladder.graph.matmul import MatMul
from ladder.scheduler.formulas import evaluate
from ladder.scheduler.stage import EpilogueStage

if TYPE_CHECKING:
    from ladder.scheduler.packing import Packing


@dataclass(frozen=True)
class GlobalScale(EpilogueStage):
    """Multiply by the second-level scale of the whole tensor."""

    name: ClassVar[str] = "global scale"

    def evaluate(
        self, y: NDArray[np.float32], operands: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        scaled: NDArray[np.float32] = y * operands["global_scale"][0]
        return scaled

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return "y *= global scale"


@dataclass(frozen=True)
class TokenScale(EpilogueStage):
    """Multiply each row of outputs by the scale of its activations, ``x_scale[m]``."""

    name: ClassVar[str] = "token scale"

    def evaluate(
        self, y: NDArray[np.float32], operands: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        return y * operands["x_scale"][:, None]

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return "y *= x_scale[m]"


@dataclass(frozen=True)
class AddBias(EpilogueStage):
    """Add ``bias[n]``."""

    name: ClassVar[str] = "bias"

    def evaluate(
        self, y: NDArray[np.float32], operands: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        return y + operands["bias"][None, :]

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return "y += bias[n]"


@dataclass(frozen=True)
class Activation(EpilogueStage):
    """Apply a function to each output.

    Attributes:
        function: of :data:`~ladder.scheduler.formulas.FORMULAS`.
    """

    name: ClassVar[str] = "activation"
    function: str

    def evaluate(
        self,
        y: NDArray[np.float32],
        operands: dict[str, NDArray[np.float32]],  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        return evaluate(self.function, y)

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return f"y = {self.function}(y)"


@dataclass(frozen=True)
class Gate(EpilogueStage):
    """Multiply each up channel by a function of its gate: ``[m, n]`` becomes ``[m, n / 2]``.

    Attributes:
        function: of :data:`~ladder.scheduler.formulas.FORMULAS`.
    """

    name: ClassVar[str] = "gate"
    function: str

    def evaluate(
        self,
        y: NDArray[np.float32],
        operands: dict[str, NDArray[np.float32]],  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        half = y.shape[1] // 2
        return evaluate(self.function, y[:, :half]) * y[:, half:]

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return f"y = {self.function}(y[gate]) * y[up], rows g and g + 8 of a tile"


@dataclass(frozen=True)
class Residual(EpilogueStage):
    """Add ``residual[m, n]``, which has y's shape and type."""

    name: ClassVar[str] = "residual"

    def evaluate(
        self, y: NDArray[np.float32], operands: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        return y + operands["residual"]

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return "y += residual[m, n]"


@dataclass(frozen=True)
class Divide(EpilogueStage):
    """Divide by the scale of the outputs, so that what is stored are codes: the store rounds them.

    Attributes:
        scale: a number of float32.
    """

    name: ClassVar[str] = "output scale"
    scale: float

    def evaluate(
        self,
        y: NDArray[np.float32],
        operands: dict[str, NDArray[np.float32]],  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """NumPy meaning, see :class:`EpilogueStage`."""
        with np.errstate(over="ignore"):
            divided: NDArray[np.float32] = y / np.float32(self.scale)
        return divided

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return f"y /= {self.scale:g}"


#: the stage of each step that an operator may hold
_STAGES: Mapping[type[EpilogueStep], Callable[[Any], EpilogueStage]] = MappingProxyType(
    {
        Activated: lambda step: Activation(step.function),
        Gated: lambda step: Gate(step.function),
        AddResidual: lambda _: Residual(),
        Coded: lambda step: Divide(step.scale),
    }
)

#: stages that read an operand of the call, or change the shape or the type of y: there are as many as the operator and its weight ask for
OPERATORS_OWN: tuple[type[EpilogueStage], ...] = (
    GlobalScale,
    TokenScale,
    AddBias,
    Gate,
    Residual,
    Divide,
)

#: all stages of this module
STAGES: tuple[type[EpilogueStage], ...] = (*OPERATORS_OWN, Activation)


def default_epilogue(op: MatMul, packing: Packing) -> tuple[EpilogueStage, ...]:
    """The epilogue that an operator asks for."""
    steps: list[EpilogueStage] = []
    if packing.has_global_scale:
        steps.append(GlobalScale())
    if op.activation_scale:
        steps.append(TokenScale())
    if op.bias:
        steps.append(AddBias())
    return (*steps, *(_STAGES[type(step)](step) for step in op.epilogue))
