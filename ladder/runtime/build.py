"""From a plan to a kernel: lower, compile, keep in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, overload

from ladder.checks import TRUTH, Expected, accept, instance, optional, shown
from ladder.codegen.kernel import LoweredKernel
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import INSTALL, Toolchain
from ladder.errors import CacheError, LaunchError, LoweringError, PlanError, ToolchainError
from ladder.parallel import threads
from ladder.runtime.artifact import Artifact, Part
from ladder.runtime.cache import Cache, CacheKey
from ladder.runtime.dequantize_kernel import DequantizeKernel
from ladder.runtime.driver import DRIVER, Driver
from ladder.runtime.kernel import Kernel
from ladder.runtime.load import kernel_of, single_kernel_of
from ladder.runtime.packed import as_json
from ladder.runtime.quantize_kernel import QuantizeKernel
from ladder.runtime.variant import Deferred, Variant
from ladder.scheduler.dequantize_plan import DequantizePlan
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.quantize_plan import QuantizePlan
from ladder.scheduler.single_plan import SinglePlan
from ladder.settings import Settings

NO_TOOLCHAIN = "none"

Lower = Callable[[Any], LoweredKernel]

SETTINGS = optional(instance(Settings, "ladder.settings.Settings.read() reads the environment"))
FUNCTION: Expected[Lower] = Expected(
    "a function from plan to kernel", callable, lambda value: value
)


@lru_cache(maxsize=4)
def default_cache(settings: Settings) -> Cache:
    """Return the cache of this process for some settings; one, so that its memory is shared."""
    return Cache.default(settings)


@overload
def compile_plan(
    plan: QuantizePlan,
    *,
    lower: Lower | None = None,
    cache: Cache | None = None,
    settings: Settings | None = None,
    driver: Driver | None = None,
) -> QuantizeKernel: ...
@overload
def compile_plan(
    plan: DequantizePlan,
    *,
    lower: Lower | None = None,
    cache: Cache | None = None,
    settings: Settings | None = None,
    driver: Driver | None = None,
) -> DequantizeKernel: ...
@overload
def compile_plan(
    plan: Plan | PlanSet,
    *,
    ahead: bool = True,
    lower: Lower | None = None,
    cache: Cache | None = None,
    settings: Settings | None = None,
    driver: Driver | None = None,
) -> Kernel: ...
def compile_plan(
    plan: Any,
    *,
    ahead: bool = True,
    lower: Lower | None = None,
    cache: Cache | None = None,
    settings: Settings | None = None,
    driver: Driver | None = None,
) -> Kernel | QuantizeKernel | DequantizeKernel:
    """Compile a plan, or every plan of a set, to a kernel.

    Args:
        plan: a Plan or a PlanSet, or one of a kernel beside matmuls: a QuantizePlan (whose kernel is a QuantizeKernel) or a
            DequantizePlan (a DequantizeKernel).
        ahead: False leaves each plan of a set to the first call whose rows need it, or to the first look at its text; what is
            wrong with one then shows there.
        lower: plan -> CUDA text; None for the package's own.
        cache: where compiled kernels are kept; None for the one that the settings name.
        settings: None for those of the environment.
        driver: None for this machine's, looked for at the first launch.

    Without a CUDA compiler the kernel holds its text and no machine code, and a warning says so.

    Raises:
        LoweringError: TVM is missing and the cache has no such kernel.
        ToolchainError: the compiler refused the text, or serialised its warpgroup products.
        PlanError: what was given is no plan.
        LadderError: another argument is not what it has to be.
    """
    plans = _plans(plan)
    at = "ladder.compile"
    cache = accept(cache, optional(instance(Cache)), "cache", at=at, error=CacheError)
    settings = accept(settings, SETTINGS, "settings", at=at, error=ToolchainError)
    lower = accept(lower, optional(FUNCTION), "lower", at=at, error=LoweringError)
    driver = accept(driver, optional(DRIVER), "driver", at=at, error=LaunchError)
    settings = settings or Settings.read()
    toolchain = _toolchain(settings)
    if not accept(ahead, TRUTH, "ahead", at=at, error=PlanError) and isinstance(plan, PlanSet):
        parts = {"lower": lower, "cache": cache, "settings": settings, "driver": driver}
        variants = [Deferred(one, partial(_variant, one, parts)) for one in plans]
        return Kernel(variants, plan, plan.packing, toolchain=_name(toolchain), driver=driver)
    if toolchain is None:
        warnings.warn(
            f"no CUDA compiler: the kernel holds its text only; {INSTALL}",
            RuntimeWarning,
            stacklevel=2,
        )
    artifact = (cache or default_cache(settings)).get_or_build(
        _key(plan, plans[0].device.arch, toolchain),
        lambda: _build(plan, plans, lower or _lower, toolchain),
    )
    if isinstance(plan, SinglePlan):
        kernel: QuantizeKernel | DequantizeKernel = single_kernel_of(artifact, driver=driver)
        return kernel
    # The key says that the artifact is of this plan: what is at hand is not read again, in the order in which it is asked for.
    at_hand = iter((plan, *plans))
    return kernel_of(
        artifact,
        driver=driver,
        read_plan=lambda _: next(at_hand),
        read_packing=lambda _: plan.packing,
    )


def _variant(plan: Plan, how: Mapping[str, Any]) -> Variant:
    """The one kernel of a plan."""
    (variant,) = compile_plan(plan, **how).variants
    return variant


def _plans(plan: Any) -> tuple[Any, ...]:
    """The plans of a plan or a plan set; a list of plans is neither."""
    is_array = hasattr(plan, "shape") or isinstance(plan, (str, bytes))
    plans = tuple(plan) if isinstance(plan, Iterable) and not is_array else (plan,)
    if not plans or not all(hasattr(one, "m_range") for one in plans):
        raise PlanError(
            f"{shown(plan)} is no plan",
            at="ladder.compile",
            hint="ladder.schedule(op, device) makes one of an operator",
        )
    if not hasattr(plan, "to_json"):
        raise PlanError(
            f"{shown(plan)} is no plan, though it holds some",
            at="ladder.compile",
            hint="ladder.PlanSet(plans) makes one of plans for adjacent ranges of M",
        )
    return plans


def _key(plan: Any, arch: str, toolchain: Toolchain | None) -> CacheKey:
    options = () if toolchain is None else toolchain.command(arch)
    return CacheKey.of(plan.to_json(), arch, _name(toolchain), options)


def _name(toolchain: Toolchain | None) -> str:
    return NO_TOOLCHAIN if toolchain is None else str(toolchain)


def _build(
    plan: Any, plans: tuple[Any, ...], lower: Lower, toolchain: Toolchain | None
) -> Artifact:
    packing = None if isinstance(plan, SinglePlan) else plan.packing
    # texts are made one after the other, and compiled beside each other: the compiler lets go of Python's lock
    with ThreadPoolExecutor(threads()) as pool:
        parts = [pool.submit(_part, one, lower(one), toolchain) for one in plans]
    return Artifact(
        parts=tuple(part.result() for part in parts),
        plan=as_json(plan.to_json()),
        packing={} if packing is None else as_json(packing.to_json()),
        packing_version=0 if packing is None else packing.version,
        toolchain=_name(toolchain),
    )


def _part(plan: Any, lowered: LoweredKernel, toolchain: Toolchain | None) -> Part:
    record = as_json(plan.to_json())
    if toolchain is None:
        return Part(record, lowered)
    cubin = compile_kernel(lowered.source, lowered.device_arch, toolchain=toolchain)
    return Part(record, lowered, {lowered.device_arch: cubin})


def _toolchain(settings: Settings) -> Toolchain | None:
    try:
        return Toolchain.choose(settings)
    except ToolchainError:
        if settings.toolchain != "auto":
            raise  # a compiler that was asked for by name is not given up silently
        return None


def _lower(plan: Any) -> LoweredKernel:
    if isinstance(plan, QuantizePlan):
        from ladder.codegen.quantize import lower_quantize

        return lower_quantize(plan)
    if isinstance(plan, DequantizePlan):
        from ladder.codegen.dequantize import lower_dequantize

        return lower_dequantize(plan)
    from ladder.codegen.lower import lower

    return lower(plan)
