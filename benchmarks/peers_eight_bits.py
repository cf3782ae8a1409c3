"""What 8-bit activations are timed against beside cuBLAS in float16: torch's own products of 8-bit matrices.

``torch._int_mm`` gives int32 and takes more than 16 rows; ``torch._scaled_mm`` is cuBLASLt with one scale for each operand.
Neither applies a scale to rows or channels, which the product does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from benchmarks.clock import Call, Graph, capture, launches_for
from benchmarks.operands import ROTATED_BYTES, Tensor, activations, relative_error
from benchmarks.peers import WrongNumbersError

#: (m, n, k, device) -> a graph of launches over rotated weights, its numbers checked
Peer = Callable[[int, int, int, str], Graph]

#: products that torch offers under private names
_INT_MM, _SCALED_MM = (getattr(torch, name) for name in ("_int_mm", "_scaled_mm"))

#: largest relative error: integers are exact; fp8 sums of tensor cores keep 13 bits, and y is float16
INT_TOLERANCE, FP8_TOLERANCE = 0.0, 4e-3


def _graph(
    call: Callable[[Tensor], Call], weights: list[Tensor], shape: tuple[int, int, int]
) -> Graph:
    return capture([call(weight) for weight in weights], launches_for(*shape))


def _weights(n: int, k: int, dtype: str, device: str) -> list[Tensor]:
    count = max(2, math.ceil(ROTATED_BYTES / (n * k)))
    first = activations(n, k, dtype, device)
    return [first, *(first.clone() for _ in range(count - 1))]


def _check(name: str, y: Tensor, exact: Tensor, tolerance: float) -> None:
    error = relative_error(y, exact)
    if not error <= tolerance:
        raise WrongNumbersError(f"{name} is off by {error:.3g}, more than {tolerance}")


def int_mm(m: int, n: int, k: int, device: str) -> Graph:
    """``torch._int_mm``: int8 ``[m, k]`` times int8 ``[n, k]``, to int32."""
    x, weights = activations(m, k, "int8", device), _weights(n, k, "int8", device)
    y = torch.full((m, n), -1, dtype=torch.int32, device=device)

    def call(weight: Tensor) -> Call:
        return lambda: _INT_MM(x, weight.t(), out=y)

    graph = _graph(call, weights, (m, n, k))
    y.fill_(-1)
    graph.graph.replay()
    _check("torch._int_mm", y, x.double() @ weights[0].double().t(), INT_TOLERANCE)
    return graph


def scaled_mm(m: int, n: int, k: int, device: str) -> Graph:
    """``torch._scaled_mm``: fp8_e4m3fn ``[m, k]`` times fp8_e4m3fn ``[n, k]``, to float16."""
    x, weights = activations(m, k, "fp8_e4m3fn", device), _weights(n, k, "fp8_e4m3fn", device)
    one = torch.ones((), dtype=torch.float32, device=device)
    y = torch.full((m, n), float("nan"), dtype=torch.float16, device=device)

    def call(weight: Tensor) -> Call:
        return lambda: _SCALED_MM(
            x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.float16, out=y
        )

    graph = _graph(call, weights, (m, n, k))
    y.fill_(float("nan"))
    graph.graph.replay()
    _check("torch._scaled_mm", y, x.double() @ weights[0].double().t(), FP8_TOLERANCE)
    return graph


#: type of the activations -> (name of the peer in rows, what makes its graph)
EIGHT_BIT_PEERS: dict[str, tuple[str, Peer]] = {
    "int8": ("torch_int_mm", int_mm),
    "fp8_e4m3fn": ("cublaslt_fp8", scaled_mm),
}
