"""The matrix: weight types x activations x devices x variants of the kernel families, and how one part is compiled.

What is varied, and what not (:func:`weight_types`, :data:`VARIANTS`):

* Every element of the catalogue, with one granularity: groups of 128, codebooks of 64; unsigned and offset integers with
  integer zero points, all others without. Every block format as it is.
* The plan is the scheduler's choice for N = K = 4096, so tilings, depths, lookahead and the place where zeros come off
  are those of real kernels, and differ between devices.
* Placement of convert and access of activations do not meet the other decisions of a family, so each is varied for one
  M of each family instead of for all, and not both at once.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ladder
from benchmarks.grid import describe
from ladder.errors import LadderError, LosslessError, ScheduleError
from ladder.scheduler import Tiling

if TYPE_CHECKING:
    from ladder.codegen.toolchain import Cubin
    from ladder.scheduler.packing import Packing
    from ladder.ttype import GroupedType
    from ladder.ttype.group import Zero

EXTENT = 4096
ACTIVATIONS = ("float16", "bfloat16")

#: one device an architecture: sm_80, sm_86, sm_87, sm_89, sm_90a
DEVICES = ("a100", "rtx3090", "orin", "rtx4090", "h200")

CODEBOOKS = ("nf4", "nf3")
CODEBOOK_GROUP = 64
GROUP = 128
#: encodings that are used with zero points
ASYMMETRIC = re.compile(r"(uint|offset)\d")


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of kernel: what is fixed before the scheduler chooses.

    Attributes:
        name: for the report.
        m: tokens of the operator, None for a kernel that takes a range.
        fixed: decisions of the plan.
        needs: feature of a device without which the variant does not exist, or empty.
    """

    name: str
    m: int | None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""


def _variant(name: str, m: int | None, *, needs: str = "", **fixed: Any) -> Variant:
    return Variant(name, m, MappingProxyType(fixed), needs)


#: two warpgroups that take turns at the blocks of K
SLICES = Tiling(warps_k=2, warps_n=4, warps_m=1, row_tiles=1, token_tiles=2)

VARIANTS = (
    _variant("skinny M=1", 1, family="skinny"),
    _variant("skinny M=2..8", None, family="skinny", m_range=(2, 8)),
    _variant("skinny M=16", 16, family="skinny"),
    _variant("skinny M=16 shared", 16, family="skinny", convert="shared"),
    _variant("skinny M=16 scalar", 16, family="skinny", access="scalar"),
    _variant("ring M=64", 64, family="ring", compute="mma"),
    _variant("ring M=64 shared", 64, family="ring", compute="mma", convert="shared"),
    _variant("ring M=64 scalar", 64, family="ring", compute="mma", access="scalar"),
    _variant("ring M=65..256", None, family="ring", compute="mma", m_range=(65, 256)),
    _variant("warpgroup M=64", 64, needs="wgmma", family="ring", compute="wgmma"),
    _variant(
        "warpgroup M=65..256",
        None,
        needs="wgmma",
        family="ring",
        compute="wgmma",
        m_range=(65, 256),
    ),
    _variant("specialised M=64", 64, needs="tma", family="specialised", split=1),
    _variant("specialised M=64 cluster", 64, needs="tma", family="specialised", split=2),
    _variant("specialised M=64 pdl", 64, needs="tma", family="specialised", launch="pdl"),
    _variant("specialised M=16 slices", 16, needs="tma", family="specialised", tiling=SLICES),
    _variant("specialised M=65..256", None, needs="tma", family="specialised", m_range=(65, 256)),
)

#: one kernel of each family
QUICK_VARIANTS = ("skinny M=1", "ring M=64", "warpgroup M=64", "specialised M=64 cluster")
QUICK_TYPES = ("int4", "nf4", "mxfp4")
QUICK_DEVICES = ("a100", "h200")


@lru_cache(maxsize=1)
def weight_types() -> dict[str, GroupedType]:
    """Name in the catalogue -> the weight type that is compiled."""
    from ladder.ttype import GroupedType, TType

    found: dict[str, GroupedType] = {}
    for name, value in ladder.types.items():
        if isinstance(value, GroupedType):
            found[name] = value
        elif isinstance(value, TType):
            asymmetric = ASYMMETRIC.fullmatch(name) is not None
            group = CODEBOOK_GROUP if name in CODEBOOKS else GROUP
            zero: Zero | None = "integer" if asymmetric else None
            found[name] = value.grouped(group, scale="float16", zero=zero)
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """What one process compiles at once: all variants over one packing."""

    type: str
    activation: str
    device: str
    variants: tuple[str, ...]


def parts(*, quick: bool) -> Iterator[Part]:
    """The whole matrix, or a part of it that meets every family."""
    names = QUICK_TYPES if quick else tuple(weight_types())
    devices = QUICK_DEVICES if quick else DEVICES
    for name in names:
        for activation in ACTIVATIONS:
            for device in devices:
                yield Part(name, activation, device, variants_of(device, quick=quick))


def variants_of(device: str, *, quick: bool = False) -> tuple[str, ...]:
    """Names of the variants that exist on a device."""
    return tuple(
        variant.name
        for variant in VARIANTS
        if (not variant.needs or ladder.devices[device].has(variant.needs))
        and (not quick or variant.name in QUICK_VARIANTS)
    )


@dataclass(frozen=True, slots=True)
class Made:
    """One kernel of the matrix, or why there is none.

    Attributes:
        type: name in the catalogue.
        activation: type of the activations and outputs.
        device: whose plan.
        arch: architecture of the machine code.
        variant: name of the variant.
        plan: the plan in one line.
        registers: of a thread.
        spill_bytes: stores and loads of a thread.
        stack_bytes: of a thread.
        shared_bytes: of a CTA.
        lower_s: seconds from the plan to CUDA text.
        compile_s: seconds from there to machine code; 0 where an equal text was compiled before.
        refused: why the scheduler refuses, empty if it does not.
        failure: what went wrong, empty if nothing did.
    """

    type: str
    activation: str
    device: str
    arch: str
    variant: str
    plan: str = ""
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    lower_s: float = 0.0
    compile_s: float = 0.0
    refused: str = ""
    failure: str = ""

    @property
    def compiled(self) -> bool:
        """Whether there is a kernel."""
        return not self.refused and not self.failure


def make(part: Part) -> list[Made]:
    """Compile the variants of a part; what is refused or fails is part of the answer."""
    from ladder.scheduler.choose import choose_packing
    from ladder.ttype import MayOverflow

    device = ladder.devices[part.device]
    start = {
        "type": part.type,
        "activation": part.activation,
        "device": part.device,
        "arch": device.arch,
    }
    lossless = ladder.losslessness(weight_types()[part.type].element, part.activation)
    if isinstance(lossless, MayOverflow):  # the scheduler refuses it before anything is derived
        return [Made(**start, variant=name, refused=str(lossless)) for name in part.variants]
    try:
        packing = choose_packing(_operator(part, 1), device.features)
    except Exception as error:  # noqa: BLE001 - recorded for every variant of the part
        reason = _words(error)
        return [Made(**start, variant=name, failure=reason) for name in part.variants]
    variants = {variant.name: variant for variant in VARIANTS}
    return [
        Made(**start, variant=name, **_compile(part, variants[name], packing))
        for name in part.variants
    ]


def _compile(part: Part, variant: Variant, packing: Packing) -> dict[str, Any]:
    from ladder.codegen.lower import lower

    try:
        found: Any = ladder.schedule(
            _operator(part, variant.m), part.device, packing=packing, **variant.fixed
        )
    except (LosslessError, ScheduleError) as error:
        return {"refused": _words(error)}
    except Exception as error:  # noqa: BLE001 - recorded, and the command fails
        return {"failure": _words(error)}
    plan = found if variant.m is not None else found.plans[0]
    try:
        start = time.perf_counter()
        lowered = lower(plan)
        lower_s = time.perf_counter() - start
        cubin, compile_s = _machine_code(lowered.source, lowered.name, plan.device.arch)
    except Exception as error:  # noqa: BLE001 - recorded, and the command fails
        return {"plan": describe(plan), "failure": _words(error)}
    return {
        "plan": describe(plan),
        "registers": cubin.registers,
        "spill_bytes": cubin.spill_bytes,
        "stack_bytes": cubin.stack_bytes,
        "shared_bytes": plan.shared_bytes,
        "lower_s": round(lower_s, 3),
        "compile_s": round(compile_s, 3),
    }


def _operator(part: Part, m: int | None) -> Any:
    return ladder.matmul(
        m,
        EXTENT,
        EXTENT,
        activation=part.activation,
        weight=weight_types()[part.type],
        out=part.activation,
    )


#: digest of (text without its kernel's name, architecture) -> machine code of this process
_COMPILED: dict[str, Cubin] = {}


def _machine_code(source: str, name: str, arch: str) -> tuple[Cubin, float]:
    """Machine code and the seconds that it took; texts that differ in the kernel's name alone are compiled once."""
    from ladder.codegen.machine_code import compile_kernel

    text = source.replace(name, "kernel")
    key = hashlib.sha256(f"{arch}\n{text}".encode()).hexdigest()
    if key in _COMPILED:
        return _COMPILED[key], 0.0
    cubin = _COMPILED[key] = compile_kernel(text, arch)
    return cubin, cubin.seconds


def _words(error: Exception) -> str:
    """A reason in one line."""
    what = error.what if isinstance(error, LadderError) else f"{type(error).__name__}: {error}"
    return " ".join(what.split())[:300]
