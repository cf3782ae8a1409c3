"""Options that several commands share, and the values that they spell."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.errors import TypeDeclarationError

if TYPE_CHECKING:
    from ladder.graph import MatMul
    from ladder.ttile import Device
    from ladder.ttype import GroupedType, TType


class Activation(str, Enum):
    """Types of x."""

    float16 = "float16"
    bfloat16 = "bfloat16"


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


SHAPE = "Shape"
WEIGHT = "Weight"

N = Annotated[
    int,
    typer.Option("-n", help="output channels: rows of the weight", min=1, rich_help_panel=SHAPE),
]
K = Annotated[
    int, typer.Option("-k", help="columns of the weight and of x", min=1, rich_help_panel=SHAPE)
]
M = Annotated[
    int | None,
    typer.Option(
        "-m", help="tokens: rows of x; left out, any number", min=0, rich_help_panel=SHAPE
    ),
]
WeightName = Annotated[
    str,
    typer.Option(
        "--weight", "-w", help="number format, see `ladder types`", rich_help_panel=WEIGHT
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="weights that share a scale: 128, channel, tensor, 128x128",
        rich_help_panel=WEIGHT,
    ),
]
Scale = Annotated[str, typer.Option("--scale", help="type of the scales", rich_help_panel=WEIGHT)]
ZeroPoint = Annotated[
    Zero, typer.Option("--zero", help="convention of the zero point", rich_help_panel=WEIGHT)
]
ActivationName = Annotated[Activation, typer.Option("--activation", "-a", help="type of x")]
OutName = Annotated[Out, typer.Option("--out", help="type of y")]
Bias = Annotated[bool, typer.Option("--bias", help="add bias[n]")]
DeviceName = Annotated[
    str, typer.Option("--device", "-d", help="name, see `ladder devices`, or a device file")
]
Convert = Annotated[
    Placement | None,
    typer.Option("--convert", help="where to decode, instead of where the scheduler chose"),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def parse_group(text: str) -> Any:
    """``128`` -> 128, ``128x128`` -> (128, 128), ``*x32`` -> (None, 32); ``channel`` and ``tensor`` stay."""
    if text in ("channel", "tensor"):
        return text
    if not re.fullmatch(r"\d+|(\d+|\*)x(\d+|\*)", text):
        raise TypeDeclarationError(
            f"a group is spelled 128, 128x128, channel or tensor, found {text!r}", at="--group"
        )
    extents = tuple(None if part == "*" else int(part) for part in text.split("x"))
    return extents if len(extents) == 2 else extents[0]


def weight_type(name: str, group: str | None, scale: str, zero: Zero) -> TType | GroupedType:
    """The weight type that the options spell; an element without ``--group`` has no scale.

    Raises:
        TypeDeclarationError: the name is unknown, or a grouped type was given a group again.
    """
    from ladder.registry import types
    from ladder.ttype import GroupedType, TType

    found = types[name]
    if isinstance(found, TType):
        if group is not None:
            return found.grouped(
                parse_group(group), scale=scale, zero=None if zero is Zero.none else zero.value
            )
        if zero is not Zero.none:
            raise TypeDeclarationError(
                "a zero point belongs to a group", at=f"--weight {name} --zero", hint="give --group"
            )
        return found
    if not isinstance(found, GroupedType):
        raise TypeDeclarationError(
            f"{name} is a compute type", at="--weight", hint="`ladder types` lists weight formats"
        )
    if group is not None or zero is not Zero.none:
        raise TypeDeclarationError(
            f"{name} has its groups already: {found}",
            at="--group, --zero",
            hint=f"leave them out, or start from the element: --weight {found.element.name}",
        )
    return found


def device_of(name: str) -> Device:
    """A device by name, or by the path of a device file."""
    from ladder.registry import devices
    from ladder.ttile import load_device

    return load_device(name) if name.endswith(".py") else devices[name]


def operator(
    m: int | None,
    n: int,
    k: int,
    *,
    activation: Activation,
    weight: TType | GroupedType,
    out: Out,
    bias: bool,
) -> MatMul:
    """The matmul that the options spell."""
    from ladder.graph import matmul

    return matmul(m, n, k, activation=activation.value, weight=weight, out=out.value, bias=bias)
