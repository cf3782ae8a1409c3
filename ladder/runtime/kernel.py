"""A compiled operator: call it with arrays, pack weights for it, save it.

packed = kernel.pack(q).to(x.device)
y = kernel(x, packed)                    # checks every array, then launches on x's device and its current stream
step = kernel.bind(x, packed, out=y)     # checks once
step()                                   # only launches: no check, no allocation, no synchronisation
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ladder.checks import Expected, accept, instance, integer, is_integer
from ladder.errors import LaunchError, PackingError
from ladder.runtime.argument_block import Arguments
from ladder.runtime.arguments import Call, Operands, check_call, check_writable
from ladder.runtime.arrays import ArrayView, Library, library_of, view
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.compiled import Compiled
from ladder.runtime.driver import Driver, Prepared
from ladder.runtime.launcher import Ready
from ladder.runtime.packed import Packed, PackingLike, packing_key
from ladder.runtime.variant import PlanLike, Variant

EMULATOR = "emulator"
PACKED = instance(Packed, "kernel.pack(q) makes it")
#: a place by name or number; torch.device prints as its name
PLACE_NAME: Expected[str | int] = Expected(
    "the name or number of a device",
    lambda value: (
        isinstance(value, str)
        or integer(0).fits(value)
        or type(value).__module__.partition(".")[0] == "torch"
    ),
    lambda value: int(value) if is_integer(value) else str(value),
    "cuda, cuda:1, 1 or emulator",
)
#: arguments of a kernel that adds a residual
RESIDUAL = {"residual", "residual_stride_m", "residual_pieces"}
#: fields of an ArrayView that say where and how an array lies; its owner comes after them
PLACE = 6


class Kernel(Compiled):
    """The kernels of one operator over one packing, each for its range of rows.

    Args:
        variants: in the order in which they are tried.
        plan: the plan, or the set of plans, that they were lowered from.
        packing: how weights must be packed.
        toolchain: name and version of the CUDA compiler, for the record.
        driver: None for this machine's; looked for at the first launch.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        plan: Any,
        packing: PackingLike,
        *,
        toolchain: str = "none",
        driver: Driver | None = None,
    ) -> None:
        super().__init__(variants, plan, packing, toolchain=toolchain, driver=driver)
        self.packing = packing
        self._key = packing_key(packing)
        self._check_roles()

    # --- weights -----------------------------------------------------------------------------------------------------

    def pack(self, weights: Any) -> Packed:
        """Pack quantised weights ``[n, k]`` on the CPU; ``.to(device)`` moves them.

        Raises:
            PackingError: the weights have another type or shape than the packing.
        """
        return Packed(self.packing, self.packing.pack(weights))

    def unpack(self, packed: Packed) -> Any:
        """Invert :meth:`pack`, wherever the arrays lie.

        Raises:
            PackingError: what was given is not packed.
        """
        accept(packed, PACKED, "packed", at="Kernel.unpack", error=PackingError)
        return self.packing.unpack(packed.numpy())

    def pack_arrays(self, codes: Any, **metadata: Any) -> Packed:
        """Pack codes ``[n, k]`` of torch, CuPy or another library where they lie.

        Args:
            codes: uint8, uint16 or int16 for a dense weight, on any device.
            metadata: ``scales``, ``zeros`` and ``global_scale`` as the weight type has them, beside the codes.

        Raises:
            PackingError: an array has another shape or type than the packing takes.
        """
        return Packed(self.packing, self.packing.pack_arrays(codes, **metadata))

    def unpack_arrays(self, packed: Packed) -> dict[str, Any]:
        """Invert :meth:`pack_arrays`: the parts by name, where the packed arrays lie.

        Raises:
            PackingError: what was given is not packed.
        """
        accept(packed, PACKED, "packed", at="Kernel.unpack_arrays", error=PackingError)
        return dict(self.packing.unpack_arrays(packed))

    # --- calls -------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        x: Any,
        packed: Packed,
        x_scale: Any = None,
        bias: Any = None,
        out: Any = None,
        device: str | int | None = None,
        residual: Any = None,
    ) -> Any:
        """Compute ``y[..., n] = x_scale * (x[..., k] @ w.T) (+ bias)``, and what the operator's epilogue makes of it.

        Args:
            x: activations; leading axes are rows. Device arrays are read where they lie, on their library's current
                stream. NumPy arrays are copied to a GPU and the result back.
            packed: the weight, on x's device (for NumPy: anywhere).
            x_scale: float32 ``[...]``, one number to each row of x, where the operator has an activation scale; else None.
            bias: ``[n]``, or None.
            out: ``[..., out_n]`` to write to, or None for a new array of x's library. The residual itself may be given.
            device: for NumPy arrays, ``"emulator"`` (the kernel's instructions on the CPU) or a GPU (``"cuda:1"``).
            residual: ``[..., out_n]`` of the out type where the epilogue adds one, else None.

        Raises:
            ShapeError: extents do not fit.
            PackingError: the weight was packed for another kernel.
            LaunchError: a dtype, device or layout does not fit, or there is no GPU.
            EmulationError: the emulator cannot run the kernel.
        """
        operands = Operands(x, packed, bias, out, x_scale, residual)
        if device is not None:
            device = accept(device, PLACE_NAME, "device", at="Kernel.__call__", error=LaunchError)
        if device == EMULATOR:
            from ladder.runtime.emulate import emulate

            return emulate(self.variants, self._key, operands)
        if isinstance(x, np.ndarray):
            return self._from_host(operands, device)
        return self._on_device(operands, device)

    def _on_device(self, operands: Operands, device: str | int | None) -> Any:
        """Launch on the arrays' device; a call over arrays that lie as before is not checked again."""
        x, packed, bias, out, x_scale, residual = operands
        library = library_of(x)
        x_view = library.view(x)
        if out is None:
            op = self.variants[0].plan.op
            out = library.empty(x, (*x_view.shape[:-1], op.out_n), op.stored.dtype.name)
        beside = tuple(None if a is None else view(a)[:PLACE] for a in (bias, x_scale, residual))
        place = (id(packed), device, beside, view(out)[:PLACE], x_view[:PLACE])
        known = self.launcher.known()
        ready = known.get(place)
        if ready is None or ready.packed() is not packed:
            call = check_call(self.variants, self._key, operands._replace(out=out))
            self._check_device(call.x, device)
            if not call.m:
                return out
            ready = self._ready(call, packed)
            if call.x.pointer == x_view.pointer:
                known[place] = ready
        ready.prepared(library.stream(x_view), ready.arguments, pdl=ready.pdl and not packed.fresh)
        packed.fresh = False
        return out

    def _ready(self, call: Call, packed: Packed) -> Ready:
        return Ready(
            self.launcher.prepared(call.number, call.x.ordinal, call.m),
            self.launcher.arguments(call),
            "pdl" in call.variant.lowered.launch.attributes,
            weakref.ref(packed),
        )

    def bind(
        self,
        x: Any,
        packed: Packed,
        x_scale: Any = None,
        bias: Any = None,
        out: Any = None,
        residual: Any = None,
        *,
        pdl: bool = True,
    ) -> Bound:
        """Check a call once, and return it ready to be repeated over the same arrays.

        Args:
            x: device activations ``[..., k]``; the kernel must be able to read them as they lie.
            packed: the weight, on x's device.
            x_scale: float32 ``[...]``, or None.
            bias: ``[n]``, or None.
            out: ``[..., out_n]`` to write to, or None for a new array, which every call overwrites.
            residual: ``[..., out_n]``, or None.
            pdl: whether a kernel made for programmatic dependent launch uses it.

        Raises:
            LaunchError: as in a call; also for arrays on the CPU, and where x would have to be copied.
        """
        operands = Operands(x, packed, bias, out, x_scale, residual)
        call = check_call(self.variants, self._key, operands)
        self._check_device(call.x, None)
        if call.m and call.x.pointer != view(x).pointer:
            raise LaunchError(
                "x would be copied, later values would not be seen",
                at=f"bind: {view(x)}",
                hint="make x contiguous and bind that",
            )
        return Bound(self, call, operands, pdl=pdl)

    def _from_host(self, operands: Operands, device: str | int | None) -> Any:
        x, packed, bias, out, x_scale, residual = operands
        place = place_of(device, packed)
        driver = self.launcher.driver
        ordinal = int(place.partition(":")[2])

        def there(array: Any) -> Any:
            is_host = isinstance(array, np.ndarray)
            return DeviceBuffer.of(driver, ordinal, array) if is_host else array

        moved = packed.to(place, driver=driver) if isinstance(packed, Packed) else packed
        # all stay referenced until the result is back: the launch holds bare addresses
        there_x = there(x)
        there_scale, there_bias, added = (
            None if a is None else there(a) for a in (x_scale, bias, residual)
        )
        y = self(there_x, moved, there_scale, there_bias, residual=added)
        if out is None:
            return y.numpy()
        _check_host_out(out, y)
        out[...] = y.numpy()
        return out

    def _check_device(self, x: ArrayView, device: str | int | None) -> None:
        if x.device != "cuda":
            raise LaunchError(
                f"x is on {x.place}, the kernel runs on a GPU",
                at=f"x: {x}",
                hint="move x to the GPU of the weight; NumPy arrays are copied there",
            )
        if device is not None and _named(device) != x.place:
            raise LaunchError(
                f"x is on {x.place}, device={device!r} was asked for",
                at="device",
                hint="leave device out: the kernel runs where x lies",
            )

    def _check_roles(self) -> None:
        """Refuse kernels with arguments that no call fills."""
        packed = set(self.packing.shapes())
        for variant in self.variants:
            if not variant.is_compiled:
                continue  # by this package, from a plan of the same operator
            plan: PlanLike = variant.plan
            given = packed | {
                "x",
                "x_map",
                "y",
                "y_pieces",
                "m",
                "x_stride_m",
                "x_stride_k",
                "y_stride_m",
            }
            given |= {"bias"} if plan.op.bias else set()
            given |= {"x_scale"} if plan.op.activation_scale else set()
            given |= RESIDUAL if plan.op.residual else set()
            roles = {parameter.role for parameter in variant.lowered.parameters}
            if not roles <= given or not {"weight", "y"} <= roles or not roles & {"x", "x_map"}:
                raise LaunchError(
                    f"the kernel's arguments are {sorted(roles)}, a call gives {sorted(given)}",
                    at=variant.lowered.name,
                    hint="plan, packing and kernel are not of one operator",
                )


class Bound:
    """A checked call over fixed arrays; calling it launches and returns the output. Belongs to one thread."""

    __slots__ = (
        "_arguments",
        "_keep",
        "_library",
        "_packed",
        "_pdl",
        "_prepared",
        "_view",
        "out",
    )

    def __init__(self, kernel: Kernel, call: Call, keep: Operands, *, pdl: bool) -> None:
        x, self._packed = keep.x, keep.packed
        self._keep = keep  # the launch holds bare addresses
        self._view: ArrayView = call.x
        self._library: Library = library_of(x)
        self._pdl = pdl and "pdl" in call.variant.lowered.launch.attributes
        self._prepared: Prepared | None = None
        self._arguments: Arguments = kernel.launcher.arguments(call)
        if call.m:
            self._prepared = kernel.launcher.fresh(call.number, call.x.ordinal, call.m)
        self.out = call.out

    def __call__(self) -> Any:
        """Launch on the current stream of x's device."""
        if self._prepared is not None:
            packed = self._packed
            stream = self._library.stream(self._view)
            self._prepared(stream, self._arguments, pdl=self._pdl and not packed.fresh)
            packed.fresh = False
        return self.out


def _named(device: str | int) -> str:
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    return "cuda:0" if name == "cuda" else name


def place_of(device: str | int | None, packed: Any) -> str:
    """Return the GPU that NumPy arrays go to: the one asked for, the weight's, or the first."""
    if device is not None:
        place = _named(device)
    else:
        place = getattr(packed, "place", "cpu")
        place = "cuda:0" if place == "cpu" else place
    name, _, number = place.partition(":")
    if name != "cuda" or not number.isdecimal():
        raise LaunchError(
            f"no device is called {device!r}", at="device", hint="cuda, cuda:1, 1 or emulator"
        )
    return place


def _check_host_out(out: Any, y: Any) -> None:
    fits = isinstance(out, np.ndarray) and out.shape == y.shape and out.dtype == y.dtype
    if not fits:
        found = view(out)
        raise LaunchError(
            f"out is {found}, the result {y.dtype.name}{list(y.shape)} on the CPU",
            at="out",
            hint="for a NumPy x, out is a NumPy array of the result's shape and type",
        )
    check_writable(out)


__all__ = ["Bound", "Kernel"]
