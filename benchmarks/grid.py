"""What is timed: suites of weights x shapes x tokens x activations x launches, each point a :class:`Case`.

A weight's row name is that of its element or block format; the exact type stands in :mod:`benchmarks.weights` and in every
row. A suite is a table of :class:`Block`; a new one is a new entry of :data:`SUITES`, of
:data:`QUICK` for its short form, and of :data:`benchmarks.bars.BARS` for what it has to reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ladder
from benchmarks.weights import BASE, WEIGHTS

if TYPE_CHECKING:
    from ladder.graph import MatMul
    from ladder.ttile import Device
    from ladder.ttype import GroupedType

DEVICE = "h200"

#: (N, K)
Shape = tuple[int, int]
SHAPES: tuple[Shape, ...] = ((4096, 4096), (8192, 8192), (8192, 28672))
TOKENS = (1, 16, 64, 256)
ACTIVATIONS = ("float16", "bfloat16")

#: activations of 8 bits have a scale a row; y is then float16
EIGHT_BITS = ("int8", "fp8_e4m3fn")

#: programmatic launch starts a kernel's loads under the end of the one before: it matters where kernels are short
LAUNCHES = ("plain", "pdl")
PDL_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Block:
    """A product of axes.

    Attributes:
        weights: row names of :data:`~benchmarks.weights.WEIGHTS`.
        shapes: (N, K).
        tokens: M.
        activations: types of x, and of y but for those of :data:`EIGHT_BITS`.
        pdl_tokens: most tokens with which programmatic launch is timed beside the plain one.
        any_m: kernels of one operator for any M, chosen by the M of the call, instead of one planned for this M alone.
        epilogues: what kernels do to their sums, each steps of :data:`~ladder.graph.epilogue.KERNEL_STEPS` joined by "+".
        like: device whose features alone are planned with, on the device that measures; "" for its own.
    """

    weights: tuple[str, ...]
    shapes: tuple[Shape, ...]
    tokens: tuple[int, ...]
    activations: tuple[str, ...] = ("float16",)
    pdl_tokens: int = 0
    any_m: bool = False
    like: str = ""
    epilogues: tuple[str, ...] = ("",)

    def cases(self, suite: str) -> Iterator[Case]:
        """Every point of the block."""
        axes = (self.shapes, self.weights, self.activations, self.tokens, LAUNCHES, self.epilogues)
        for (n, k), weight, activation, m, launch, steps in itertools.product(*axes):
            if launch == "plain" or m <= self.pdl_tokens:
                yield Case(weight, n, k, m, activation, launch, self.any_m, suite, self.like, steps)


SQUARE, TALL, WIDE = (8192, 8192), (28672, 8192), (8192, 28672)
MIDDLE: tuple[Shape, ...] = ((14336, 4096), (4096, 14336), (4096, 4096))

#: formats beside int4 with zeros at the memory limit
DECODE_FORMATS = (
    *("int4_sym", "int3", "int2", "mxfp4", "int8", "fp8_e4m3fn", "nf4_g128", "codebook4"),
    *("codebook3", "uint2", "uint1", "fp4_e2m1", "nvfp4", "fp6_e3m2", "fp8_e5m2", "int6"),
)
#: formats that are timed with bfloat16 activations too
BFLOAT16 = ("int4", "int8", "nf4_g128", "mxfp4")
#: formats beside int4 with zeros at the tensor core's limit
PREFILL_FORMATS = (
    *("int3", "int5", "fp6_e3m2", "nf4_g128", "codebook4", "int8", "fp8_e4m3fn", "int2", "mxfp4"),
)

#: weights of 4 and of 8 bits, scaled by channels, for each type of activations of 8 bits
EIGHT_BIT_WEIGHTS = {
    "int8": ("int4_channel", "int8_channel"),
    "fp8_e4m3fn": ("fp4_e2m1_channel", "fp8_e4m3fn_channel"),
}

#: gate and up projection of a model of 70 billion parameters as one layer, and its down projection
GATE_AND_UP, DOWN = (57344, 8192), WIDE
EPILOGUE_TOKENS = (1, 32, 4096)

#: name -> what is timed under it
SUITES: Mapping[str, tuple[Block, ...]] = MappingProxyType(
    {
        "base": (Block(tuple(BASE), SHAPES, TOKENS, ACTIVATIONS, pdl_tokens=PDL_TOKENS),),
        "decode": (
            Block(
                weights=("int4",),
                shapes=(TALL, WIDE, SQUARE, *MIDDLE, (1024, 8192)),
                tokens=(1, 8, 16, 32, 64),
                pdl_tokens=64,
            ),
            Block(DECODE_FORMATS, (SQUARE, TALL), (1, 16, 64), pdl_tokens=64),
            Block(("int4_g32", "int4_g64"), (SQUARE, TALL), (1, 16, 64), pdl_tokens=64),
            Block(BFLOAT16, (SQUARE, TALL), (1, 16, 64), ("bfloat16",), pdl_tokens=64),
        ),
        "prefill": (
            Block(
                weights=("int4",),
                shapes=(SQUARE, TALL, WIDE, *MIDDLE),
                tokens=(128, 256, 512, 1024, 2048, 4096),
            ),
            Block(PREFILL_FORMATS, (SQUARE,), (256, 1024, 4096)),
        ),
        "dense": tuple(
            Block((name,), (SQUARE, TALL, WIDE, *MIDDLE), (1, 16, 64, 256, 1024, 4096), (name,))
            for name in ACTIVATIONS
        ),
        "prefill8": tuple(
            Block(
                weights=weights,
                shapes=(SQUARE, (4096, 4096), TALL),
                tokens=(1, 16, 64, 256, 1024, 4096),
                activations=(activation,),
            )
            for activation, weights in EIGHT_BIT_WEIGHTS.items()
        ),
        "epilogue": tuple(
            Block(("int4",), (shape,), EPILOGUE_TOKENS, pdl_tokens=32, epilogues=("", steps))
            for shape, steps in ((GATE_AND_UP, "silu_gate"), (DOWN, "residual"))
        ),
        "ampere": (
            Block(("int4",), (SQUARE, *MIDDLE), (1, 16, 64, 256, 1024, 4096), like="a100"),
            Block(("int4_channel",), (SQUARE,), (16, 256, 1024), ("int8",), like="a100"),
        ),
        "sweep": (Block(("int4",), (SQUARE,), (*range(1, 65), *range(72, 513, 8)), any_m=True),),
    }
)

#: the part of a suite that touches each kind of kernel once
QUICK: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "base": {"weight": ("int4", "nf4"), "n": ("4096",), "m": ("1", "256")},
        "decode": {
            "weight": ("int4", "codebook3", "nvfp4"),
            "n": ("8192",),
            "k": ("8192",),
            "m": ("1", "64"),
        },
        "prefill": {
            "weight": ("int4", "int3"),
            "n": ("8192",),
            "k": ("8192",),
            "m": ("256", "4096"),
        },
        "dense": {"n": ("8192",), "k": ("8192",), "m": ("1", "256", "4096")},
        "prefill8": {"n": ("8192",), "m": ("16", "4096")},
        "epilogue": {"m": ("4096",)},
        "ampere": {"n": ("8192",), "m": ("16", "1024")},
        "sweep": {"m": ("1", "8", "9", "64", "512")},
    }
)

Suite = Annotated[
    list[str], typer.Option("--suite", help=f"one of {', '.join(SUITES)}; may be given again")
]
Only = Annotated[
    list[str], typer.Option("--only", help="weight=int4,nf4 | m=1 | n=8192 | ...; all must hold")
]
Quick = Annotated[bool, typer.Option("--quick", help="a subset that touches each part once")]


@dataclass(frozen=True, slots=True)
class Case:
    """One row's problem: y[m, n] = x[m, k] @ w[n, k].T; the output has the activation's type, or is float16.

    With ``any_m`` the kernel is that which an operator for any M has for this one; with ``like`` that of a device with no more
    features than the one named has. ``epilogue`` holds steps, joined by "+".
    """

    weight: str
    n: int
    k: int
    m: int
    activation: str
    launch: str = "plain"
    any_m: bool = False
    suite: str = "base"
    like: str = ""
    epilogue: str = ""

    @property
    def type(self) -> GroupedType:
        """The exact weight type."""
        return WEIGHTS[self.weight]()

    @property
    def name(self) -> str:
        """What tells this case from all others of its suite."""
        kind = "any-m" if self.any_m else "m"
        return f"{self.weight}-{self.n}x{self.k}-{kind}{self.m}-{self._how}"

    @property
    def artifact(self) -> str:
        """File name of the kernel, which cases of one operator share."""
        m = "any-m" if self.any_m else f"m{self.m}"
        return f"{self.weight}-{self.n}x{self.k}-{m}-{self._how}"

    @property
    def _how(self) -> str:
        like = f"-like-{self.like}" if self.like else ""
        steps = f"-{self.epilogue}" if self.epilogue else ""
        return f"{self.activation}-{self.launch}{like}{steps}"

    @property
    def packed(self) -> tuple[int, int, str, str, str, bool]:
        """What cases that share a packed weight agree in."""
        return self.n, self.k, self.weight, self.activation, self.like, self.operator.gated

    @property
    def operator(self) -> MatMul:
        """The matmul, for this M or for any."""
        op: MatMul = ladder.matmul(
            None if self.any_m else self.m,
            self.n,
            self.k,
            activation=self.activation,
            weight=self.type,
            out="float16" if self.activation in EIGHT_BITS else self.activation,
            activation_scale=self.activation in EIGHT_BITS,
            epilogue=self.epilogue.split("+") if self.epilogue else (),
        )
        return op

    def plan(self, device: str = DEVICE) -> Any:
        """The scheduler's choice, with the launch of the case; a plan set where the operator takes any M."""
        return ladder.schedule(self.operator, planned_on(device, self.like), launch=self.launch)

    def __str__(self) -> str:
        return self.name


def planned_on(device: str, like: str) -> Device:
    """A device, or one of its size and speed that can do no more than another one."""
    own = ladder.devices[device]
    if not like:
        return own
    less = ladder.devices[like]
    return replace(
        own,
        name=f"{device}-like-{like}",
        features=own.features & less.features,
        instruction_set=tuple(i for i in own.instruction_set if i.needs <= less.features),
    )


def grid(*suites: str) -> tuple[Case, ...]:
    """All cases of some suites (``base`` if none is named): those that share weights are neighbours, so that each weight
    is packed once, and those of one shape too, so that the peers' weights are made once.
    """
    blocks = [(suite, block) for suite in suites or ("base",) for block in SUITES[suite]]
    cases = dict.fromkeys(case for suite, block in blocks for case in block.cases(suite))
    shapes = list(dict.fromkeys((case.n, case.k) for case in cases))
    weights = list(dict.fromkeys(case.packed[2:] for case in cases))

    def place(case: Case) -> tuple[int, int, int, bool]:
        shape, weight = shapes.index((case.n, case.k)), weights.index(case.packed[2:])
        return shape, weight, case.m, case.any_m

    return tuple(sorted(cases, key=place))


def plan_for(plan: Any, m: int) -> Any:
    """The plan of ``m`` tokens: the one at hand, or that of a set."""
    return plan.plan_for(m) if isinstance(plan, ladder.PlanSet) else plan


def describe(plan: Any) -> str:
    """A plan's decisions in one line, its product instruction among them."""
    return f"{plan.brief}, {plan.instruction}"


Filter = Mapping[str, tuple[str, ...]]


def parse_filter(terms: Sequence[str]) -> Filter:
    """``["weight=int4,nf4", "m=1"]`` -> field -> accepted values.

    Raises:
        ValueError: a term is not of that form, or names no field of a case.
    """
    known = [field.name for field in fields(Case)]
    accepted: dict[str, tuple[str, ...]] = {}
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


def chosen(only: Sequence[str], *, quick: bool, suites: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases that a command line asks for.

    Raises:
        ValueError: a suite is unknown, or a filter means nothing.
    """
    found: list[Case] = []
    for suite in dict.fromkeys(suites or ("base",)):
        if suite not in SUITES:
            raise ValueError(f"no suite {suite!r}: one of {', '.join(SUITES)}")
        found += select(grid(suite), QUICK[suite] if quick else {})
    kept = set(select(found, parse_filter(only)))
    return tuple(case for case in grid(*suites) if case in kept)


def asked(only: Sequence[str], *, quick: bool, suites: Sequence[str]) -> tuple[Case, ...]:
    """:func:`chosen` for a command line, whose mistakes are said as such.

    Raises:
        typer.BadParameter: a suite is unknown, a filter means nothing, or nothing is left.
    """
    try:
        cases = chosen(only, quick=quick, suites=suites)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not cases:
        raise typer.BadParameter(f"no case of {', '.join(suites)} fits {' and '.join(only)}")
    return cases
