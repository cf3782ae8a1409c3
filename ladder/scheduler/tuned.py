"""Measured plans, handed to the scheduler as a protocol: what an entry says, and what is checked before it is used.

The scheduler asks a :class:`TunedPlans` (the runtime's database is one) and believes nothing of the answer: an entry is
used only after it was found to be for this operator, device, architecture and packing, and after its plan passed every
rule of :mod:`ladder.scheduler.verify` for the M at hand. Whatever fails is announced and not used.

An entry is for one M. There is no rounding of M: an operator with M = 7 never gets the entry of M = 8, nor K = 126 that of
K = 128. For any M (``op.m is None``) an entry *ends a range*: the plan measured at M = 16 serves the M above the entry or
limit before it up to 16, after it was verified for that whole range, as the estimate is made at a range's largest M too.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from ladder.errors import LadderError
from ladder.graph.matmul import MatMul
from ladder.scheduler.epilogue import default_epilogue
from ladder.scheduler.packing import PACKING_VERSION, Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.serial import FORMATS, decode, encode
from ladder.scheduler.verify import problems
from ladder.ttile import Device

#: raised whenever plans lower to kernels so different that times measured before no longer rank them
TUNED_VERSION = 1

#: fields of a plan that say what is computed, where, and for which M; all others are decisions that tuning compares
GIVEN = frozenset({"op", "device", "packing", "m_range", "epilogue"})

#: what decoding raises for a text that was changed by hand
_MISREAD = (LadderError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class TunedPlan:
    """The plan that was the fastest of those measured, for one operator with one M on one device.

    Attributes:
        operator: :func:`identity` of the operator, its M included.
        device: name of the device's description.
        arch: the architecture that the kernels were compiled for, suffix included.
        version: :func:`version` of the scheduler that made the plan.
        packing: :func:`packing_identity` of the packing that all measured candidates read.
        decisions: what :func:`decisions_of` made of the plan, JSON text.
        us: microseconds of a launch, measured.
        source: where the entry stands, for messages.
    """

    operator: str
    device: str
    arch: str
    version: str
    packing: str
    decisions: str
    us: float
    source: str = "memory"


class TunedPlans(Protocol):
    """Where measured plans are kept."""

    def lookup(self, op: MatMul, device: Device, launch: str) -> Sequence[TunedPlan]:
        """The entries for an operator with a fixed M and a kind of launch, those to be preferred first."""

    def tokens(self, op: MatMul, device: Device, launch: str) -> Sequence[int]:
        """The M for which the operator, whatever its own M, has entries."""


def version() -> str:
    """What an entry's decisions mean; an entry of another version is not read."""
    return (
        f"tuned/{TUNED_VERSION} {FORMATS[Plan].removeprefix('ladder.')} packing/{PACKING_VERSION}"
    )


def identity(op: MatMul) -> str:
    """Digest of an operator: types by their values, extents, bias."""
    return _digest(encode(op))


def packing_identity(packing: Packing) -> str:
    """Digest of a packing: equal digests mean that equal weights get equal bytes."""
    return _digest(encode(packing))


def decisions_of(plan: Plan) -> str:
    """The decisions of a plan that tuning compares, as JSON text; equal decisions give equal text."""
    return _text({name: encode(getattr(plan, name)) for name in _decided()})


def adopt(
    entry: TunedPlan,
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    m: int,
) -> Plan:
    """The plan of an entry, for M in ``m_range``; ``m`` is the one that it was measured with.

    Raises:
        ValueError: the entry is foreign, or its plan breaks a rule here; the text says which.
    """
    for what, found, wanted in (
        ("operator", entry.operator, identity(replace(op, m=m))),
        ("device", entry.device, device.name),
        ("architecture", entry.arch, device.arch),
        ("version", entry.version, version()),
        ("packing", entry.packing, packing_identity(packing)),
    ):
        if found != wanted:
            raise ValueError(f"it is of another {what}: {found}, here {wanted}")
    try:
        decided = {name: decode(node) for name, node in json.loads(entry.decisions).items()}
        unknown = sorted(set(decided) - set(_decided()))
        if unknown:
            raise ValueError(f"a plan has no decision {', '.join(unknown)}")
        given: dict[str, Any] = {"op": op, "device": device, "packing": packing}
        epilogue = default_epilogue(op, packing)
        plan = Plan(**given, m_range=m_range, epilogue=epilogue, **decided)
        broken = problems(plan)
    except _MISREAD as error:
        raise ValueError(f"it cannot be read: {error}") from error
    if broken:
        raise ValueError("; ".join(problem.what for problem in broken))
    return plan


def measured_plan(
    tuned: TunedPlans | None,
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    fixed: Mapping[str, Any],
) -> Plan | None:
    """The measured plan for the operator's M, else for the largest of the range; None where the search has to choose.

    What the caller fixed wins: an entry that decided otherwise is passed over, and so is every entry where the epilogue is
    not the operator's own. An entry that may not be used is announced by a RuntimeWarning.
    """
    m = m_range[1] if op.m is None else op.m
    if tuned is None or m is None or "epilogue" in fixed:
        return None
    asked = replace(op, m=m)
    for entry in tuned.lookup(asked, device, str(fixed.get("launch", "plain"))):
        try:
            plan = adopt(entry, op, device, packing, m_range, m)
        except ValueError as error:
            _announce(entry, asked, device, str(error))
            continue
        if all(getattr(plan, name) == value for name, value in fixed.items() if name not in GIVEN):
            return plan
    return None


def _announce(entry: TunedPlan, op: MatMul, device: Device, reason: str) -> None:
    warnings.warn(
        f"a tuned entry is not used: {reason}\n"
        f"  at: {entry.source}, for {op} on {device.name}\n"
        "  hint: the scheduler chooses by its cost model; `ladder tune` measures the operator again",
        RuntimeWarning,
        stacklevel=5,
    )


def _decided() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Plan) if field.name not in GIVEN)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()[:32]
