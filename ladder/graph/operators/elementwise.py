"""Operators that act on each element alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from ladder.errors import ShapeError
from ladder.graph.extent import Sizes, broadcast
from ladder.graph.functions import FUNCTIONS
from ladder.graph.operators.base import Operator
from ladder.graph.tensor import DTYPES, REALS, Array, TensorType, real

#: functions of two numbers
PAIRS: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        "add": np.add,
        "and": np.logical_and,
        "divide": np.divide,
        "equal": np.equal,
        "greater": np.greater,
        "greater_equal": np.greater_equal,
        "less": np.less,
        "less_equal": np.less_equal,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "multiply": np.multiply,
        "not_equal": np.not_equal,
        "or": np.logical_or,
        "power": np.power,
        "subtract": np.subtract,
    }
)
_TRUTHS = frozenset(
    {"and", "equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "or"},
)


@dataclass(frozen=True)
class Unary(Operator):
    """A function of :data:`FUNCTIONS` on each element."""

    function: str
    kind: ClassVar[str] = "unary"

    def infer(self, *given: TensorType) -> TensorType:
        """The input's type; of a negation a truth."""
        return given[0].with_(dtype="bool" if self.function == "not" else None)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """Function by function of NumPy, in float64 for real numbers."""
        return FUNCTIONS[self.function](given[0])

    @property
    def brief(self) -> str:
        """The function's name."""
        return self.function


@dataclass(frozen=True)
class Binary(Operator):
    """A function of :data:`PAIRS` on each pair of elements, broadcast as NumPy does."""

    function: str
    kind: ClassVar[str] = "binary"
    arity: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, *given: TensorType) -> TensorType:
        """The wider shape; the type of the real input, of the first among equals."""
        a, b = given
        shape = broadcast([a.shape, b.shape], self.brief)
        if self.function in _TRUTHS:
            return TensorType(shape, "bool")
        return TensorType(shape, _joined(a, b))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's function."""
        if self.function == "divide" and given[0].dtype.kind in "iu":
            result: Array = np.trunc(given[0] / given[1]).astype(np.int64)
            return result
        return PAIRS[self.function](*given)

    @property
    def brief(self) -> str:
        """The function's name."""
        return self.function


def _joined(a: TensorType, b: TensorType) -> str:
    """The type of a result: a tensor wins over a plain number, a real one over integers."""
    if a.is_float != b.is_float:
        return a.element if a.is_float else b.element
    if (a.rank == 0) != (b.rank == 0):
        return a.element if a.rank else b.element
    if a.weight is not None or b.weight is not None:
        return "float32"
    return a.element if DTYPES[a.element][1] >= DTYPES[b.element][1] else b.element


@dataclass(frozen=True)
class Where(Operator):
    """``condition ? a : b`` on each element."""

    kind: ClassVar[str] = "where"
    arity: ClassVar[tuple[int, int]] = (3, 3)

    def infer(self, *given: TensorType) -> TensorType:
        """The broadcast shape, the type of the choices."""
        shape = broadcast([one.shape for one in given], self.kind)
        return TensorType(shape, _joined(given[1], given[2]))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's where."""
        return np.where(*given)


@dataclass(frozen=True)
class Cast(Operator):
    """To another type: real numbers stay the numbers they are, only integers and truths are made."""

    dtype: str
    kind: ClassVar[str] = "cast"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ShapeError(f"cast to {self.dtype}", at="cast", hint=f"one of {', '.join(DTYPES)}")

    def infer(self, *given: TensorType) -> TensorType:
        """The shape as it is."""
        return TensorType(given[0].shape, self.dtype)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """Toward zero where a real number becomes an integer."""
        if self.dtype in REALS:
            return real(given[0])
        if self.dtype == "bool":
            return np.asarray(given[0] != 0)
        return given[0].astype(np.int64)

    @property
    def brief(self) -> str:
        """As ``to float16``."""
        return f"to {self.dtype}"
