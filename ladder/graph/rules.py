"""Which weights and activations get which types: rules in Python or in a TOML file.

    rules = [Rule(name="*lm_head", weight=None), Rule(weight="int4", group=128, zero="integer")]

    # the same as a file
    [[rule]]
    name = "*lm_head"
    weight = "keep"

    [[rule]]
    weight = "int4"
    group = 128
    zero = "integer"

The first rule that fits a layer decides about it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ladder.checks import TEXT, Expected, accept_fields, integer, number, one_of, optional, shown
from ladder.errors import GraphError, TypeDeclarationError
from ladder.graph.graph import Node
from ladder.graph.operators import ROW_TARGETS, Coded
from ladder.graph.tensor import TensorType
from ladder.ttype import Granularity, GroupedType, TType, Zero, weight_type

#: how a rule says that a layer stays as it is
KEEP = "keep"

#: type of the scales of groups, where a rule does not say another
SCALE = "float16"

#: compute types that activations are read in, and types that rows of them are quantised to
READ_AS = ("float16", "bfloat16", *ROW_TARGETS)

#: field -> what it has to be
_RULE: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("name", "operator"), TEXT),
        "activation": one_of(READ_AS),
        "out": one_of(("", "float16", "bfloat16", "float32")),
        "min_size": integer(0),
        "max_size": optional(integer(0)),
        "activation_scale": optional(number(above_zero=True)),
    }
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Types for the layers that it fits.

    Attributes:
        weight: a grouped type, an element, the name of one, or None (``"keep"`` in a file) to leave a layer as it is.
        group: granularity for an element, see ``TType.grouped``; None takes the element without scales.
        scale: type of the scales of a group.
        zero: convention of zero points, or None.
        activation: what a kernel reads x as: a float type, or a type that rows are quantised to while the model runs.
        activation_scale: one scale for all rows that are quantised; None for the model's own where it quantises x to the same
            type without a zero point, else the scales that rows have by themselves.
        out: type of y; "" for that of the model.
        name: pattern of the layer's or its weight's name, with ``*`` and ``?``.
        operator: kind of operator; only ``linear`` has low-bit kernels.
        min_size: least elements of the weight.
        max_size: most elements of the weight, None for no limit.

    Raises:
        TypeDeclarationError: a field is of another kind, or the type does not exist.
    """

    weight: GroupedType | TType | str | None
    group: Granularity | None = None
    scale: str = SCALE
    zero: Zero | None = None
    activation: str = "float16"
    out: str = ""
    name: str = "*"
    operator: str = "linear"
    min_size: int = 0
    max_size: int | None = None
    activation_scale: float | None = None

    def __post_init__(self) -> None:
        accept_fields(self, _RULE, at="Rule", error=TypeDeclarationError)
        if self.group is None and (self.zero is not None or self.scale != SCALE):
            raise TypeDeclarationError(
                f"scale {shown(self.scale)} and zero {shown(self.zero)} belong to groups",
                at="Rule",
                hint='give group too, a number of columns or "channel"',
            )
        if self.activation_scale is not None:
            Coded(self.activation, self.activation_scale)  # refuses what activations cannot have
        _ = self.type  # refuses a type that does not exist where the rule is written

    @property
    def type(self) -> GroupedType | None:
        """The weight's type; None leaves it as it is."""
        if self.weight is None or (isinstance(self.weight, str) and self.weight == KEEP):
            return None
        found = weight_type(self.weight)
        if self.group is None:
            return found
        return found.element.grouped(self.group, scale=self.scale, zero=self.zero)

    def fits(self, node: Node, weight_name: str, weight: TensorType) -> bool:
        """Whether the rule is for a layer."""
        extents = [extent for extent in weight.shape if isinstance(extent, int)]
        size = prod(extents)
        return (
            node.op.kind == self.operator
            and (fnmatchcase(node.name, self.name) or fnmatchcase(weight_name, self.name))
            and size >= self.min_size
            and (self.max_size is None or size <= self.max_size)
        )

    def __str__(self) -> str:
        what = self.type.name if self.type is not None else "as it is"
        where = "" if self.name == "*" else f" for {self.name}"
        return f"{what}, x {self.activation}{where}"


def rules_of(given: Any) -> tuple[Rule, ...]:
    """Rules from whatever says them: a rule, several, the path of a TOML file, or a type for every layer.

    Raises:
        GraphError: it says none.
        TypeDeclarationError: a rule contradicts itself.
    """
    if isinstance(given, Rule):
        return (given,)
    if isinstance(given, (GroupedType, TType)):
        return (Rule(weight=given),)
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".toml")):
        return read_rules(given)
    if isinstance(given, str):
        return (Rule(weight=given),)
    if isinstance(given, (list, tuple)):
        found = tuple(given)
        if found and all(isinstance(one, Rule) for one in found):
            return found
    raise GraphError(
        f"{shown(given)} says no rules",
        at="assign",
        hint="give ladder.Rule(weight=...), a list of them, or the path of a .toml file",
    )


def read_rules(path: str | Path) -> tuple[Rule, ...]:
    """The ``[[rule]]`` tables of a TOML file, in order.

    Raises:
        GraphError: the file cannot be read, or holds no rules or unknown fields.
    """
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document = toml.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GraphError(
            f"the rules cannot be read: {error}", at=path, hint="it is TOML with [[rule]] tables"
        ) from error
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise GraphError(
            f"rule is {shown(tables)}, not a list of tables",
            at=path,
            hint="each rule stands under [[rule]], with two brackets",
        )
    known = {field.name for field in fields(Rule)}
    rules = []
    for table in tables:
        if unknown := sorted(set(table) - known):
            raise GraphError(
                f"a rule has no field {', '.join(unknown)}",
                at=path,
                hint=f"there are: {', '.join(sorted(known))}",
            )
        if "weight" not in table:
            raise GraphError(
                f"the rule {shown(table)} says no weight", at=path, hint='weight = "keep" leaves it'
            )
        group = table.get("group")
        rules.append(
            Rule(**{**table, **({"group": tuple(group)} if isinstance(group, list) else {})})
        )
    if not rules:
        raise GraphError("the file holds no rules", at=path, hint="write [[rule]] tables")
    return tuple(rules)
