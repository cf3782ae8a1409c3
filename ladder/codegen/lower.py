"""Lowering: a plan becomes a kernel. The plan decides, this module obeys: equal plans give equal source."""

from __future__ import annotations

import hashlib
import re

from ladder.codegen.arrange import build
from ladder.codegen.context import arguments_of
from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.listing import listing
from ladder.codegen.stages.pipeline import box_k
from ladder.codegen.tvm_api import DeviceFunction, lower_to_cuda
from ladder.errors import LoweringError
from ladder.scheduler.plan import Plan
from ladder.scheduler.residency import grid_tiles
from ladder.scheduler.verify import verify


def kernel_name(plan: Plan) -> str:
    """A readable, unique symbol: what is computed, and a hash of the whole plan."""
    element = re.sub(r"\W", "_", plan.op.element.name)
    digest = hashlib.sha256(plan.to_json().encode()).hexdigest()[:12]
    return f"ladder_{plan.family}_{plan.op.activation.name}_{element}_{digest}"


def lower(plan: Plan) -> LoweredKernel:
    """Lower a plan through TensorIR to CUDA text and an instruction listing.

    Raises:
        PlanError: the plan breaks a rule of its device.
        LoweringError: TVM is missing or another release than the pinned one.
    """
    verify(plan)
    device = lower_to_cuda(build(plan, kernel_name(plan)), plan.device.arch)
    return LoweredKernel(
        name=device.name,
        source=device.source,
        parameters=_parameters(plan, device),
        launch=_launch(plan),
        listing=listing(device.function),
        device_arch=plan.device.arch,
    )


def _parameters(plan: Plan, device: DeviceFunction) -> tuple[Parameter, ...]:
    """Kernel parameters in their final order: TVM sorts them anew and drops unused ones."""
    declared = {argument.name: argument for argument in arguments_of(plan)}
    ordered = []
    for name in device.parameters:
        role = name.removesuffix("_ptr")
        if role not in declared:
            raise LoweringError(
                f"the lowered kernel has a parameter {name!r} that no argument declared",
                at=device.name,
            )
        argument = declared[role]
        ordered.append(
            Parameter(
                name=name,
                kind=argument.kind,
                dtype=argument.dtype,
                role=argument.name,
                box=(plan.rows_loaded // plan.multicast, box_k(plan))
                if argument.kind == "tensor map"
                else (),
            )
        )
    return tuple(ordered)


def _launch(plan: Plan) -> Launch:
    tokens = plan.tiling.tokens
    most = plan.m_range[1]
    rows = CeilDiv(by=tokens) if most is None or most > tokens else 1
    grid = (grid_tiles(plan) * plan.split, rows, 1)
    return Launch(
        grid=(plan.persistent_ctas, 1, 1) if plan.persistent else grid,
        block=(plan.threads, 1, 1),
        shared_bytes=max(128, plan.launch_bytes),
        attributes=("pdl",) if plan.launch == "pdl" else (),
        cluster=(plan.cluster, 1, 1) if plan.cluster > 1 else None,
    )
