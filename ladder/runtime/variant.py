"""A kernel of an operator among others: the rows and layouts that its plan takes, and its machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from ladder.codegen.kernel import LoweredKernel
from ladder.codegen.toolchain import Cubin
from ladder.runtime.arrays import ArrayView, Rows, numpy_dtype

#: what the "vector" and "tensor" accesses of a plan ask of x: rows start at multiples of so many bytes
VECTOR_BYTES = 16


class OperatorLike(Protocol):
    """What the runtime asks of :class:`ladder.graph.matmul.MatMul`."""

    @property
    def n(self) -> int:
        """Output channels."""

    @property
    def out_n(self) -> int:
        """Columns of y: n, or half of it behind a gate."""

    @property
    def k(self) -> int:
        """Columns of x."""

    @property
    def activation(self) -> Any:
        """Type of x."""

    @property
    def out(self) -> Any:
        """Type of y; where y is stored as codes, of a bias and a residual alone."""

    @property
    def stored(self) -> Any:
        """Type of the array that is written."""

    @property
    def bias(self) -> bool:
        """Whether a bias is added."""

    @property
    def activation_scale(self) -> bool:
        """Whether rows of x are scaled."""

    @property
    def residual(self) -> bool:
        """Whether a residual is added."""


class PlanLike(Protocol):
    """What the runtime asks of :class:`ladder.scheduler.plan.Plan`."""

    @property
    def op(self) -> OperatorLike:
        """The operator."""

    @property
    def m_range(self) -> tuple[int, int | None]:
        """Least and largest m; None: no upper limit."""

    @property
    def access(self) -> str:
        """``vector``, ``scalar`` or ``tensor``."""

    def to_json(self) -> Any:
        """Return the plan as JSON."""


@dataclass(frozen=True)
class Variant:
    """A kernel of an operator, for the rows and strides that its plan takes."""

    plan: PlanLike
    lowered: LoweredKernel
    cubins: Mapping[str, Cubin]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.lowered.name

    @property
    def is_compiled(self) -> bool:
        """Whether ``lowered`` and ``cubins`` are there without waiting."""
        return True

    def takes_rows(self, m: int) -> bool:
        """Whether ``m`` is in the plan's range, and one grid covers it."""
        low, high = self.plan.m_range
        if m < low or (high is not None and m > high):
            return False
        return self.most_rows is None or m <= self.most_rows

    @property
    def most_rows(self) -> int | None:
        """Most rows of a call: the plan's, or as many as one grid covers; None: no limit."""
        limits = (self.plan.m_range[1], self.lowered.launch.most_rows)
        return min((limit for limit in limits if limit is not None), default=None)

    def refuses(self, x: ArrayView, found: Rows | None) -> str:
        """Return what about x's layout the kernel cannot read, or an empty text."""
        if found is None:
            return "leading axes that no single stride walks"
        lowered, pieces = self.lowered, self.plan.access != "scalar"
        if found.stride_k != 1 and (pieces or lowered.parameter("x_stride_k") is None):
            return f"inner stride {found.stride_k}, not 1"
        if found.m > 1:
            strided = lowered.parameter("x_stride_m") or lowered.parameter("x_map")
            if strided is None and found.stride_m != x.shape[-1]:
                return f"row stride {found.stride_m}, not {x.shape[-1]}"
            piece = vector_elements(x.dtype)
            if pieces and found.stride_m % piece:
                return f"row stride {found.stride_m}, no multiple of {piece}"
            if self.plan.access == "tensor" and found.stride_m < 0:
                return f"row stride {found.stride_m}, negative"
        if pieces and x.pointer % VECTOR_BYTES:
            return f"address {x.pointer:#x}, no multiple of {VECTOR_BYTES} bytes"
        return ""


class Deferred(Variant):
    """A kernel that is compiled when something first asks for more than its plan.

    Args:
        plan: of the kernel.
        make: compiles it; called once, or by several threads at once that each keep the same.
    """

    def __init__(self, plan: PlanLike, make: Callable[[], Variant]) -> None:
        # The base is frozen, and its other fields are properties here.
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "_make", make)

    @cached_property
    def _made(self) -> Variant:
        make: Callable[[], Variant] = self.__dict__["_make"]
        return make()

    @property
    def lowered(self) -> LoweredKernel:
        """Text, arguments and launch."""
        return self._made.lowered

    @property
    def cubins(self) -> Mapping[str, Cubin]:
        """Machine code by architecture."""
        return self._made.cubins

    @property
    def name(self) -> str:
        """The kernel's name, or what it will be for."""
        if self.is_compiled:
            return self.lowered.name
        low, high = self.plan.m_range
        return f"not compiled yet, M from {low}" + ("" if high is None else f" to {high}")

    @property
    def is_compiled(self) -> bool:
        """Whether it has been asked for."""
        return "_made" in self.__dict__

    def __repr__(self) -> str:
        """The name alone: looking at a kernel, in a debugger for instance, must not compile it."""
        return f"Deferred({self.name})"


def vector_elements(dtype: str) -> int:
    """Elements of a dtype in the 16 bytes that are copied at once."""
    return VECTOR_BYTES // numpy_dtype(dtype).itemsize
