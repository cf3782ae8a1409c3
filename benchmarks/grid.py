"""What is timed: weights x shapes x tokens x activations x launches, each point a :class:`Case`.

A weight's row name is that of its element or block format; the exact type stands in :data:`WEIGHTS` and in every row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import ladder

if TYPE_CHECKING:
    from ladder.graph import MatMul
    from ladder.ttype import GroupedType

DEVICE = "h200"

#: row name -> the exact weight type
WEIGHTS: dict[str, Callable[[], GroupedType]] = {
    "int4": lambda: ladder.types["int4"].grouped(128, scale="float16", zero="integer"),
    "nf4": lambda: ladder.types["nf4"].grouped(64, scale="float16"),
    "mxfp4": lambda: ladder.types["mxfp4"],
    "int8": lambda: ladder.types["int8"].grouped(128, scale="float16"),
    "fp8_e4m3fn": lambda: ladder.types["fp8_e4m3fn"].grouped(128, scale="float16"),
    "int3": lambda: ladder.types["int3"].grouped(128, scale="float16"),
    "int2": lambda: ladder.types["int2"].grouped(128, scale="float16"),
    "int1": lambda: ladder.types["int1"].grouped(128, scale="float16"),
}

#: (N, K)
SHAPES = ((4096, 4096), (8192, 8192), (8192, 28672))
TOKENS = (1, 16, 64, 256)
ACTIVATIONS = ("float16", "bfloat16")

#: programmatic launch starts a kernel's loads under the end of the one before: it matters where kernels are short
LAUNCHES = ("plain", "pdl")
PDL_TOKENS = 16

#: a grid that touches each part once: both families, a table, both activations
QUICK = {"weight": ("int4", "nf4"), "n": ("4096",), "m": ("1", "256")}


@dataclass(frozen=True, slots=True)
class Case:
    """One row's problem: y[m, n] = x[m, k] @ w[n, k].T; the output has the activation's type."""

    weight: str
    n: int
    k: int
    m: int
    activation: str
    launch: str = "plain"

    @property
    def type(self) -> GroupedType:
        """The exact weight type."""
        return WEIGHTS[self.weight]()

    @property
    def name(self) -> str:
        """A file name that tells this case from all others."""
        return f"{self.weight}-{self.n}x{self.k}-m{self.m}-{self.activation}-{self.launch}"

    @property
    def operator(self) -> MatMul:
        """The matmul."""
        op: MatMul = ladder.matmul(
            self.m,
            self.n,
            self.k,
            activation=self.activation,
            weight=self.type,
            out=self.activation,
        )
        return op

    def plan(self, device: str = DEVICE) -> Any:
        """The scheduler's choice, with the launch of the case."""
        return ladder.schedule(self.operator, device, launch=self.launch)

    def __str__(self) -> str:
        return self.name


def grid() -> Iterator[Case]:
    """All cases: those that share weights are neighbours, so that each weight is packed once."""
    for (n, k), weight, activation in itertools.product(SHAPES, WEIGHTS, ACTIVATIONS):
        for m, launch in itertools.product(TOKENS, LAUNCHES):
            if launch == "plain" or m <= PDL_TOKENS:
                yield Case(weight, n, k, m, activation, launch)


def describe(plan: Any) -> str:
    """A plan's decisions in one line, its product instruction among them."""
    return f"{plan.brief}, {plan.instruction}"


Filter = dict[str, tuple[str, ...]]


def parse_filter(terms: Sequence[str]) -> Filter:
    """``["weight=int4,nf4", "m=1"]`` -> field -> accepted values.

    Raises:
        ValueError: a term is not of that form, or names no field of a case.
    """
    known = [field.name for field in fields(Case)]
    accepted: Filter = {}
    for term in terms:
        name, equals, values = term.partition("=")
        if not equals or name not in known or not values:
            raise ValueError(f"{term!r} is no filter: NAME=VALUE[,VALUE] with NAME of {known}")
        accepted[name] = tuple(values.split(","))
    return accepted


def select(cases: Sequence[Case], accepted: Filter) -> tuple[Case, ...]:
    """The cases whose fields are among the accepted values."""
    return tuple(
        case
        for case in cases
        if all(str(getattr(case, name)) in values for name, values in accepted.items())
    )


def chosen(only: Sequence[str], *, quick: bool) -> tuple[Case, ...]:
    """The cases that a command line asks for."""
    return select(tuple(grid()), {**(QUICK if quick else {}), **parse_filter(only)})
