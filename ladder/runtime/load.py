"""A saved kernel back from its folder: no TVM, no CUDA compiler, and no GPU before the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ladder.checks import accept, optional
from ladder.errors import ArtifactError, LaunchError, PlanError
from ladder.runtime.artifact import Artifact
from ladder.runtime.dequantize_kernel import DequantizeKernel
from ladder.runtime.driver import DRIVER, Driver
from ladder.runtime.kernel import Kernel
from ladder.runtime.packed import PackingLike, canonical
from ladder.runtime.quantize_kernel import QuantizeKernel
from ladder.runtime.variant import PlanLike, Variant
from ladder.scheduler.members import members


def load(folder: str | Path, *, driver: Driver | None = None) -> Any:
    """Read what ``kernel.save(folder)`` wrote: a :class:`Kernel`, or a kernel beside matmuls (:data:`SINGLE`).

    Args:
        folder: of the artifact.
        driver: None for this machine's, looked for at the first launch.

    Raises:
        ArtifactError: a file is missing, damaged, foreign or of another version.
    """
    driver = accept(driver, optional(DRIVER), "driver", at="ladder.load", error=LaunchError)
    return from_artifact(Artifact.load(folder), driver=driver, at=str(folder))


def from_artifact(artifact: Artifact, *, driver: Driver | None = None, at: str = "artifact") -> Any:
    """The kernel of an artifact, whichever it is.

    Raises:
        ArtifactError: a plan or the packing is of another version.
    """
    single = _format(artifact.plan) in SINGLE
    return (single_kernel_of if single else kernel_of)(artifact, driver=driver, at=at)


def single_kernel_of(
    artifact: Artifact, *, driver: Driver | None = None, at: str = "artifact"
) -> Any:
    """Return the kernel of an artifact whose plan is one of a kind beside matmuls.

    Raises:
        ArtifactError: the plan is of another version.
    """
    try:
        plan = _read_plan(artifact.plan)
    except PlanError as error:
        raise _unreadable(error, artifact, at) from error
    variants = [Variant(plan, part.lowered, part.cubins) for part in artifact.parts]
    return SINGLE[_format(artifact.plan)](
        variants, plan, toolchain=artifact.toolchain, driver=driver
    )


def _unreadable(error: PlanError, artifact: Artifact, at: str) -> ArtifactError:
    return ArtifactError(
        f"the plan cannot be read: {error.what}",
        at=at,
        hint=f"saved by ladder {artifact.ladder}: compile the plan again and save it",
    )


def kernel_of(
    artifact: Artifact,
    *,
    driver: Driver | None = None,
    at: str = "artifact",
    read_plan: Callable[[Any], Any] | None = None,
    read_packing: Callable[[Any], PackingLike] | None = None,
) -> Kernel:
    """Return the kernel of an artifact; ``read_plan`` and ``read_packing`` turn JSON into values.

    Raises:
        ArtifactError: the plans or the packing are of another version.
    """
    plan_of, packing_of = read_plan or _read_plan, read_packing or _read_packing
    try:
        packing = packing_of(artifact.packing)
        plan = plan_of(artifact.plan)
        own = [part.plan for part in artifact.parts]
        # a set's plans are read with it, their packing once
        whole = read_plan is None and own == members(artifact.plan)
        alone = read_plan is None and own == [artifact.plan]
        plans: list[PlanLike] = (
            [plan] if alone else list(plan) if whole else [plan_of(one) for one in own]
        )
    except PlanError as error:
        raise _unreadable(error, artifact, at) from error
    if packing.version != artifact.packing_version:
        raise ArtifactError(
            f"packing version {artifact.packing_version}, this version packs by {packing.version}",
            at=at,
            hint="compile the plan again, and pack the weights again",
        )
    variants = [
        Variant(own, part.lowered, part.cubins)
        for own, part in zip(plans, artifact.parts, strict=True)
    ]
    return Kernel(variants, plan, packing, toolchain=artifact.toolchain, driver=driver)


#: formats of plans that are no matmul's: of activations that are quantised, of weights that are decoded into memory
QUANTIZE, DEQUANTIZE = "ladder.quantize_plan", "ladder.dequantize_plan"
#: such a format -> its kernel
SINGLE: Mapping[str, type[QuantizeKernel | DequantizeKernel]] = MappingProxyType(
    {QUANTIZE: QuantizeKernel, DEQUANTIZE: DequantizeKernel}
)


def _format(data: Any) -> str:
    found = data.get("format") if isinstance(data, dict) else None
    return str(found).partition("/")[0]


def _read_plan(data: Any) -> Any:
    from ladder.scheduler.dequantize_plan import DequantizePlan
    from ladder.scheduler.plan import Plan
    from ladder.scheduler.planset import PlanSet
    from ladder.scheduler.quantize_plan import QuantizePlan

    readers: dict[str, Callable[[str], Any]] = {
        "ladder.planset": PlanSet.from_json,
        "ladder.plan": Plan.from_json,
        QUANTIZE: QuantizePlan.from_json,
        DEQUANTIZE: DequantizePlan.from_json,
    }
    name = _format(data)
    if name not in readers:
        raise PlanError(f"the record has format {name!r}", at="plan of the artifact")
    return readers[name](canonical(data))


def _read_packing(data: Any) -> PackingLike:
    from ladder.scheduler.serial import load_packing

    packing: Any = load_packing(canonical(data))
    return cast("PackingLike", packing)
