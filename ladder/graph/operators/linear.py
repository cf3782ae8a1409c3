"""Products: a linear layer with its epilogue, and the product of two activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladder.errors import ShapeError
from ladder.graph.epilogue import Biased, EpilogueStep, T, refusal, with_operands
from ladder.graph.extent import Extent, Sizes, broadcast, product, same
from ladder.graph.matmul import OUTPUTS, MatMul, matmul
from ladder.graph.operators.base import Operator
from ladder.graph.tensor import PER_TOKEN, Array, TensorType


@dataclass(frozen=True)
class Linear(Operator):
    """``y[..., n] = sum_k x[..., k] * w[n, k]``, then the steps of an epilogue.

    Inputs: x ``[..., K]``, w ``[N, K]``, and the operands of the epilogue in its order. Where w is a constant in a low-bit
    type this is the matmul that kernels exist for, see :meth:`matmul`.

    Attributes:
        epilogue: what happens to the sums, first step first.
        activation: compute type in which a kernel reads x, "" where x's own type says it.
        out: type of y, "" for that of x.
    """

    epilogue: tuple[EpilogueStep, ...] = ()
    activation: str = ""
    out: str = ""
    kind: ClassVar[str] = "linear"
    arity: ClassVar[tuple[int, int]] = (2, 2**31)

    def infer(self, *given: TensorType) -> TensorType:
        """``[..., N]``, or what the epilogue makes of it."""
        x, w = given[:2]
        if w.rank != 2 or not x.rank:
            raise ShapeError(f"x is {x}, w is {w}", at=self.kind, hint="w is [N, K], x [..., K]")
        same(x.shape[-1], w.shape[1], "K of x and w", f"{self.kind} of {x} and {w}")
        dtype = self.out or (x.dtype if not x.dtype.endswith(PER_TOKEN) else "float16")
        y = TensorType((*x.shape[:-1], w.shape[0]), dtype)
        for step, operands in self._steps(given[2:]):
            y = step.infer(y, operands)
        return y

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64; a low-bit weight comes dequantised."""
        x, w = given[:2]
        y: Array = x @ w.T
        for step, operands in self._steps(given[2:]):
            y = step.apply(y, operands)
        return y

    def _steps(self, operands: Sequence[T]) -> Iterator[tuple[EpilogueStep, tuple[T, ...]]]:
        wanted = sum(step.operands for step in self.epilogue)
        if wanted != len(operands):
            raise ShapeError(
                f"{len(operands)} operands for the epilogue {self.steps or 'of no step'}",
                at=self.kind,
                hint=f"its steps take {wanted}",
            )
        return with_operands(self.epilogue, operands)

    @property
    def steps(self) -> str:
        """The epilogue in words."""
        return ", ".join(map(str, self.epilogue))

    def matmul(self, x: TensorType, w: TensorType) -> MatMul:
        """The kernel's operator for these operands: a symbolic row count becomes ``m=None``.

        It does the first :attr:`kernel_steps` steps of the epilogue; later ones are the graph's own. Rows that were quantised
        bring their codes and a scale each.

        Raises:
            TypeDeclarationError: no kernel takes these types.
            ShapeError: the weight has no numbers for N and K.
        """
        n, k = w.shape
        if w.weight is None or not isinstance(n, int) or not isinstance(k, int):
            raise ShapeError(
                f"the weight is {w}", at=self, hint="kernels are for constants in a low-bit type"
            )
        rows: Extent = product(x.shape[:-1])
        is_quantised = x.dtype.endswith(PER_TOKEN)
        return matmul(
            rows if isinstance(rows, int) else None,
            n,
            k,
            activation=x.element if is_quantised else self.activation or x.element,
            weight=w.weight,
            out=next((t for t in (self.out, x.element) if t in OUTPUTS), "float16"),
            bias=self._adds_bias,
            epilogue=self.epilogue[self._adds_bias : self.kernel_steps],
            activation_scale=is_quantised,
        )

    @property
    def _adds_bias(self) -> bool:
        return self.epilogue[:1] == (Biased(),)

    @property
    def kernel_steps(self) -> int:
        """Steps of the epilogue, from the first one on, that a kernel does; a bias is among them where it is the first."""
        first = int(self._adds_bias)
        even = 2  # a gate has two equal halves, see :meth:`infer`
        counts = range(len(self.epilogue), first, -1)
        return next((c for c in counts if not refusal(self.epilogue[first:c], even)), first)

    @property
    def brief(self) -> str:
        """Kind, types and epilogue."""
        parts = [
            *([f"x {self.activation}"] if self.activation else []),
            *([self.steps] if self.epilogue else []),
        ]
        return f"{self.kind}({'; '.join(parts)})" if parts else self.kind


@dataclass(frozen=True)
class MatrixProduct(Operator):
    """``a[..., M, K] @ b[..., K, N]`` of two tensors, broadcast over the leading axes."""

    kind: ClassVar[str] = "matrix_product"
    arity: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, *given: TensorType) -> TensorType:
        """``[..., M, N]``."""
        a, b = given
        if min(a.rank, b.rank) < 2:
            raise ShapeError(f"{a} times {b}", at=self.kind, hint="matrices have two axes or more")
        same(a.shape[-1], b.shape[-2], "K", f"{a} times {b}")
        lead = broadcast([a.shape[:-2], b.shape[:-2]], f"{a} times {b}")
        return a.with_(shape=(*lead, a.shape[-2], b.shape[-1]))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's matmul."""
        return np.matmul(*given)
