"""Declare a low-bit number format, get a GPU matmul kernel that was proven right.

    import ladder

    wt = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    op = ladder.matmul(m=1, n=8192, k=8192, activation="float16", weight=wt)
    plan = ladder.schedule(op, device="h200")
    kernel = ladder.compile(plan)
    y = kernel(x, kernel.pack(ladder.quantize(weights, wt)))

Names are loaded when they are first used: importing the package loads neither TVM nor CUDA, and hardly NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ladder.errors import LadderError
    from ladder.graph import (
        Dequantize,
        MatMul,
        QuantizeActivations,
        dequantize,
        matmul,
        quantize_activations,
    )
    from ladder.graph.graph import Graph
    from ladder.graph.importers.onnx import from_onnx
    from ladder.graph.importers.torch_export import from_torch
    from ladder.graph.rules import Rule
    from ladder.graph.verify import verify
    from ladder.model.model import Model, compile_graph
    from ladder.registry import devices, types
    from ladder.runtime.build import compile_plan as compile  # noqa: A004 - the name that users know
    from ladder.runtime.choices import schedule
    from ladder.runtime.dequantize_kernel import DequantizeKernel
    from ladder.runtime.kernel import Kernel
    from ladder.runtime.load import load
    from ladder.runtime.packed import Packed
    from ladder.runtime.quantize_kernel import QuantizeKernel
    from ladder.runtime.tuning.database import tuned
    from ladder.scheduler.dequantize_plan import DequantizePlan
    from ladder.scheduler.packing import Packing
    from ladder.scheduler.plan import Plan
    from ladder.scheduler.planset import PlanSet
    from ladder.scheduler.quantize_plan import QuantizePlan
    from ladder.ttile import Device, load_device
    from ladder.ttype import ComputeType, GroupedType, Quantized, TType, losslessness, quantize

__all__ = [
    "ComputeType",
    "Dequantize",
    "DequantizeKernel",
    "DequantizePlan",
    "Device",
    "Graph",
    "GroupedType",
    "Kernel",
    "LadderError",
    "MatMul",
    "Model",
    "Packed",
    "Packing",
    "Plan",
    "PlanSet",
    "QuantizeActivations",
    "QuantizeKernel",
    "QuantizePlan",
    "Quantized",
    "Rule",
    "TType",
    "compile",
    "compile_graph",
    "dequantize",
    "devices",
    "from_onnx",
    "from_torch",
    "load",
    "load_device",
    "losslessness",
    "matmul",
    "quantize",
    "quantize_activations",
    "schedule",
    "tuned",
    "types",
    "verify",
]

#: public name -> (module, name in it)
_HOMES = {
    "ComputeType": ("ladder.ttype", "ComputeType"),
    "Dequantize": ("ladder.graph", "Dequantize"),
    "DequantizeKernel": ("ladder.runtime.dequantize_kernel", "DequantizeKernel"),
    "DequantizePlan": ("ladder.scheduler.dequantize_plan", "DequantizePlan"),
    "Device": ("ladder.ttile", "Device"),
    "Graph": ("ladder.graph.graph", "Graph"),
    "GroupedType": ("ladder.ttype", "GroupedType"),
    "Kernel": ("ladder.runtime.kernel", "Kernel"),
    "LadderError": ("ladder.errors", "LadderError"),
    "MatMul": ("ladder.graph", "MatMul"),
    "Model": ("ladder.model.model", "Model"),
    "Packed": ("ladder.runtime.packed", "Packed"),
    "Packing": ("ladder.scheduler.packing", "Packing"),
    "Plan": ("ladder.scheduler.plan", "Plan"),
    "PlanSet": ("ladder.scheduler.planset", "PlanSet"),
    "QuantizeActivations": ("ladder.graph", "QuantizeActivations"),
    "QuantizeKernel": ("ladder.runtime.quantize_kernel", "QuantizeKernel"),
    "QuantizePlan": ("ladder.scheduler.quantize_plan", "QuantizePlan"),
    "Quantized": ("ladder.ttype", "Quantized"),
    "Rule": ("ladder.graph.rules", "Rule"),
    "TType": ("ladder.ttype", "TType"),
    "compile": ("ladder.runtime.build", "compile_plan"),
    "compile_graph": ("ladder.model.model", "compile_graph"),
    "dequantize": ("ladder.graph", "dequantize"),
    "devices": ("ladder.registry", "devices"),
    "from_onnx": ("ladder.graph.importers.onnx", "from_onnx"),
    "from_torch": ("ladder.graph.importers.torch_export", "from_torch"),
    "load": ("ladder.runtime.load", "load"),
    "load_device": ("ladder.ttile", "load_device"),
    "losslessness": ("ladder.ttype", "losslessness"),
    "matmul": ("ladder.graph", "matmul"),
    "quantize": ("ladder.ttype", "quantize"),
    "quantize_activations": ("ladder.graph", "quantize_activations"),
    "schedule": ("ladder.runtime.choices", "schedule"),
    "tuned": ("ladder.runtime.tuning.database", "tuned"),
    "types": ("ladder.registry", "types"),
    "verify": ("ladder.graph.verify", "verify"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ladder.runtime.versions import package_version

        return package_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'ladder' has no attribute {name!r}")
    module, inner = _HOMES[name]
    value = getattr(importlib.import_module(module), inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
