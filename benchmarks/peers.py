"""What the product is timed against, in the same run: cuBLAS with 16-bit weights, and humming-kernels where installed.

A peer's numbers are checked before its time counts; one that fails has no time, and its reason is printed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.clock import Call, Graph, capture, launches_for
from benchmarks.grid import Case
from benchmarks.operands import (
    ROTATED_BYTES,
    Tensor,
    activations,
    relative_error,
    row_scales,
    torch_type,
)

#: weight, n, k, activation
Key = tuple[str, int, int, str]

#: type of y -> largest relative error of a peer: it may scale weights in 16 bits and add in parts
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 2e-2}


class WrongNumbersError(Exception):
    """A peer computed something else."""


def _check(name: str, y: Tensor, exact: Tensor) -> None:
    error, most = relative_error(y, exact), TOLERANCE[y.dtype]
    if not error <= most:
        raise WrongNumbersError(f"{name} is off by {error:.3g}, more than {most}")


class Cublas:
    """``torch.mm(x, w.t())`` with ``w [n, k]`` in the activation's type, for one shape; graphs are kept."""

    def __init__(self, n: int, k: int, device: str) -> None:
        self._shape = n, k
        self._device = device
        self._weights: dict[str, list[Tensor]] = {}
        self._graphs: dict[tuple[int, str], Graph] = {}

    def graph(self, m: int, dtype: str) -> Graph:
        """The graph for ``m`` tokens."""
        if (m, dtype) not in self._graphs:
            self._graphs[m, dtype] = self._capture(m, dtype)
        return self._graphs[m, dtype]

    def _capture(self, m: int, dtype: str) -> Graph:
        n, k = self._shape
        if dtype not in self._weights:
            count = max(2, math.ceil(ROTATED_BYTES / (2 * n * k)))
            first = activations(n, k, dtype, self._device)
            self._weights[dtype] = [first, *(first.clone() for _ in range(count - 1))]
        weights = self._weights[dtype]
        x = activations(m, k, dtype, self._device)
        y = torch.full((m, n), float("nan"), dtype=x.dtype, device=self._device)

        def call(weight: Tensor) -> Call:
            return lambda: torch.mm(x, weight.t(), out=y)

        graph = capture([call(weight) for weight in weights], launches_for(m, n, k))
        y.fill_(float("nan"))
        graph.graph.replay()
        _check("cuBLAS", y, x.double() @ weights[0].double().t())
        return graph


def _humming_types() -> dict[str, tuple[dict[str, Any], float]]:
    """Row name -> (humming's weight config, how far its quantisation may be from the random weights)."""
    g128: dict[str, Any] = {"group_size": 128}
    return {
        "int4": ({"dtype": "uint4", "has_zero_point": True, **g128}, 0.15),
        "int4_sym": ({"dtype": "uint4", **g128}, 0.15),
        "mxfp4": ({"dtype": "float4e2m1", "group_size": 32, "scale_dtype": "float8e8m0"}, 0.2),
        "int8": ({"dtype": "uint8", **g128}, 0.02),
        "fp8_e4m3fn": ({"dtype": "float8e4m3", **g128}, 0.05),
        "int3": ({"dtype": "uint3", **g128}, 0.35),
        "int2": ({"dtype": "uint2", **g128}, 0.75),
        # one bit without a zero point is no number format there
        "int1": ({"dtype": "uint1", "has_zero_point": True, **g128}, 1.2),
        # without a size of groups there is one scale a channel
        "int4_channel": ({"dtype": "uint4"}, 0.25),
        "int8_channel": ({"dtype": "uint8"}, 0.02),
        "fp4_e2m1_channel": ({"dtype": "float4e2m1"}, 0.3),
        "fp8_e4m3fn_channel": ({"dtype": "float8e4m3"}, 0.05),
    }


HUMMING = _humming_types()
#: types of 8-bit activations, whose rows have scales -> humming's names of them
HUMMING_INPUTS = {"int8": "int8", "fp8_e4m3fn": "float8e4m3"}
#: the buffer of rows' scales that its kernels read holds a multiple of so many
SCALE_ROWS = 4
#: what fp8 activations are divided by for it
SMALLER = 8.0
PARTS = ("weight", "weight_scale", "zero_point", "weight_scale_2", "locks")


@dataclass(frozen=True)
class Layer:
    """A humming layer: its configuration, tensors as its kernels read them, and the exact weights."""

    config: Any
    parts: dict[str, Tensor]
    exact: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return sum(part.nbytes for name, part in self.parts.items() if name != "locks")


class Humming:
    """humming-kernels as its own benchmark calls it; kernels are compiled at first use, by NVRTC or nvcc."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._schema = importlib.import_module("humming.schema")
        self._layers = importlib.import_module("humming.layer")
        self._forward = importlib.import_module("humming.forward").humming_forward
        self._tune = importlib.import_module("humming.tune").get_heuristics_config
        self._kernels = importlib.import_module("humming.kernel").HummingKernel

    @staticmethod
    def installed() -> bool:
        """Whether the package can be imported."""
        return importlib.util.find_spec("humming") is not None

    def prepare(self, cases: Sequence[Case], workers: int, report: Callable[[str], None]) -> None:
        """Compile all kernels that the cases need, several at once, so that no compile stands between timings."""
        wanted: dict[Key, set[int]] = {}
        for case in cases:
            if case.weight in HUMMING:
                wanted.setdefault(layer_key(case), set()).add(case.m)

        def kernels_of(key: Key) -> set[tuple[str, str]]:
            try:
                layer = self.layer(key)
                return {(layer.config.to_str(), self._tuning(layer, m)) for m in wanted[key]}
            except Exception as error:  # noqa: BLE001 - it is tried again with its row, and then costs that row alone
                report(f"humming {'-'.join(map(str, key))}: {type(error).__name__}: {error}")
                return set()

        def compile_one(kernel: tuple[str, str]) -> None:
            config, tuning = kernel
            try:
                self._kernels.prepare_kernels(config, None, tuning, self._device)
            except Exception as error:  # noqa: BLE001 - likewise
                report(f"humming {tuning}: {type(error).__name__}: {error}")

        with ThreadPoolExecutor(workers) as pool:
            kernels = set[tuple[str, str]]().union(*pool.map(kernels_of, wanted))
            list(pool.map(compile_one, sorted(kernels)))

    def layer(self, key: Key) -> Layer:
        """Quantise random weights and bring them into the form that the kernels read.

        Raises:
            WrongNumbersError: the dequantised weights are not near the random ones.
        """
        weight, n, k, dtype = key
        config, bound = HUMMING[weight]
        eight_bits = dtype in HUMMING_INPUTS
        kind = torch.float16 if eight_bits else torch_type(dtype)
        random = (torch.randn((n, k), device=self._device) * 0.02).to(kind)
        schema = self._schema.BaseWeightSchema.from_config({**config, "quant_method": "humming"})
        tensors = self._schema.HummingWeightSchema.quant_tensor(random, schema, kind)
        exact = schema.dequant_tensors(tensors).double()
        error = relative_error(exact, random.double())
        if not error <= bound:
            raise WrongNumbersError(f"weights are off by {error:.3g}, more than {bound}")
        layer = self._layers.HummingLayer(
            shape_n=n,
            shape_k=k,
            weight_config=dict(config),
            input_config={"dtype": HUMMING_INPUTS[dtype]} if eight_bits else None,
            torch_dtype=kind,
        ).to(self._device)
        layer.load_from_tensors({name: tensor.clone() for name, tensor in tensors.items()})
        layer.transform()
        parts = {name: getattr(layer, name, None) for name in PARTS}
        kept = {name: part.detach() for name, part in parts.items() if part is not None}
        return Layer(layer.humming_config, kept, exact)

    def graph(self, layer: Layer, copies: Sequence[dict[str, Tensor]], m: int, dtype: str) -> Graph:
        """A graph of products over rotated copies of a layer's tensors, its numbers checked.

        Raises:
            WrongNumbersError: it computes something else.
        """
        n, k = layer.exact.shape
        x = activations(m, k, dtype, self._device)
        if dtype == "fp8_e4m3fn":
            # its kernels round sums to float16 before scales meet them: those of 8192 columns and codes of 448 may be infinite
            x = (x.float() / SMALLER).to(x.dtype)
        scales = row_scales(-(-m // SCALE_ROWS) * SCALE_ROWS, dtype, self._device)
        x_scale = None if scales is None else scales[:m, None]
        kind = x.dtype if x_scale is None else torch.float16
        y = torch.full((m, n), float("nan"), dtype=kind, device=self._device)
        tuning = self._tuning(layer, m)

        def call(parts: dict[str, Tensor]) -> Call:
            return lambda: self._forward(
                layer.config,
                inputs=x,
                input_scale=x_scale,
                outputs=y,
                tuning_config=tuning,
                **parts,
            )

        graph = capture([call(parts) for parts in copies], launches_for(m, n, k))
        y.fill_(float("nan"))
        graph.graph.replay()
        exact = x.double() @ layer.exact.t()
        _check("humming", y, exact if x_scale is None else exact * x_scale.double())
        return graph

    def _tuning(self, layer: Layer, m: int) -> str:
        """The configuration that the package's own heuristics choose for ``m`` tokens, as JSON."""
        return json.dumps(dict(self._tune(layer_config=layer.config, shape_m=m)))


def rotated_parts(layer: Layer) -> list[dict[str, Tensor]]:
    """The layer's tensors and as many copies as make the rotated bytes."""
    count = max(2, math.ceil(ROTATED_BYTES / layer.nbytes))
    copies = ({name: part.clone() for name, part in layer.parts.items()} for _ in range(count - 1))
    return [layer.parts, *copies]


def layer_key(case: Case) -> Key:
    """What cases that share a layer agree in."""
    return case.weight, case.n, case.k, case.activation
