"""What is varied: the axes of a sweep as one frozen value, and its points in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ladder.checks import (
    TEXT,
    Expected,
    accept_fields,
    integer,
    one_of,
    optional,
    refuse_unknown,
    several,
)
from ladder.errors import ExperimentError
from ladder.graph.matmul import ACTIVATIONS, MAX_EXTENT
from ladder.graph.quantize_activations import TARGETS
from ladder.registry import types
from ladder.scheduler.decisions import DEVICE, decided
from ladder.scheduler.search import FIXABLE
from ladder.ttile import Device
from ladder.ttype import ComputeType, GroupedType, TType, element_type
from ladder.ttype.group import ZERO, Zero

#: where codes of a weight become numbers (docs/experiments/placement.md)
PLACEMENTS = ("offline", "global", "shared", "register")
#: where activations are quantised, if they are: by a kernel of their own, or by the operator that makes them
SOURCES = ("global", "source")

#: decisions of a plan by name, in the order in which they were given
Fixed = tuple[tuple[str, Any], ...]
#: extents of a group along rows and K (None: all), "channel", "tensor", or None: the type as it is
Group = Any


@dataclass(frozen=True)
class Point:
    """One combination of a sweep.

    Attributes:
        n, k, m: output channels, columns, tokens.
        weight: an element, or a type that has its groups.
        group: of an element; None leaves it bare.
        activation: type of x: a float type, or one that x is quantised to.
        source: where x is quantised, of :data:`SOURCES`.
        device: whose kernels run.
        placement: where the weight is converted, of :data:`PLACEMENTS`.
        fixed: further decisions of the product's plan.
    """

    n: int
    k: int
    m: int
    weight: TType | GroupedType
    group: Group
    activation: str
    source: str
    device: Device
    placement: str
    fixed: Fixed = ()

    def type_of(self, scale: str, zero: Zero | None) -> GroupedType:
        """The weight's type with its groups.

        Raises:
            TypeDeclarationError: the type cannot have them.
        """
        if isinstance(self.weight, GroupedType):
            return self.weight
        if self.group is None:
            return GroupedType(self.weight, scale=None)
        return self.weight.grouped(self.group, scale=scale, zero=zero)


def _weight(given: Any) -> TType | GroupedType:
    found: Any = types[given] if isinstance(given, str) else given
    return element_type(found) if isinstance(found, ComputeType) else found


WEIGHT: Expected[TType | GroupedType] = Expected(
    "a weight type or the name of one",
    lambda value: isinstance(value, (str, TType, GroupedType, ComputeType)),
    _weight,
    "ladder.types lists the names",
)


def _is_group(value: object) -> bool:
    if value is None or isinstance(value, str):
        return value in ("channel", "tensor", None)
    return integer(1).fits(value) or several(optional(integer(1)), "a pair", 2).fits(value)


def _group(value: Any) -> Group:
    if value is None or isinstance(value, str):
        return value
    pair = several(optional(integer(1)), "a pair", 2)
    return pair.form(value) if pair.fits(value) else integer(1).form(value)


GROUP: Expected[Group] = Expected(
    "a group: an integer, a pair, 'channel', 'tensor' or None",
    _is_group,
    _group,
)


def _fixed(value: Any) -> Fixed:
    return tuple(dict(value).items())


def _is_fixed(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value)
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    )


FIXED: Expected[Fixed] = Expected(
    "a mapping from decision to value", _is_fixed, _fixed, "for example {'family': 'ring'}"
)


def _axis(kind: Expected[Any], plural: str) -> Expected[tuple[Any, ...]]:
    """At least one value of a kind."""
    some = several(kind, f"a tuple of {plural}")
    return Expected(
        some.wanted, lambda value: some.fits(value) and bool(value), some.form, some.hint
    )


_EXTENT = integer(1, MAX_EXTENT)

#: field -> what it has to be
_FIELDS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "shapes": _axis(several(_EXTENT, "(n, k)", 2), "(n, k), output channels first"),
        "weights": _axis(WEIGHT, "weight types"),
        "ms": _axis(_EXTENT, "numbers of tokens"),
        "groups": _axis(GROUP, "groups"),
        "activations": _axis(one_of((*ACTIVATIONS, *TARGETS)), "activation types"),
        "sources": _axis(one_of(SOURCES), f"{', '.join(SOURCES)}"),
        "placements": _axis(one_of(PLACEMENTS), f"{', '.join(PLACEMENTS)}"),
        "devices": _axis(DEVICE, "devices"),
        "fixed": _axis(FIXED, "mappings from decision to value"),
        "compute": one_of(ACTIVATIONS),
        "scale": TEXT,
        "zero": ZERO,
        "seed": integer(0),
        "name": TEXT,
    }
)


@dataclass(frozen=True)
class Sweep:
    """The axes of an experiment: every combination is a point, whether it can be had or not.

    >>> sweep = Sweep(shapes=[(8192, 8192)], weights=["int4", "nf4"], groups=[64], ms=[1, 4096])
    >>> len(list(sweep.points())), sweep.devices[0].name
    (16, 'h200')

    Attributes:
        shapes: (n, k) of the weight, output channels first.
        weights: elements, or types with groups of their own, also by name.
        ms: numbers of tokens, at least 1.
        groups: for weights that are elements; types that have groups keep them, once.
        activations: types of x; int8 and fp8_e4m3fn are quantised to, row by row.
        sources: where that happens; of no matter for float types, which stand once.
        placements: where the weight is converted.
        devices: also by name.
        fixed: decisions of the product's plan that are fixed by hand: family, tiling, depth, access, packing, ...
        compute: type that weights are decoded to where activations are quantised, and type of the output.
        scale: type of the scales of groups.
        zero: convention of their zero points, or None.
        seed: of the operands of measurements.
        name: of the experiment.

    Raises:
        ExperimentError: an axis is empty or holds something else, or a plan has no such decision.
        TypeDeclarationError, DeviceError: a name is unknown.
    """

    shapes: tuple[tuple[int, int], ...]
    weights: tuple[TType | GroupedType, ...]
    ms: tuple[int, ...]
    groups: tuple[Group, ...] = (None,)
    activations: tuple[str, ...] = ("float16",)
    sources: tuple[str, ...] = ("global",)
    placements: tuple[str, ...] = PLACEMENTS
    devices: tuple[Device, ...] = ("h200",)  # type: ignore[assignment]  # names become devices below
    fixed: tuple[Fixed, ...] = ((),)
    compute: str = "float16"
    scale: str = "float16"
    zero: Zero | None = None
    seed: int = 0
    name: str = "sweep"

    def __post_init__(self) -> None:
        accept_fields(self, _FIELDS, at="Sweep", error=ExperimentError)
        decisions = tuple(tuple(self._decided(dict(one)).items()) for one in self.fixed)
        object.__setattr__(self, "fixed", decisions)

    def _decided(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Decisions by hand in the form in which a plan keeps them; what makes a legal plan, points find out."""
        at = "Sweep(fixed=...)"
        if "convert" in given:
            raise ExperimentError(
                "convert is fixed beside placements",
                at=at,
                hint="they are one decision: placements=['shared']",
            )
        refuse_unknown(given, FIXABLE, "a plan has no decision", at=at, error=ExperimentError)
        wanted = {name: value for name, value in given.items() if value is not None}
        return decided(wanted, "Sweep.fixed", ExperimentError)

    def points(self) -> Iterator[Point]:
        """All combinations, the last axis fastest: device, shape, weight, activation, m, decisions, placement."""
        for device, (n, k), (weight, group), (
            activation,
            source,
        ), m, fixed, placement in itertools.product(
            self.devices,
            self.shapes,
            self._types(),
            self._inputs(),
            self.ms,
            self.fixed,
            self.placements,
        ):
            yield Point(n, k, m, weight, group, activation, source, device, placement, fixed)

    def _types(self) -> list[tuple[TType | GroupedType, Group]]:
        found: list[tuple[TType | GroupedType, Group]] = []
        for weight in self.weights:
            groups = self.groups if isinstance(weight, TType) else (None,)
            found += [(weight, group) for group in groups]
        return found

    def _inputs(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for activation in self.activations:
            sources = self.sources if activation in TARGETS else self.sources[:1]
            found += [(activation, source) for source in sources]
        return found
