"""What is known of a point, as one tidy row: what was fixed, what it should take, what the scheduler would have done, and why not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ladder
from ladder.errors import LadderError
from ladder.experiments.lowering import Lowering, Scheduler, choice, lower
from ladder.experiments.sweep import Group, Point, Sweep
from ladder.runtime.versions import commit_of, package_version
from ladder.scheduler.serial import encode
from ladder.ttile import Device
from ladder.ttype import ComputeType, Exact, GroupedType, MayOverflow, Rounds, losslessness
from ladder.ttype.lossless import ScaleOn

if TYPE_CHECKING:
    from ladder.experiments.measured import Measure

REFUSED, DONE = "refused", "ok"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point of a sweep; None where nothing is known.

    Attributes:
        experiment: name of the sweep.
        device, n, k, m, weight, element, bits, group, activation, source, placement, fixed: the point. ``weight`` is the type
            with its groups, in words; ``bits`` those of a code.
        bits_per_weight: with metadata.
        status: "ok", or "refused": the point cannot be had.
        reason: why it cannot.
        operand: whether what the tensor cores multiply is "exact", "rounds" or "may overflow", for all weights of the type.
        kernels: what runs at a call, in order.
        kernel: "plan" where all of it runs, else what is modelled only.
        modelled_us: microseconds of a call by the cost model.
        limit: the ceiling that bounds the longest kernel.
        dram_bytes: moved from and to memory in a call, by the model.
        weight_bytes: that the weight takes between calls.
        plan: of the product, in a line.
        chosen_us, chosen_placement, chosen_plan: the same of what the scheduler does with the operator if nothing is fixed.
        price: modelled_us / chosen_us. Below 1 where a placement that the scheduler is not free to take, because it needs
            more memory, would be faster.
        measured_us, measured_error: median microseconds of a call on a GPU, and the relative error of its result.
        note: why there is no measurement where one was asked for.
        seed: of the operands.
        ladder, commit, device_table: version of the package, its commit where git knows it, digest of the device's numbers.
    """

    experiment: str
    device: str
    n: int
    k: int
    m: int
    weight: str
    element: str
    bits: int
    group: str
    activation: str
    source: str
    placement: str
    fixed: str
    status: str
    seed: int
    ladder: str
    commit: str
    device_table: str
    bits_per_weight: float | None = None
    reason: str = ""
    operand: str = ""
    kernels: str = ""
    kernel: str = ""
    modelled_us: float | None = None
    limit: str = ""
    dram_bytes: int | None = None
    weight_bytes: int | None = None
    plan: str = ""
    chosen_us: float | None = None
    chosen_placement: str = ""
    chosen_plan: str = ""
    price: float | None = None
    measured_us: float | None = None
    measured_error: float | None = None
    note: str = ""

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Column -> value, in the order of :data:`COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS}


#: columns of a table of rows: what was asked, what was found, where it is from
COLUMNS: tuple[str, ...] = (
    *("experiment", "device", "n", "k", "m", "weight", "element", "bits", "group"),
    *("activation", "source", "placement", "fixed", "bits_per_weight", "status", "reason"),
    *("operand", "kernels", "kernel", "modelled_us", "limit", "dram_bytes", "weight_bytes", "plan"),
    *("chosen_us", "chosen_placement", "chosen_plan", "price"),
    *("measured_us", "measured_error", "note", "seed", "ladder", "commit", "device_table"),
)
assert set(COLUMNS) == {field.name for field in fields(Row)}


def rows(sweep: Sweep, measure: Measure | None = None) -> Iterator[Row]:
    """The rows of a sweep, one a point, in order; nothing is dropped.

    Args:
        sweep: what is varied.
        measure: what fills ``measured_us``, see :mod:`ladder.experiments.measured`; None leaves it empty.
    """
    scheduler = Scheduler()
    root = Path(ladder.__path__[0]).parent
    versions = Versions(package_version(), commit_of(root))
    tables = {device: device_digest(device) for device in sweep.devices}
    for point in sweep.points():
        row = _asked(point, sweep, versions, tables[point.device])
        try:
            found = lower(point, sweep, scheduler)
        except LadderError as error:
            yield _beside(replace(row, status=REFUSED, reason=error.what), point, sweep, scheduler)
            continue
        row = _beside(_modelled(row, found), point, sweep, scheduler)
        yield row if measure is None else measure.row(row, found, sweep.seed)


def device_digest(device: Device) -> str:
    """Twelve digits that change with any number of a device's description."""
    text = json.dumps(encode(device), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Versions:
    """What rows are made by: the package's version, and its commit."""

    ladder: str
    commit: str


@lru_cache(maxsize=256)
def _losslessness(weight: GroupedType, compute: ComputeType, scale_on: ScaleOn) -> str:
    return _WORDS[type(losslessness(weight, compute, scale_on=scale_on))]


_WORDS: Mapping[type, str] = MappingProxyType(
    {Exact: "exact", Rounds: "rounds", MayOverflow: "may overflow"}
)


def operand(found: Lowering) -> str:
    """Whether what the tensor cores multiply keeps every value of the weight's type."""
    if found.point.placement in ("offline", "global"):
        return _losslessness(found.op.weight, found.op.weight_compute, "operand")
    if found.product.scale == "register":
        return "rounds"  # by a unit that keeps the largest weight in range (ladder.scheduler.unit)
    return _losslessness(found.op.weight, found.op.weight_compute, "accumulator")


def _asked(point: Point, sweep: Sweep, versions: Versions, device_table: str) -> Row:
    weight = point.weight
    element = weight.element if isinstance(weight, GroupedType) else weight
    try:
        kind = point.type_of(sweep.scale, sweep.zero)
    except LadderError:
        kind = None
    return Row(
        experiment=sweep.name,
        device=point.device.name,
        n=point.n,
        k=point.k,
        m=point.m,
        weight=str(weight if kind is None else kind),
        element=element.name,
        bits=element.bits,
        group=_group_text(point.group if kind is None else kind.group),
        bits_per_weight=None if kind is None else kind.bits_per_weight(point.n, point.k),
        activation=point.activation,
        source=point.source if point.activation not in ("float16", "bfloat16") else "",
        placement=point.placement,
        fixed=", ".join(f"{name}={value}" for name, value in point.fixed),
        status=DONE,
        seed=sweep.seed,
        ladder=versions.ladder,
        commit=versions.commit,
        device_table=device_table,
    )


def _group_text(group: Group) -> str:
    if isinstance(group, tuple):
        return "x".join("all" if extent is None else str(extent) for extent in group)
    return "" if group is None else str(group)


def _modelled(row: Row, found: Lowering) -> Row:
    return replace(
        row,
        operand=operand(found),
        kernels=" + ".join(kernel.name for kernel in found.kernels),
        kernel=f"modelled only: {found.modelled_only}" if found.modelled_only else "plan",
        modelled_us=_rounded(found.us),
        limit=found.limit,
        dram_bytes=found.dram_bytes,
        weight_bytes=found.weight_bytes,
        plan=found.product.brief,
    )


def _beside(row: Row, point: Point, sweep: Sweep, scheduler: Scheduler) -> Row:
    """The row with what the scheduler would have done, where it finds a plan."""
    try:
        chosen = choice(point, sweep, scheduler)
    except LadderError:
        return row
    us = _rounded(chosen.us)
    return replace(
        row,
        chosen_us=us,
        chosen_placement=chosen.product.convert,
        chosen_plan=chosen.product.brief,
        price=None if row.modelled_us is None else round(row.modelled_us / us, 4),
    )


def _rounded(us: Any) -> float:
    return round(float(us), 3)
