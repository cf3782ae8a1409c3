"""What every decision of a plan has to be: one table, for ``schedule``, ``Plan.with_`` and the plan checker.

The table knows kinds (an integer, a text, a Tiling); which values make a legal plan is the business of
:mod:`ladder.scheduler.verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from ladder.checks import (
    TRUTH,
    Expected,
    accept,
    instance,
    integer,
    optional,
    several,
    shown,
    text,
)
from ladder.errors import LadderError
from ladder.graph.matmul import MAX_EXTENT, MatMul
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import (
    ACCESSES,
    COMPUTES,
    FAMILIES,
    LAUNCHES,
    LOOKUPS,
    PLACEMENTS,
    SCALES,
    ZEROS,
    Plan,
)
from ladder.scheduler.stage import EpilogueStage
from ladder.scheduler.tiling import Tiling
from ladder.ttile import Device

#: decisions that are one of some words
OFFERED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "family": FAMILIES,
        "convert": PLACEMENTS,
        "lookup": LOOKUPS,
        "zero": ZEROS,
        "scale": SCALES,
        "access": ACCESSES,
        "compute": COMPUTES,
        "launch": LAUNCHES,
    }
)

OPERATOR = instance(MatMul, "ladder.matmul(m, n, k, activation=..., weight=...) makes one")

#: numbers of tokens, slots, warps and tiles; what makes sense of them the plan checker knows
COUNT = integer(most=MAX_EXTENT)

M_RANGE = several(
    optional(COUNT), "a pair of integers (least M, most M), most M None for no limit", 2
)


def _device(given: str | Device) -> Device:
    if isinstance(given, Device):
        return given
    from ladder.registry import devices

    found: Device = devices[given]
    return found


#: a device, also by name
DEVICE: Expected[Device] = Expected(
    "a Device or the name of one",
    lambda value: isinstance(value, (str, Device)),
    _device,
    "ladder.devices lists the names, ladder.load_device reads a file",
)


def _is_tiling(value: object) -> bool:
    return type(value) is Tiling and all(COUNT.fits(part) for part in vars(value).values())


def _tiling(value: Tiling) -> Tiling:
    return replace(value, **{name: int(part) for name, part in vars(value).items()})


def _is_m_range(value: object) -> bool:
    # M from None on would be no range
    return M_RANGE.fits(value) and value[0] is not None  # type: ignore[index]  # a pair, as just seen


def _word(decision: str) -> Expected[str]:
    """A text; whether it is one of those offered is a rule of the plan checker."""
    return text(f"one of {', '.join(OFFERED[decision])}")


#: decision -> what it has to be, for every field of a plan
DECISIONS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "op": OPERATOR,
        "device": DEVICE,
        "packing": instance(Packing, "that of another plan of the operator: plan.packing"),
        "family": _word("family"),
        "tiling": Expected(
            "a Tiling of integers",
            _is_tiling,
            _tiling,
            "from ladder.scheduler import Tiling; Tiling(warps_k=1, warps_n=4, warps_m=1, row_tiles=1, token_tiles=2)",
        ),
        "depth": COUNT,
        "convert": _word("convert"),
        "lookup": _word("lookup"),
        "zero": _word("zero"),
        "scale": _word("scale"),
        "split": COUNT,
        "persistent": TRUTH,
        "multicast": COUNT,
        "lookahead": TRUTH,
        "access": _word("access"),
        "compute": _word("compute"),
        "m_range": Expected(M_RANGE.wanted, _is_m_range, M_RANGE.form, "for example (0, 16)"),
        "launch": _word("launch"),
        "epilogue": several(
            instance(EpilogueStage, "start from ladder.scheduler.default_epilogue(op, packing)"),
            "a tuple of epilogue stages",
        ),
    }
)


def decided(given: Mapping[str, object], where: str, error: type[LadderError]) -> dict[str, Any]:
    """Decisions by name in the form in which a plan keeps them.

    Raises:
        LadderError: (of type ``error``) a decision is of another kind than the table says.
        DeviceError: a device's name is unknown.
    """
    return {
        name: accept(value, DECISIONS[name], name, at=f"{where}({name}=...)", error=error)
        for name, value in given.items()
    }


#: what the specialised family asks for, and what a plan that leaves it has instead
_SPECIALISED: Mapping[str, object] = MappingProxyType(
    {
        "family": "specialised",
        "convert": "register",
        "access": "tensor",
        "compute": "wgmma",
        "lookahead": False,
    }
)
_SHARED_RING: Mapping[str, object] = MappingProxyType(
    {
        "family": "ring",
        "access": "vector",
        "compute": "mma",
        "zero": "sums",
        "scale": "accumulator",
        "split": 1,
        "persistent": False,
        "multicast": 1,
    }
)


#: what columns that are steps ask for
_COLUMN: Mapping[str, object] = MappingProxyType(
    {"family": "skinny", "convert": "register", "compute": "mma", "lookahead": False}
)


def completed(plan: Plan, given: Mapping[str, Any]) -> dict[str, Any]:
    """Decisions by hand, with what has to be given up for them.

    Whatever the specialised family does not have makes the plan one of the ring family; converting in shared memory rules
    out warpgroup products and lookahead; what columns that are steps do not have leaves activations to the ring. What was given by name is kept, for the plan checker to judge.
    """
    left = plan.family == "specialised" and any(
        given.get(name, kept) != kept for name, kept in _SPECIALISED.items()
    )
    ring = dict(_SHARED_RING) if left else {}
    if left and given.get("compute") == "wgmma":
        ring |= {"lookahead": True, "zero": "register"}
    if given.get("convert", plan.convert) == "shared":
        ring |= {"compute": "mma", "lookahead": False}
    if plan.access == "column" and not _is_one_token(plan, given):
        ring |= {"access": "vector"}
    return {**ring, **given}


def _is_one_token(plan: Plan, given: Mapping[str, Any]) -> bool:
    """Whether activations still lie in registers, the steps of a block in the columns of a product."""
    left = any(given.get(name, kept) != kept for name, kept in _COLUMN.items())
    most = given.get("m_range", plan.m_range)[1]
    tiling = given.get("tiling", plan.tiling)
    return not left and most is not None and most <= 1 and tiling.token_tiles == 1


#: the same for a plan itself, which holds its device by value
_HELD: Mapping[str, Expected[Any]] = MappingProxyType({**DECISIONS, "device": instance(Device)})


def _is_in_form(value: object, form: object) -> bool:
    """Whether a value is what its kind makes of it, down to the types of its parts."""
    if type(value) is not type(form):
        return False
    if isinstance(value, Tiling):
        value, form = tuple(vars(value).values()), tuple(vars(form).values())
    if not isinstance(value, tuple):
        return True
    return all(type(a) is type(b) for a, b in zip(value, cast("tuple[object]", form), strict=True))


def misfits(plan: Plan) -> Iterator[tuple[str, str]]:
    """What is wrong with the kinds of a plan's decisions, each with a hint; a plan holds Python's own forms."""
    for name, kind in _HELD.items():
        value = getattr(plan, name)
        if not kind.fits(value) or not _is_in_form(value, kind.form(value)):
            yield f"{name} is {shown(value)}, not {kind.wanted}", kind.hint or f"give {kind.wanted}"
