"""Options that several commands share, and the values that they spell."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from ladder.checks import shown
from ladder.errors import TypeDeclarationError

if TYPE_CHECKING:
    from ladder.graph import MatMul
    from ladder.scheduler.plan import Plan
    from ladder.scheduler.planset import PlanSet
    from ladder.ttile import Device
    from ladder.ttype import GroupedType, TType


class Activation(str, Enum):
    """Types of x."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"
    fp8_e4m3fn = "fp8_e4m3fn"
    fp8_e5m2 = "fp8_e5m2"
    int4 = "int4"
    uint4 = "uint4"


class Out(str, Enum):
    """Types of y."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


class Zero(str, Enum):
    """Conventions of a zero point."""

    none = "none"
    integer = "integer"
    floating = "float"
    rescaled = "rescaled"


class Placement(str, Enum):
    """Where codes become compute values."""

    register = "register"
    shared = "shared"


class Launch(str, Enum):
    """How a kernel follows the one before it."""

    plain = "plain"
    pdl = "pdl"


Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]

P = ParamSpec("P")
R = TypeVar("R")

SHAPE = "Shape"
WEIGHT = "Weight"


def _option(*names: str, text: str, panel: str | None = None, least: int | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, min=least)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options that say what to compute and where; see :func:`takes`."""

    n: Annotated[int, _option("-n", text="output channels", panel=SHAPE, least=1)]
    k: Annotated[int, _option("-k", text="columns of weight and x", panel=SHAPE, least=1)]
    m: Annotated[
        int | None, _option("-m", text="tokens; left out: any number", panel=SHAPE, least=0)
    ] = None
    weight: Annotated[
        str, _option("--weight", "-w", text="format, see `ladder types`", panel=WEIGHT)
    ] = "int4"
    group: Annotated[
        str | None,
        _option("--group", "-g", text="128, channel, tensor or 128x128", panel=WEIGHT),
    ] = None
    scale: Annotated[
        str | None, _option("--scale", text="type of the scales; left out: float16", panel=WEIGHT)
    ] = None
    zero: Annotated[Zero, _option("--zero", text="convention of zero points", panel=WEIGHT)] = (
        Zero.none
    )
    activation: Annotated[Activation, _option("--activation", "-a", text="type of x")] = (
        Activation.float16
    )
    out: Annotated[Out, _option("--out", text="type of y")] = Out.float16
    bias: Annotated[bool, _option("--bias", text="add bias[n]")] = False
    activation_scale: Annotated[
        bool, _option("--activation-scale", text="multiply y by a scale of each row of x")
    ] = False
    epilogue: Annotated[
        str, _option("--epilogue", text="steps on y, such as gelu or silu_gate,residual")
    ] = ""
    device: Annotated[
        str, _option("--device", "-d", text="name, see `ladder devices`, or a device file")
    ] = "h200"
    convert: Annotated[
        Placement | None, _option("--convert", text="where to decode, if not where it is best")
    ] = None

    tuned: Annotated[
        bool, _option("--tuned", text="take the plan that `ladder tune` measured, if there is one")
    ] = False

    def operator(self) -> MatMul:
        """The matmul that the options spell."""
        from ladder.graph import matmul

        return matmul(
            self.m,
            self.n,
            self.k,
            activation=self.activation.value,
            weight=weight_type(self.weight, self.group, self.scale, self.zero),
            out=self.out.value,
            bias=self.bias,
            activation_scale=self.activation_scale,
            epilogue=[step.strip() for step in self.epilogue.split(",") if step.strip()],
        )

    def plan(self) -> Plan | PlanSet:
        """The plan, or with any number of tokens the plans, for the operator."""
        from ladder.runtime.choices import schedule
        from ladder.runtime.tuning.database import tuned

        placement = None if self.convert is None else self.convert.value
        measured = tuned() if self.tuned else None
        return schedule(
            self.operator(), device_of(self.device), placement=placement, tuned=measured
        )


def takes(
    kind: type[R],
) -> Callable[[Callable[Concatenate[R, P], None]], Callable[..., None]]:
    """Give a command the options that are the fields of a dataclass, before its own, and hand them over as one value."""

    def taking(command: Callable[Concatenate[R, P], None]) -> Callable[..., None]:
        shared = list(inspect.signature(kind, eval_str=True).parameters.values())
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        names = {parameter.name for parameter in shared}

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            request = kind(**{name: value for name, value in given.items() if name in names})
            command(request, **{name: value for name, value in given.items() if name not in names})  # type: ignore[call-arg]

        wrapper.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {
            parameter.name: parameter.annotation for parameter in (*shared, *own)
        }
        return wrapper

    return taking


takes_request = takes(Request)


def parse_group(text: str) -> Any:
    """``128`` -> 128, ``128x128`` -> (128, 128), ``*x32`` -> (None, 32); ``channel`` and ``tensor`` stay."""
    if text in ("channel", "tensor"):
        return text
    if not re.fullmatch(r"\d{1,18}|(\d{1,18}|\*)x(\d{1,18}|\*)", text):
        raise TypeDeclarationError(
            f"a group is spelled 128, 128x128, channel or tensor, found {shown(text)}",
            at="--group",
            hint="*x128 spans all rows",
        )
    extents = tuple(None if part == "*" else int(part) for part in text.split("x"))
    return extents if len(extents) == 2 else extents[0]


def weight_type(name: str, group: str | None, scale: str | None, zero: Zero) -> TType | GroupedType:
    """The weight type that the options spell; an element without ``--group`` has no scale.

    Raises:
        TypeDeclarationError: the name is unknown or no weight's, or a grouped type was given a group again.
    """
    from ladder.registry import types
    from ladder.ttype import ComputeType, TType, element_type

    found: TType | GroupedType | ComputeType = types[name]
    if isinstance(found, ComputeType):
        found = element_type(found)
    if isinstance(found, TType):
        if group is not None:
            return found.grouped(
                parse_group(group),
                scale="float16" if scale is None else scale,
                zero=None if zero is Zero.none else zero.value,
            )
        for option, given in (("--zero", zero is not Zero.none), ("--scale", scale is not None)):
            if given:
                raise TypeDeclarationError(
                    f"{option} belongs to a group", at=f"--weight {name}", hint="give --group"
                )
        return found
    if group is not None or scale is not None or zero is not Zero.none:
        raise TypeDeclarationError(
            f"{name} has its groups already: {found}",
            at="--group, --scale, --zero",
            hint=f"leave them out, or start from the element: --weight {found.element.name}",
        )
    return found


def device_of(name: str) -> Device:
    """A device by name, or by the path of a device file."""
    from ladder.registry import devices
    from ladder.ttile import load_device

    return load_device(name) if name.endswith(".py") else devices[name]
