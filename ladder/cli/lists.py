"""``ladder types`` and ``ladder devices``: what has a name, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.cli.options import Json, device_of
from ladder.cli.show import Cell, Screen

if TYPE_CHECKING:
    from ladder.ttile import Device
    from ladder.ttype import GroupedType, TType

TypeName = Annotated[str | None, typer.Argument(help="show this type alone, with its values")]
DeviceArgument = Annotated[
    str | None, typer.Argument(help="show this device alone: a name or a device file")
]


def types(name: TypeName = None, *, json: Json = False) -> None:
    """List the number formats that have a name, or show one."""
    screen = Screen(as_json=json)
    if name is None:
        _list_types(screen)
    else:
        _show_type(screen, name)


def _list_types(screen: Screen) -> None:
    from ladder.registry import types as known
    from ladder.ttype import COMPUTE_TYPES, GroupedType, TType

    elements = [t for t in known.values() if isinstance(t, TType)]
    grouped = [t for t in known.values() if isinstance(t, GroupedType)]
    records = [_element(t) for t in elements]
    screen.data(
        {
            "elements": records,
            "grouped": [_grouped(t) for t in grouped],
            "compute": [{"name": t.name, "bits": t.bits} for t in COMPUTE_TYPES],
            "aliases": dict(known.aliases),
        }
    )
    screen.text("elements")
    columns = ("name", "bits", "min", "max", "float16", "bfloat16")
    screen.table(columns, [[record[column] for column in columns] for record in records])
    screen.text("\ngrouped")
    screen.table(("name", "meaning"), [[t.name, t.describe()] for t in grouped])
    screen.text("\ncompute: " + ", ".join(t.name for t in COMPUTE_TYPES))
    by_name: dict[str, list[str]] = {}
    for alias, target in known.aliases.items():
        by_name.setdefault(target, []).append(alias)
    screen.text("\naliases")
    screen.table(("name", "also"), [[t, ", ".join(also)] for t, also in by_name.items()])


def _show_type(screen: Screen, name: str) -> None:
    from ladder.registry import types as known
    from ladder.ttype import DENSE, ComputeType, GroupedType

    found = known[name]
    if isinstance(found, ComputeType):
        screen.data({"name": found.name, "bits": found.bits})
        dense = ", and that of weights that are not quantised" if found.name in DENSE else ""
        screen.text(f"{found.name}: a compute type of {found.bits} bits{dense}")
        return
    element: TType = found.element if isinstance(found, GroupedType) else found
    record = _element(element) | {"values": [_number(v) for v in element.values.tolist()]}
    if isinstance(found, GroupedType):
        record = _grouped(found) | {"element": record}
        screen.text(str(found))
    screen.data(record)
    screen.text(f"{element.name}: {element.bits} bits, {element.min:g} to {element.max:g}")
    for compute in ("float16", "bfloat16"):
        screen.text(f"  to {compute}: {_fidelity(element, compute)}")
    rows: list[list[Cell]] = [
        [code, f"{code:0{element.bits}b}", "unused" if code in element.unused else f"{value:.9g}"]
        for code, value in enumerate(element.values.tolist())
    ]
    screen.table(("code", "bits", "value"), rows)


def _fidelity(element: TType, compute: str) -> str:
    from ladder.ttype import losslessness

    return str(losslessness(element, compute))


def _element(element: TType) -> dict[str, Any]:
    return {
        "name": element.name,
        "bits": element.bits,
        "min": element.min,
        "max": element.max,
        "unused": list(element.unused),
        "float16": _fidelity(element, "float16").split(":")[0].split(",")[0],
        "bfloat16": _fidelity(element, "bfloat16").split(":")[0].split(",")[0],
    }


def _grouped(grouped: GroupedType) -> dict[str, Any]:
    return {
        "name": grouped.name,
        "element": grouped.element.name,
        "group": list(grouped.group),
        "scale": grouped.scale,
        "zero": grouped.zero,
        "second": grouped.second,
    }


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity: they are spelled as strings."""
    return value if abs(value) < float("inf") else str(value)


def devices(name: DeviceArgument = None, *, json: Json = False) -> None:
    """List the devices that are described, or show one."""
    from ladder.registry import devices as known

    screen = Screen(as_json=json)
    if name is not None:
        _show_device(screen, device_of(name))
        return
    records = [_device(device) for device in known.values()]
    screen.data(records)
    columns = ("name", "title", "arch", "sms", "dram_tb_per_s", "float16_tera_ops")
    screen.table(columns, [[record[column] for column in columns] for record in records])


def _device(device: Device) -> dict[str, Any]:
    rates = [i.per_second or 0.0 for i in device.instructions(kind="compute", a="float16")]
    return {
        "name": device.name,
        "title": device.title,
        "arch": device.arch,
        "sms": device.sms,
        "dram_tb_per_s": device.dram_bytes_per_second / 1e12,
        "float16_tera_ops": max(rates, default=0.0) / 1e12,
    }


def _show_device(screen: Screen, device: Device) -> None:
    levels = [
        {
            "name": level.name,
            "bytes": level.nbytes,
            "bytes_per_second": level.bytes_per_second,
            "measured": level.measured,
        }
        for level in device.levels
    ]
    instructions: list[dict[str, Any]] = [
        {"name": i.name, "kind": i.kind, "per_second": i.per_second, "measured": i.measured}
        for i in device.instruction_set
    ]
    pipes: Mapping[str, float] = dict(device.pipes)
    screen.data(
        _device(device)
        | {
            "levels": levels,
            "instructions": instructions,
            "pipes": pipes,
            "features": device.features,
        }
    )
    screen.text(f"{device.name}: {device.title}, {device.arch}, {device.sms} SMs\n")
    screen.table(
        ("level", "MiB", "TB/s", "measured"),
        [
            [level.name, level.nbytes / 2**20, level.bytes_per_second / 1e12, level.measured]
            for level in device.levels
        ],
    )
    screen.text()
    screen.table(
        ("instruction", "kind", "tera per s", "measured"),
        [
            [i.name, i.kind, None if i.per_second is None else i.per_second / 1e12, i.measured]
            for i in device.instruction_set
        ],
    )
    screen.text("\npipes, lane instructions per clock and SM")
    screen.table(("pipe", "rate"), [[pipe, rate] for pipe, rate in device.pipes])
    screen.text("\nfeatures: " + ", ".join(sorted(device.features)))
