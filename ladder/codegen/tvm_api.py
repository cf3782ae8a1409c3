"""The one module that imports TVM: the pinned version, its builder, and the way from a PrimFunc to CUDA text.

Facts about tirx that the rest of the package need not know stand here: its names moved between releases, the order of
kernel parameters is not the PrimFunc's, and launch extents must be read from the lowered device function.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from typing import Any

from ladder.codegen.array_operands import pass_arrays
from ladder.errors import LoweringError

TVM_VERSION = "0.27.0.post1"

try:
    import tvm
    from tvm import tirx
    from tvm.backend.cuda.ptx import TABLE, PTXNamespace, register_table
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.build import split_host_device_mods
    from tvm.tirx.compilation_pipeline import finalize_device_passes_tirx, get_tir_pipeline
    from tvm.tirx.script import builder as T
except ImportError as error:  # the extra is missing, or a library of it does not load
    raise LoweringError(
        f"lowering needs apache-tvm {TVM_VERSION}, which cannot be imported ({error})",
        at="ladder.compile",
        hint="pip install 'ladder[compile]'; saved artifacts load and run without it",
    ) from error

__all__ = [
    "PTX",
    "PTX_TABLE",
    "TVM_VERSION",
    "DeviceFunction",
    "IRBuilder",
    "T",
    "lower_to_cuda",
    "tirx",
    "tvm",
]


def _wide_integer_products() -> dict[str, Any]:
    """Integer ``wgmma`` of 240 and 256 columns, which TVM's table leaves out (PTX ISA, wgmma.mma_async, .s8 and .u8)."""
    entry = TABLE["wgmma_int_rs"]
    slots = tuple(
        replace(slot, choices=("m64n240k32", "m64n256k32")) if slot.name == "shape" else slot
        for slot in entry.slots
    )
    return {"wgmma_int_rs_wide": replace(entry, name="wgmma_int_rs_wide", slots=slots)}


_ADDED = _wide_integer_products()
register_table(_ADDED)
#: TVM's table of PTX instructions with what is added here, and the namespace that spells them: ``PTX["mma.sync..."]``
PTX_TABLE: dict[str, Any] = {**TABLE, **_ADDED}
PTX = PTXNamespace(PTX_TABLE)


def installed_version() -> str:
    """Version of the installed TVM; part of every cache key."""
    return importlib.metadata.version("apache-tvm")


@dataclass(frozen=True)
class DeviceFunction:
    """A lowered kernel before it becomes an artifact.

    Attributes:
        name: symbol of the kernel.
        source: CUDA text.
        parameters: names of the kernel's parameters in their final order.
        function: the device PrimFunc that the CUDA printer got.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    function: Any


def lower_to_cuda(function: Any, arch: str) -> DeviceFunction:
    """Run the tirx pipeline on one PrimFunc and print its device half as CUDA.

    Raises:
        LoweringError: the installed TVM is another release than the pinned one.
    """
    if installed_version() != TVM_VERSION:
        raise LoweringError(
            f"TVM {installed_version()} is installed, the lowering was built for {TVM_VERSION}",
            at="ladder.compile",
            hint="pip install 'ladder[compile]'",
        )
    target = tvm.target.Target({"kind": "cuda", "arch": arch}).with_host("llvm")
    with target:
        module = tirx.transform.BindTarget(target)(tvm.IRModule({"main": function}))
        module = get_tir_pipeline("tirx")[0](module)
        _, device_modules = split_host_device_mods(module)
        ((device_target, device_module),) = device_modules.items()
        device_module = finalize_device_passes_tirx()(device_module)
    ((_, device_function),) = device_module.functions.items()
    build = tvm.get_global_func("target.build.cuda")
    return DeviceFunction(
        name=str(device_function.attrs["global_symbol"]),
        source=pass_arrays(str(build(device_module, device_target).inspect_source())),
        parameters=tuple(p.name for p in device_function.params),
        function=device_function,
    )
