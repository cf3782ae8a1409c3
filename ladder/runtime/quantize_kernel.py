"""A compiled quantisation of activations: call it with an array, save it.

codes, scales = kernel(x)                    # checks the array, then launches on x's device and its current stream
step = kernel.bind(x, out=(codes, scales))   # checks once
step()                                       # only launches
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.checks import Expected, accept, several
from ladder.errors import LaunchError, ShapeError
from ladder.runtime.arguments import (
    Call,
    check_writable,
    check_x,
    choose,
)
from ladder.runtime.arrays import ArrayView, Library, Rows, library_of, rows, view
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.compiled import Compiled
from ladder.runtime.driver import Prepared
from ladder.runtime.emulate import emulate_quantize
from ladder.runtime.kernel import EMULATOR, PLACE_NAME, place_of
from ladder.runtime.operand_checks import Span, check_apart, check_dtype, check_place
from ladder.runtime.variant import Variant

#: codes are written in pieces of so many bytes
PIECE_BYTES = 8

PAIR = several(Expected("an array", lambda _: True, lambda value: value), "a pair of arrays", 2)


class QuantizeKernel(Compiled):
    """The kernel of one :class:`~ladder.graph.QuantizeActivations`.

    Args:
        variants: the one kernel.
        plan: the plan that it was lowered from.
        toolchain: name and version of the CUDA compiler, for the record.
        driver: None for this machine's; looked for at the first launch.
    """

    def __call__(self, x: Any, out: Any = None, device: str | int | None = None) -> Any:
        """Quantise ``x[..., k]``: codes ``[..., k]`` and float32 scales ``[...]``.

        Args:
            x: activations; leading axes are rows. Device arrays are read where they lie, on their library's current
                stream. NumPy arrays are copied to a GPU and the results back.
            out: a pair of arrays to write to, or None for new ones of x's library.
            device: for NumPy arrays, ``"emulator"`` (the kernel's instructions on the CPU) or a GPU (``"cuda:1"``).

        Raises:
            ShapeError: extents do not fit.
            LaunchError: a dtype, device or layout does not fit, or there is no GPU.
            EmulationError: the emulator cannot run the kernel.
        """
        if device is not None:
            device = accept(device, PLACE_NAME, "device", at="QuantizeKernel", error=LaunchError)
        if device == EMULATOR:
            return emulate_quantize(check_quantize(self.variants, x, out))
        if isinstance(x, np.ndarray):
            return self._from_host(x, out, device)
        return self.bind(x, out)()

    def bind(self, x: Any, out: Any = None) -> BoundQuantize:
        """Check a call once, and return it ready to be repeated over the same arrays.

        Raises:
            LaunchError: as in a call; also for arrays on the CPU.
        """
        call = check_quantize(self.variants, x, out)
        if call.x.device != "cuda":
            raise LaunchError(
                f"x is on {call.x.place}, the kernel runs on a GPU",
                at=f"x: {call.x}",
                hint="move x to a GPU; NumPy arrays are copied there by a call",
            )
        return BoundQuantize(self, call, x)

    def _from_host(self, x: Any, out: Any, device: str | int | None) -> Any:
        driver = self.launcher.driver
        ordinal = int(place_of(device, x).partition(":")[2])
        call = check_quantize(self.variants, x, out)
        there = self.bind(DeviceBuffer.of(driver, ordinal, x))()
        for mine, theirs in zip(call.out, there, strict=True):
            mine[...] = theirs.numpy()
        return call.out


class BoundQuantize:
    """A checked call over fixed arrays; calling it launches and returns codes and scales. Belongs to one thread."""

    __slots__ = ("_arguments", "_keep", "_library", "_pdl", "_prepared", "_view", "out", "x")

    def __init__(self, kernel: QuantizeKernel, call: Call, x: Any) -> None:
        self.x = x
        self._keep = call.x.owner  # the launch holds bare addresses: of x, or of its copy
        self._view: ArrayView = call.x
        self._library: Library = library_of(x)
        self._pdl = "pdl" in call.variant.lowered.launch.attributes
        self._arguments = kernel.launcher.arguments(call)
        self._prepared: Prepared | None = None
        if call.m:
            self._prepared = kernel.launcher.fresh(call.number, call.x.ordinal, call.m)
        self.out = call.out

    def __call__(self) -> Any:
        """Launch on the current stream of x's device."""
        if self._prepared is not None:
            self._prepared(self._library.stream(self._view), self._arguments, pdl=self._pdl)
        return self.out


def check_quantize(variants: Sequence[Variant], x: Any, out: Any) -> Call:
    """Check a call: x ``[..., k]``, and out None or a pair of arrays.

    Raises:
        ShapeError: extents do not fit.
        LaunchError: a dtype, device or layout does not fit.
    """
    op: Any = variants[0].plan.op
    x_view = view(x)
    m = check_x(op, x_view)
    number, found = 0, Rows(0, x_view.shape[-1], 1)
    if m:
        number, x, x_view, found = choose(variants, x, x_view, m)
    rows = tuple(x_view.shape[:-1])
    shapes = ((*rows, op.codes.items(op.k)), rows)
    names = (op.out_dtype.name, "float32")
    if out is None:
        library = library_of(x)
        pair = tuple(library.empty(x, s, d) for s, d in zip(shapes, names, strict=True))
    else:
        pair = accept(out, PAIR, "out", at="QuantizeKernel", error=LaunchError)
    views = [view(array) for array in pair]
    for name, of, shape, dtype in zip(("codes", "scales"), views, shapes, names, strict=True):
        _check_out(name, of, (shape, dtype), x_view)
    check_apart("codes", Span.whole(views[0]), {"scales": Span.whole(views[1])})
    values = {
        "x": x_view.pointer,
        "y": views[0].pointer,
        "x_scale": views[1].pointer,
        "m": m,
        "x_stride_m": found.stride_m,
        "x_stride_k": found.stride_k,
    }
    return Call(number, variants[number], x_view, m, values, pair)


def _check_out(
    name: str, found: ArrayView, wanted: tuple[tuple[int, ...], str], x: ArrayView
) -> None:
    shape, dtype = wanted
    check_dtype(name, found, dtype)
    if tuple(found.shape) != shape:
        raise ShapeError(
            f"{name} are {list(found.shape)}, the result {list(shape)}",
            at="out",
            hint="leave out=None, and arrays are made",
        )
    check_writable(found.owner)
    check_place(name, found, x)
    if not found.contiguous or (name == "codes" and found.pointer % PIECE_BYTES):
        raise LaunchError(
            f"{name} have strides {list(found.strides)} and lie at {found.pointer:#x}",
            at=f"out: {found}",
            hint=f"results are contiguous, codes at a multiple of {PIECE_BYTES} bytes",
        )
    check_apart(name, Span.whole(found), {"x": Span.of(x, rows(x))})


__all__ = ["BoundQuantize", "QuantizeKernel", "check_quantize"]
