"""Attention and rotary embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladder.errors import ShapeError
from ladder.graph.extent import Sizes, divided, same
from ladder.graph.operators.base import Operator
from ladder.graph.operators.norm import softmax
from ladder.graph.tensor import Array, TensorType


@dataclass(frozen=True)
class Attention(Operator):
    """``softmax(scale * q k^T + mask) v`` per head.

    Inputs: q ``[..., H, S, D]``, k ``[..., G, T, D]``, v ``[..., G, T, E]`` with G dividing H (grouped queries: head h
    reads group h // (H/G)), and a mask that broadcasts to ``[..., H, S, T]``: added where it is a number, kept where it
    is true.

    Attributes:
        causal: token i sees tokens 0..i (aligned at the first token, as PyTorch and ONNX do).
        scale: None for ``1/sqrt(D)``.
    """

    causal: bool = False
    scale: float | None = None
    kind: ClassVar[str] = "attention"
    arity: ClassVar[tuple[int, int]] = (3, 4)

    def infer(self, *given: TensorType) -> TensorType:
        """``[..., H, S, E]``."""
        q, k, v = given[:3]
        if min(q.rank, k.rank, v.rank) < 3 or not q.rank == k.rank == v.rank:
            raise ShapeError(
                f"q, k and v are {q}, {k} and {v}",
                at=self,
                hint="they are [..., heads, tokens, head size]",
            )
        same(q.shape[-1], k.shape[-1], "head size of q and k", self)
        same(k.shape[-2], v.shape[-2], "tokens of k and v", self)
        same(k.shape[-3], v.shape[-3], "heads of k and v", self)
        if divided(q.shape[-3], k.shape[-3]) is None:
            raise ShapeError(
                f"{q.shape[-3]} heads of q over {k.shape[-3]} of k",
                at=self,
                hint="heads of q are a multiple of those of k and v",
            )
        return q.with_(shape=(*q.shape[:-1], v.shape[-1]))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64."""
        q, k, v = given[:3]
        times = q.shape[-3] // k.shape[-3]
        k, v = (np.repeat(one, times, axis=-3) for one in (k, v))
        scale = 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale
        scores = scale * (q @ np.swapaxes(k, -1, -2))
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
        if len(given) > 3:
            mask = given[3]
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        result: Array = softmax(scores, -1) @ v
        return result


@dataclass(frozen=True)
class Rotary(Operator):
    """Rotary embedding: pairs of features are turned by an angle for each token.

    Inputs: x ``[..., D]``, cos and sin that broadcast to it, with a last axis of D (each angle twice) or D/2. Feature i is
    paired with i + D/2, or with its neighbour where ``interleaved``.
    """

    interleaved: bool = False
    kind: ClassVar[str] = "rotary"
    arity: ClassVar[tuple[int, int]] = (3, 3)

    def infer(self, *given: TensorType) -> TensorType:
        """The type of x."""
        x, cos, sin = given
        same(cos.shape[-1], sin.shape[-1], "angles of cos and sin", self)
        if cos.shape[-1] != x.shape[-1] and divided(x.shape[-1], cos.shape[-1]) != 2:
            raise ShapeError(
                f"{cos.shape[-1]} angles for {x.shape[-1]} features",
                at=self,
                hint="there are as many, or half as many",
            )
        return x.with_()

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """In float64."""
        x, cos, sin = given
        if cos.shape[-1] != x.shape[-1]:
            cos, sin = (self._twice(one) for one in (cos, sin))
        return np.asarray(x * cos + self._turned(x) * sin)

    def _twice(self, half: Array) -> Array:
        return np.repeat(half, 2, -1) if self.interleaved else np.concatenate([half, half], -1)

    def _turned(self, x: Array) -> Array:
        """``(-b, a)`` of each pair ``(a, b)``."""
        if self.interleaved:
            return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        half = x.shape[-1] // 2
        return np.concatenate([-x[..., half:], x[..., :half]], -1)
