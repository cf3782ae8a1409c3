"""A compiled decoding of a weight into memory: the first of the two kernels of convert placed in global.

decode = ladder.compile(ladder.schedule(ladder.dequantize(n, k, weight=wt)))
dense = decode(decode.pack(q))               # packed codes -> packed numbers, on the device of the codes
y = kernel(x, dense)                         # kernel: of the matmul with weight="float16"
step = decode.bind(packed, out=dense)        # checks once; step() only launches
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ladder.checks import accept, instance, optional
from ladder.errors import LaunchError, PackingError
from ladder.runtime.arguments import Call
from ladder.runtime.arrays import Library, library_of
from ladder.runtime.compiled import Compiled
from ladder.runtime.driver import Driver, Prepared
from ladder.runtime.emulate import emulate_dequantize
from ladder.runtime.kernel import EMULATOR, PLACE_NAME, place_of
from ladder.runtime.operand_checks import Span, check_apart
from ladder.runtime.packed import Packed, packing_key
from ladder.runtime.variant import Variant

PACKED = instance(Packed, "kernel.pack(q) of a matmul with that weight makes one")


class DequantizeKernel(Compiled):
    """The kernel of one :class:`~ladder.graph.Dequantize`.

    Args:
        variants: the one kernel.
        plan: the plan that it was lowered from.
        toolchain: name and version of the CUDA compiler, for the record.
        driver: None for this machine's; looked for at the first launch.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        plan: Any,
        *,
        toolchain: str = "none",
        driver: Driver | None = None,
    ) -> None:
        super().__init__(variants, plan, toolchain=toolchain, driver=driver)
        self._key = packing_key(plan.packing)
        self._target_key = packing_key(plan.target)

    def pack(self, weights: Any) -> Packed:
        """Pack a quantised weight ``[n, k]`` as this kernel reads it; a matmul with that weight reads the same bytes.

        Raises:
            PackingError: the weights are not those of the operator.
        """
        return Packed(self.plan.packing, self.plan.packing.pack(weights))

    def __call__(
        self, packed: Packed, out: Packed | None = None, device: str | int | None = None
    ) -> Packed:
        """Decode a packed weight: the same weight, packed for products without conversion.

        Args:
            packed: the codes. Device arrays are read where they lie, on their library's current stream. Arrays on the CPU
                are copied to a GPU and the result back.
            out: the dense weight to write to, or None for a new one of the codes' library.
            device: for arrays on the CPU, ``"emulator"`` (the kernel's instructions on the CPU) or a GPU (``"cuda:1"``).

        Raises:
            PackingError: the weight was packed for another kernel.
            LaunchError: ``out`` lies elsewhere, or there is no GPU.
            EmulationError: the emulator cannot run the kernel.
        """
        at = "DequantizeKernel"
        if device is not None:
            device = accept(device, PLACE_NAME, "device", at=at, error=LaunchError)
        self._check(packed, self._key, "packed")
        if device == EMULATOR:
            arrays = emulate_dequantize(self.variants[0].lowered, packed, self.plan.target)
            return _into(out, Packed(self.plan.target, arrays))
        if packed.place == "cpu":
            driver = self.launcher.driver
            there = packed.to(place_of(device, packed), driver=driver)
            return _into(out, self.bind(there)().to("cpu"))
        return self.bind(packed, out)()

    def bind(self, packed: Packed, out: Packed | None = None) -> BoundDequantize:
        """Check a call once, and return it ready to be repeated over the same arrays.

        Raises:
            PackingError: a weight was packed for another kernel.
            LaunchError: arrays lie on the CPU, or not on one device.
        """
        self._check(packed, self._key, "packed")
        if packed.place == "cpu":
            raise LaunchError(
                "the weight is on the CPU, the kernel runs on a GPU",
                at="DequantizeKernel.bind",
                hint='packed.to("cuda")',
            )
        if out is None:
            like, shape = packed["weight"], self.plan.target.shapes()["weight"][0]
            dtype = packed.views["weight"].dtype  # words of the library's own kind
            words = library_of(like).empty(like, shape, dtype)
            out = Packed(self.plan.target, {"weight": words})
        self._check(out, self._target_key, "out")
        if out.place != packed.place:
            raise LaunchError(
                f"the codes are on {packed.place}, out is on {out.place}",
                at="DequantizeKernel.bind",
                hint="move one of them, or leave out=None",
            )
        codes = {name: Span.whole(one) for name, one in packed.views.items()}
        check_apart("out", Span.whole(out.views["weight"]), codes)
        return BoundDequantize(self, packed, out)

    def _check(self, weight: object, key: str, name: str) -> None:
        found = accept(weight, PACKED, name, at="DequantizeKernel", error=PackingError)
        if found.key != key:
            raise PackingError(
                f"{name} is of another packing than the kernel's",
                at=f"{name}: {found}",
                hint="pack by plan.packing; out is packed by plan.target",
            )


class BoundDequantize:
    """A checked call over fixed arrays; calling it launches and returns the dense weight. Belongs to one thread.

    The dense weight counts as fresh after every call: a product that follows must not fetch it ahead.
    """

    __slots__ = ("_arguments", "_library", "_prepared", "_view", "out", "packed")

    def __init__(self, kernel: DequantizeKernel, packed: Packed, out: Packed) -> None:
        self.packed, self.out = packed, out
        self._view = packed.views["weight"]
        self._library: Library = library_of(packed["weight"])
        values = {**packed.pointers, "y": out.pointers["weight"]}
        call = Call(0, kernel.variants[0], self._view, 1, values, out)
        self._arguments = kernel.launcher.arguments(call)
        self._prepared: Prepared = kernel.launcher.fresh(0, self._view.ordinal, 1)

    def __call__(self) -> Packed:
        """Launch on the current stream of the weight's device."""
        self._prepared(self._library.stream(self._view), self._arguments, pdl=False)
        self.out.fresh = True
        return self.out


OUT = optional(PACKED)


def _into(out: Packed | None, found: Packed) -> Packed:
    """A result on the CPU: packed weights there are not written to."""
    if accept(out, OUT, "out", at="DequantizeKernel", error=PackingError) is not None:
        raise LaunchError(
            f"out lies on {cast('Packed', out).place}, the codes on the CPU",
            at="DequantizeKernel",
            hint="leave out=None: packed weights on the CPU are not written to",
        )
    return found


__all__ = ["BoundDequantize", "DequantizeKernel"]
