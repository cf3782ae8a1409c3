"""Where the kernel calls of a graph run: on a GPU, in the emulator, or by their plans' NumPy meaning.

The two places without a GPU take tensors of the CPU, so that a whole graph can be run and compared there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np
import torch

from ladder.checks import Expected, accept, optional, shown
from ladder.errors import LaunchError
from ladder.graph.operators import ROW_TARGETS
from ladder.graph.quantize_activations import LEAST_SCALE
from ladder.runtime.arrays import as_numpy, view
from ladder.runtime.build import compile_plan
from ladder.runtime.kernel import EMULATOR
from ladder.runtime.layer import quantisation_plan
from ladder.runtime.packed import Packed, to_torch
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.torch.functions import torch_dtype
from ladder.ttype import Quantized

Tensor = Any


class Given(NamedTuple):
    """What a layer's kernel takes beside its weight, each where the operator has one."""

    x: Tensor
    bias: Tensor | None = None
    x_scale: Tensor | None = None
    residual: Tensor | None = None


#: ``y = run(given, out)``; out is None for a new tensor
RunProduct = Callable[[Given, Any], Tensor]
#: ``codes, scales = run(x, out)``; out is None for new tensors, or the pair
RunQuantisation = Callable[[Tensor, Any], tuple[Tensor, Tensor]]


class Builder(Protocol):
    """Where compiled kernels and packed weights come from."""

    def kernel(self, plan: Any) -> Any:
        """The kernel of a plan, of a plan set, or of a quantisation."""

    def packed(self, name: str, kernel: Any, weight: Quantized, device: Any) -> Packed:
        """The weight of a constant, packed for a kernel on a device of torch."""


class Compiler:
    """Compiles what is asked for, through the cache of this machine, and packs weights on their device.

    Of a plan set, each kernel waits for the first call with its number of rows. A weight is packed once for each device and
    packing: layers that share it may read it in several.
    """

    def __init__(self) -> None:
        self._packed: dict[tuple[str, Packing, str], Packed] = {}

    def kernel(self, plan: Any) -> Any:
        """See :class:`Builder`."""
        return compile_plan(plan, ahead=False) if isinstance(plan, PlanSet) else compile_plan(plan)

    def packed(self, name: str, kernel: Any, weight: Quantized, device: Any) -> Packed:
        """See :class:`Builder`."""
        key = (name, kernel.packing, str(device))
        if key not in self._packed:
            on_host = device.type == "cpu"
            self._packed[key] = (
                kernel.pack(weight) if on_host else packed_on(device, kernel, weight)
            )
        return self._packed[key]


@dataclass(frozen=True)
class ProductCall:
    """A layer that is ready to run.

    Attributes:
        run: see :data:`RunProduct`.
        nbytes: of its weight as it lies there.
    """

    run: RunProduct
    nbytes: int


class Place(Protocol):
    """Makes the calls of one graph."""

    @property
    def device(self) -> Any:
        """Device of the tensors."""

    def product(self, name: str, plan: Plan | PlanSet, weight: Quantized) -> ProductCall:
        """The call of a layer whose weight constant has this name."""

    def quantisation(self, k: int, source: str, target: str) -> RunQuantisation:
        """The call that quantises rows of k numbers."""


@dataclass(frozen=True)
class OnGpu:
    """Kernels of this package on a GPU of torch.

    Attributes:
        device: for example ``torch.device("cuda", 0)``.
        builder: of kernels.
        target: the device that quantisations are scheduled for, as the layers were.
    """

    device: Any
    builder: Builder
    target: Any = "h200"

    def product(self, name: str, plan: Plan | PlanSet, weight: Quantized) -> ProductCall:
        """See :class:`Place`; the weight is packed on the GPU."""
        kernel = self.builder.kernel(plan)
        packed = self.builder.packed(name, kernel, weight, self.device)

        def run(given: Given, out: Any) -> Tensor:
            x, bias, x_scale, residual = given
            return kernel(x, packed, x_scale, bias, out, residual=residual)

        return ProductCall(run, packed.nbytes)

    def quantisation(self, k: int, source: str, target: str) -> RunQuantisation:
        """See :class:`Place`; torch's own operators where no kernel takes the types."""
        plan = quantisation_plan(k, source, target, self.target)
        if plan is None:
            return lambda x, out: into(out, quantize_rows(x, target))
        run: RunQuantisation = self.builder.kernel(plan)
        return run


@dataclass(frozen=True)
class InEmulator:
    """Kernels' instructions on the CPU.

    Attributes:
        builder: of kernels.
        target: as of :class:`OnGpu`.
    """

    builder: Builder
    target: Any = "h200"

    @property
    def device(self) -> Any:
        """The CPU."""
        return torch.device("cpu")

    def product(self, name: str, plan: Plan | PlanSet, weight: Quantized) -> ProductCall:
        """See :class:`Place`."""
        kernel = self.builder.kernel(plan)
        packed = self.builder.packed(name, kernel, weight, self.device)

        def run(given: Given, out: Any) -> Tensor:
            x, bias, x_scale, residual = _arrays(*given)
            y = kernel(x, packed, x_scale, bias, device=EMULATOR, residual=residual)
            return into(out, to_torch(y, self.device))

        return ProductCall(run, packed.nbytes)

    def quantisation(self, k: int, source: str, target: str) -> RunQuantisation:
        """See :class:`Place`."""
        plan = quantisation_plan(k, source, target, self.target)
        if plan is None:
            return lambda x, out: into(out, quantize_rows(x, target))
        kernel = self.builder.kernel(plan)

        def run(x: Tensor, out: Any) -> tuple[Tensor, Tensor]:
            codes, scales = (
                to_torch(one, self.device) for one in kernel(*_arrays(x), device=EMULATOR)
            )
            pair: tuple[Tensor, Tensor] = into(out, (codes, scales))
            return pair

        return run


@dataclass(frozen=True)
class ByPlan:
    """Products by the NumPy meaning of their plans, on the CPU; nothing is compiled."""

    @property
    def device(self) -> Any:
        """The CPU."""
        return torch.device("cpu")

    def product(self, name: str, plan: Plan | PlanSet, weight: Quantized) -> ProductCall:  # noqa: ARG002
        """See :class:`Place`."""

        def run(given: Given, out: Any) -> Tensor:
            x, bias, x_scale, residual = _arrays(*given)
            y = plan.run(x, weight, bias, x_scale, residual)
            return into(out, to_torch(y, self.device))

        return ProductCall(run, weight.nbytes)

    def quantisation(self, k: int, source: str, target: str) -> RunQuantisation:  # noqa: ARG002
        """See :class:`Place`."""
        return lambda x, out: into(out, quantize_rows(x, target))


def quantize_rows(x: Tensor, target: str) -> tuple[Tensor, Tensor]:
    """Codes and scales of rows by torch's operators, by the formula of :class:`~ladder.graph.QuantizeActivations`."""
    largest, top = x.abs().amax(-1).float(), ROW_TARGETS[target]
    # by a tensor: on GPUs torch multiplies by the inverse of a plain number
    scale = (largest / largest.new_full((), top)).clamp(min=float(LEAST_SCALE))
    # exact where x has 16 bits: those and the 24 of a float32 number fit float64
    scaled = x.double() * scale.reciprocal().double()[..., None]
    if target == "int8":
        return scaled.round().clamp(-128, 127).to(torch.int8), scale
    return scaled.float().clamp(-top, top).to(torch_dtype(target)), scale


def plain_rows(pair: tuple[Tensor, Tensor]) -> Tensor:
    """What codes and scales stand for, in float32."""
    codes, scales = pair
    return codes.float() * scales[..., None]


def packed_on(device: Any, kernel: Any, weight: Quantized) -> Packed:
    """A weight packed where its kernel runs: codes travel once, a byte each, and are arranged there."""
    metadata: dict[str, Any] = {}
    for name in ("scales", "zeros"):
        array = getattr(weight, name)
        if array is not None:
            metadata[name] = to_torch(_raw(array), device)
    if weight.global_scale is not None:
        metadata["global_scale"] = float(weight.global_scale)
    found: Packed = kernel.pack_arrays(to_torch(signed(weight.codes), device), **metadata)
    return found


#: dtypes that torch does not have under NumPy's name, or cannot move everywhere: their bits travel
_RAW_BITS = MappingProxyType(
    {np.dtype(ml_dtypes.float8_e8m0fnu): np.uint8, np.dtype(ml_dtypes.float8_e4m3fn): np.uint8}
)


def _raw(array: Any) -> Any:
    wanted = _RAW_BITS.get(array.dtype)
    return array if wanted is None else array.view(wanted)


def signed(codes: Any) -> Any:
    """Codes of 16 bits as integers that torch can move."""
    return codes.view(np.int16) if codes.dtype == np.uint16 else codes


def into(out: Any, result: Any) -> Any:
    """The result itself, or copied to where it was asked for."""
    if out is None:
        return result
    for mine, theirs in zip(
        out if isinstance(out, tuple) else (out,),
        result if isinstance(result, tuple) else (result,),
        strict=True,
    ):
        mine.copy_(theirs)
    return out


def _arrays(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Tensors of the CPU as NumPy's arrays over the same memory."""
    return tuple(None if one is None else as_numpy(view(one)) for one in tensors)


#: where kernels come from
BUILDER: Expected[Builder] = Expected(
    "a builder of kernels",
    lambda value: (
        callable(getattr(value, "kernel", None)) and callable(getattr(value, "packed", None))
    ),
    lambda value: value,
    "model.build().built is one; see ladder.torch.places.Builder",
)


def place_of(name: Any, builder: Builder | None = None, target: Any = "h200") -> Place:
    """A place by name: ``"cuda"`` or ``"cuda:1"``, ``"emulator"``, ``"cpu"`` (by plans).

    Raises:
        LaunchError: there is none of that name, no such GPU, or the builder is none.
    """
    text = str(name)
    known = accept(builder, optional(BUILDER), "builder", at="Model.on", error=LaunchError)
    used = Compiler() if known is None else known
    makers: Mapping[str, Callable[[], Place]] = {
        "cpu": ByPlan,
        EMULATOR: lambda: InEmulator(used, target),
    }
    if text in makers:
        return makers[text]()
    if text.partition(":")[0] == "cuda":
        return OnGpu(_gpu(text), used, target)
    raise LaunchError(
        f"no place is called {shown(name)}", at="Model.on", hint="cuda, cuda:1, emulator, or cpu"
    )


def _gpu(name: str) -> Any:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise LaunchError(
            "torch finds no GPU",
            at=f"Model.on({name!r})",
            hint="model.on('emulator') runs the kernels on the CPU, model.on('cpu') their plans",
        )
    _, numbered, number = name.partition(":")
    if numbered and not (number.isdecimal() and int(number) < count):
        raise LaunchError(
            f"there is no {name}",
            at="Model.on",
            hint=f"the GPUs are cuda:0 to cuda:{count - 1}",
        )
    return torch.device("cuda", int(number) if numbered else torch.cuda.current_device())
