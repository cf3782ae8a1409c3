"""A call of a kernel by the emulator: the same checks and arguments as on a GPU, the kernel's listing on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ladder.codegen.kernel import LoweredKernel, box_rows
from ladder.errors import EmulationError
from ladder.runtime.arguments import Call, Operands, check_call
from ladder.runtime.arrays import as_numpy, view
from ladder.runtime.operand_checks import OUT_PIECE
from ladder.runtime.packed import Packed, PackingLike
from ladder.runtime.variant import Variant

#: byte that outputs without a NaN are filled with before a kernel writes them
POISON = 0x55


def emulate(variants: Sequence[Variant], key: str, operands: Operands) -> Any:
    """Run a call on the CPU; arguments as :class:`ladder.runtime.kernel.Kernel` takes them, NumPy arrays only.

    The output is filled with NaN first, so that an element which the kernel does not write shows; not where it is the residual
    as well, which the kernel then reads from the memory that it writes to.

    Raises:
        EmulationError: the kernel has no listing, the emulator is not there, or it refuses the kernel.
    """
    x, packed = operands.x, operands.packed
    if not isinstance(x, np.ndarray):
        raise EmulationError(
            f"the emulator takes NumPy arrays, x is a {type(x).__qualname__}",
            at="x",
            hint="numpy.asarray(x), or x.cpu().numpy() for a tensor",
        )
    host = packed.to("cpu") if isinstance(packed, Packed) else packed
    call = check_call(variants, key, operands._replace(packed=host))
    if not call.m:
        return call.out
    lowered = call.variant.lowered
    if lowered.listing is None:
        raise EmulationError(
            f"{lowered.name} holds no instruction listing",
            at="device='emulator'",
            hint="compile the plan again",
        )
    run = _emulator()
    if call.values.get("residual") != call.values["y"]:
        poisoned(call.out)
    y = np.array(call.out, order="C").reshape(-1)
    run(
        lowered.listing,
        _arguments(call, operands._replace(packed=host), y),
        lowered.launch.grid_for(call.m),
        lowered.launch.block,
        cluster=lowered.launch.cluster or (1, 1, 1),
    )
    call.out[...] = y.reshape(call.out.shape)
    return call.out


def poisoned(out: NDArray[Any]) -> NDArray[Any]:
    """An output, filled with what no kernel leaves there unseen: NaN, or a byte where its type may have none."""
    if out.dtype.itemsize == 1:
        out.view(np.uint8)[...] = POISON
    else:
        out[...] = np.nan
    return out


def emulate_quantize(call: Call) -> Any:
    """Run a checked call of a kernel that quantises activations on the CPU; results are poisoned first.

    Raises:
        EmulationError: as :func:`emulate`.
    """
    if call.x.device != "cpu" or not isinstance(call.x.owner, np.ndarray):
        raise EmulationError(
            f"the emulator takes NumPy arrays, x is on {call.x.place}",
            at="x",
            hint="numpy.asarray(x), or x.cpu().numpy() for a tensor",
        )
    if not call.m:
        return call.out
    lowered = call.variant.lowered
    if lowered.listing is None:
        raise EmulationError(
            f"{lowered.name} holds no instruction listing",
            at="device='emulator'",
            hint="compile the plan again",
        )
    codes, scales = call.out
    raw = codes.view(np.uint8)
    raw[...], scales[...] = POISON, np.nan
    given = {**call.values, "x": _flat(call), "y": raw.reshape(-1), "x_scale": scales.reshape(-1)}
    _emulator()(
        lowered.listing,
        {p.name: given[p.role] for p in lowered.parameters},
        lowered.launch.grid_for(call.m),
        lowered.launch.block,
    )
    return call.out


def emulate_dequantize(
    lowered: LoweredKernel, packed: Packed, target: PackingLike
) -> dict[str, NDArray[Any]]:
    """Run a kernel that decodes a weight on the CPU: packed codes -> arrays of the packing ``target``, poisoned first.

    Raises:
        EmulationError: as :func:`emulate`.
    """
    if lowered.listing is None:
        raise EmulationError(
            f"{lowered.name} holds no instruction listing",
            at="device='emulator'",
            hint="compile the plan again",
        )
    shape, dtype = target.shapes()["weight"]
    words = np.full(shape, POISON * 0x01010101, dtype)
    host = packed.to("cpu").numpy()
    given = {name: array.reshape(-1) for name, array in host.items()} | {"y": words.reshape(-1)}
    _emulator()(
        lowered.listing,
        {p.name: given[p.role] for p in lowered.parameters},
        lowered.launch.grid_for(0),
        lowered.launch.block,
    )
    return {"weight": words}


def _arguments(call: Call, operands: Operands, y: NDArray[Any]) -> dict[str, Any]:
    """Return name -> flat array or number, in the order of the kernel's signature."""
    n = y.size // call.m
    values = {
        **call.values,
        **dict.fromkeys(("y_stride_m", "residual_stride_m"), n),
        **dict.fromkeys(("y_pieces", "residual_pieces"), int(n % OUT_PIECE == 0)),
    }
    given = {name: array.reshape(-1) for name, array in operands.packed.numpy().items()}
    given |= {"x": _flat(call), "y": y}
    for role in ("bias", "x_scale"):
        if (extra := getattr(operands, role)) is not None:
            given[role] = as_numpy(view(extra)).reshape(-1)
    if operands.residual is not None:
        in_place = call.values["residual"] == call.values["y"]
        given["residual"] = y if in_place else as_numpy(view(operands.residual)).reshape(-1)
    made: dict[str, Any] = {}
    for p in call.variant.lowered.parameters:
        if p.kind == "tensor map":
            made[p.name] = _tensor_map(call, given["x"], p.box)
        else:
            made[p.name] = given[p.role] if p.kind == "buffer" else values[p.role]
    return made


def _tensor_map(call: Call, x: NDArray[Any], box: tuple[int, ...]) -> Any:
    """Describe x for tensor copies, as :meth:`ladder.runtime.driver.Driver.tensor_map` does."""
    from ladder.emulator import TensorMap

    rows, columns = box
    k = call.x.shape[-1]
    stride = call.values["x_stride_m"] if call.m > 1 else k
    extents = (columns, box_rows(rows, call.m))
    return TensorMap(x, (k, call.m), (stride * x.itemsize,), extents, "128B")


def _flat(call: Call) -> NDArray[Any]:
    """Return the memory that x spans, its gaps included, as the kernel addresses it."""
    x, values = as_numpy(call.x), call.values
    k = x.shape[-1]
    last = (call.m - 1) * values["x_stride_m"] + (k - 1) * values["x_stride_k"]
    if values["x_stride_m"] < 0 or values["x_stride_k"] < 0:
        raise EmulationError(
            f"x has strides {call.x.strides}", at="x", hint="numpy.ascontiguousarray(x)"
        )
    raw = x.view(f"u{x.itemsize}")  # NumPy strides no dtype of ml_dtypes
    return as_strided(raw, (last + 1,), (x.itemsize,), writeable=False).view(x.dtype)


def _emulator() -> Any:
    emulator = importlib.import_module("ladder.emulator")
    run = getattr(emulator, "run", None)
    if run is None:
        raise EmulationError(
            "this version has no emulator",
            at="device='emulator'",
            hint="plan.run(x, q) computes the plan in NumPy",
        )
    return run
