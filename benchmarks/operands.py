"""Weights and activations on the GPU: random codes, packed where they lie, and their exact meaning in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.grid import EIGHT_BITS
from ladder.graph.draw import INT8_DEVIATION
from ladder.graph.epilogue import Activated, Gated
from ladder.runtime.packed import Packed
from ladder.ttype import Dense

if TYPE_CHECKING:
    from ladder.graph import MatMul
    from ladder.runtime.kernel import Kernel
    from ladder.ttype import GroupedType

#: a torch tensor
Tensor = Any

#: bytes of weights that one graph reads: five times the L2 cache of an H200, so that all of them come from memory
ROTATED_BYTES = 300 * 10**6
#: codes that are turned to float64 at once
CHUNK_CODES = 1 << 25


#: second-level scale of types that have one: a power of two keeps the reference exact
GLOBAL_SCALE = 1 / 64
#: root mean square of an element's values up to which scales of about 1/64 keep float16 outputs far from overflow
MODEST = 256.0


def _float16_scales(shape: tuple[int, int], device: str) -> Tensor:
    return ((torch.rand(shape, device=device) + 0.5) / 64).to(torch.float16)


def _float16_values(scales: Tensor) -> Tensor:
    return scales.double()


def _e8m0_scales(shape: tuple[int, int], device: str) -> Tensor:
    return torch.randint(118, 123, shape, device=device, dtype=torch.uint8)


def _e8m0_values(raw: Tensor) -> Tensor:
    return torch.exp2(raw.double() - 127)


def _e4m3_scales(shape: tuple[int, int], device: str) -> Tensor:
    # raw bits of 0.5 to 3.75: s eeee mmm, exponents of bias 7
    return torch.randint(0x30, 0x48, shape, device=device, dtype=torch.uint8)


def _e4m3_values(raw: Tensor) -> Tensor:
    # normal numbers of OCP FP8 E4M3
    bits = raw.to(torch.int32)
    return torch.exp2((bits >> 3).double() - 7) * (1 + (bits & 7).double() / 8)


#: scale type -> (random scales, as numbers or raw bits; their values in float64)
SCALES: dict[str, tuple[Callable[[tuple[int, int], str], Tensor], Callable[[Tensor], Tensor]]] = {
    "float16": (_float16_scales, _float16_values),
    "e8m0": (_e8m0_scales, _e8m0_values),
    "fp8_e4m3fn": (_e4m3_scales, _e4m3_values),
}


def shrink(values: Any) -> float:
    """Power of two by which float16 scales of an element with these finite values are made smaller."""
    size = float(np.sqrt(np.mean(np.square(values))))
    return float(2.0 ** -max(0, math.ceil(math.log2(size / MODEST))))


@dataclass(frozen=True)
class Weight:
    """Random quantised weights ``[n, k]`` of a type whose groups are runs of K; a second level is :data:`GLOBAL_SCALE`.

    Attributes:
        type: the weight type.
        codes: uint8 ``[n, k]``; int16 of a dense type.
        scales: ``[n, k / group]``, numbers or raw bits; None for a type without.
        zeros: uint8 codes like scales, or None.
    """

    type: GroupedType
    codes: Tensor
    scales: Tensor | None
    zeros: Tensor | None

    @classmethod
    def random(
        cls, wt: GroupedType, n: int, k: int, undefined: tuple[int, ...], device: str
    ) -> Weight:
        """Codes that all occur equally often, except those that are no finite number or that decoding cannot carry.

        Weights of a dense type are normal numbers whose outputs are of the size of the activations.
        """
        if isinstance(wt.element, Dense):
            numbers = torch.randn((n, k), device=device) / math.sqrt(k)
            return cls(wt, numbers.to(getattr(torch, wt.name)).view(torch.int16), None, None)
        assert wt.scale is not None
        assert wt.zero in (None, "integer")
        assert wt.group[0] == 1
        numbers = np.flatnonzero(np.isfinite(wt.element.values))
        allowed = [int(code) for code in numbers if code not in undefined]
        make, _ = SCALES[wt.scale]
        shape = wt.scale_shape(n, k)
        zeros = _codes(allowed, shape, device) if wt.zero else None
        scales = make(shape, device)
        if wt.scale == "float16":
            scales = scales * shrink(wt.element.values[numbers])
        return cls(wt, _codes(allowed, (n, k), device), scales, zeros)

    def values(self) -> Tensor:
        """The weights, float64 ``[n, k]``: ``w = s * (v[q] - v[z])``."""
        if self.scales is None:
            return self.codes.view(getattr(torch, self.type.name)).double()
        assert self.type.scale is not None
        n, k = self.codes.shape
        table = torch.tensor(
            self.type.element.values, dtype=torch.float64, device=self.codes.device
        )
        scales = SCALES[self.type.scale][1](self.scales)
        found = torch.empty((n, k), dtype=torch.float64, device=self.codes.device)
        step = max(1, CHUNK_CODES // k)
        for first in range(0, n, step):
            rows = slice(first, first + step)
            some = table[self.codes[rows].long()]
            groups = some.view(some.shape[0], scales.shape[1], -1)
            if self.zeros is not None:
                groups -= table[self.zeros[rows].long()][..., None]
            groups *= scales[rows][..., None]
            found[rows] = some if self.type.second is None else some * GLOBAL_SCALE
        return found

    def packed(self, kernel: Kernel) -> Packed:
        """Packed for a kernel, where the codes lie."""
        metadata: dict[str, Any] = {} if self.scales is None else {"scales": self.scales}
        if self.zeros is not None:
            metadata["zeros"] = self.zeros
        if self.type.second is not None:
            metadata["global_scale"] = GLOBAL_SCALE
        return kernel.pack_arrays(self.codes, **metadata)


def _codes(allowed: list[int], shape: tuple[int, int], device: str) -> Tensor:
    drawn = torch.randint(0, len(allowed), shape, device=device, dtype=torch.uint8)
    if allowed == list(range(len(allowed))):
        return drawn
    table = torch.tensor(allowed, dtype=torch.uint8, device=device)
    flat = drawn.reshape(-1)
    for first in range(0, flat.numel(), CHUNK_CODES):
        piece = slice(first, first + CHUNK_CODES)
        flat[piece] = table[flat[piece].long()]
    return drawn


def rotated(packed: Packed) -> list[Packed]:
    """The packed weight and as many copies as make the rotated bytes."""
    count = max(2, math.ceil(ROTATED_BYTES / packed.nbytes))
    return [packed, *(_copy(packed) for _ in range(count - 1))]


def _copy(packed: Packed) -> Packed:
    # as bytes: every torch can copy those
    arrays = {
        name: packed[name].view(torch.uint8).clone().view(packed[name].dtype) for name in packed
    }
    return Packed(packed.packing, arrays)


#: compute type -> torch's name of it, where it is another
TORCH_NAMES = {"fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


def torch_type(name: str) -> Any:
    """The torch dtype of a compute type."""
    return getattr(torch, TORCH_NAMES.get(name, name))


def activations(m: int, k: int, dtype: str, device: str) -> Tensor:
    """Normal activations ``[m, k]``; those of int8 reach the ends of the range."""
    normal = torch.randn((m, k), device=device)
    if dtype == "int8":
        normal = (INT8_DEVIATION * normal).round().clamp(-128, 127)
    return normal.to(torch_type(dtype))


def row_scales(m: int, dtype: str, device: str) -> Tensor | None:
    """Scales of rows of 8-bit activations, float32 ``[m]``, that bring them to about 1; None for wider ones."""
    if dtype not in EIGHT_BITS:
        return None
    size = INT8_DEVIATION if dtype == "int8" else 1.0
    return (torch.rand(m, device=device) + 0.5) / size


#: what an activation function means, in torch
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
}


def with_epilogue(op: MatMul, exact: Tensor) -> tuple[Tensor | None, Tensor]:
    """A normal residual ``[m, out_n]`` where the operator has one, and what its steps make of exact sums ``[m, n]``."""
    residual = None
    for step in op.epilogue:
        if isinstance(step, Activated):
            exact = FUNCTIONS[step.function](exact)
        elif isinstance(step, Gated):
            gate, up = exact.chunk(2, dim=1)
            exact = FUNCTIONS[step.function](gate) * up
        else:
            residual = torch.randn_like(exact).to(torch_type(op.out.name))
            exact = exact + residual
    return residual, exact


def relative_error(y: Tensor, exact: Tensor) -> float:
    """``|y - exact|_2 / |exact|_2``; NaN where an element was never written."""
    return float((y.double() - exact).norm() / exact.norm())
