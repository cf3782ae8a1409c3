"""Choose a plan without measuring: candidates, their costs, and the cheapest of them.

>>> plan = schedule(matmul(1, 8192, 8192, activation="float16", weight=int4_g128), device="h200")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from ladder.checks import accept, optional, refuse_unknown, text
from ladder.errors import LosslessError, ScheduleError
from ladder.graph.dequantize import Dequantize
from ladder.graph.matmul import MatMul
from ladder.graph.quantize_activations import QuantizeActivations
from ladder.scheduler.choose import choose_packing
from ladder.scheduler.cost import Cost, estimate
from ladder.scheduler.decisions import DEVICE, OPERATOR, decided
from ladder.scheduler.dequantize_plan import DequantizePlan, schedule_dequantize
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import PLACEMENTS, Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.quantize_plan import QuantizePlan, schedule_quantize
from ladder.scheduler.ranking import cheapest, rank
from ladder.scheduler.tuned import TunedPlans, decisions_of, measured_plan
from ladder.scheduler.verify import WARPGROUP_TOKENS
from ladder.ttile import Device, type_bits
from ladder.ttile.device import GRID_LIMITS
from ladder.ttile.isa import pair, product_k
from ladder.ttype import MayOverflow, compute_type, losslessness

#: a range of M gets a kernel of its own if that is faster by this part
WORTH_A_KERNEL = 0.05

#: largest M of each range of a plan set; the last range has no limit
RANGE_ENDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, None)

#: where a range is cut further if the family of its plan has tiles that fit the parts, which then keep to that family
FINER_ENDS = (48, 80, 96, 144, 160, 192, 224, 288, 320, 384)
FINER_FAMILY = "specialised"
#: M from which ranges keep to that family once one has it: the more tokens, the further it is ahead
KEPT_FROM = 128

#: placements of convert that one kernel cannot have, and what to do instead
OTHER_PLACEMENTS = {
    "offline": "dequantise the weight once, and schedule a matmul with a dense one: weight='float16'",
    "global": "ladder.dequantize and a matmul with a dense weight: two kernels, not one plan",
}

PLACEMENT = optional(text(f"one of {', '.join(PLACEMENTS)}"))

#: decisions of a plan that a caller may fix
FIXABLE = (
    "family",
    "tiling",
    "depth",
    "convert",
    "lookup",
    "zero",
    "scale",
    "split",
    "persistent",
    "multicast",
    "lookahead",
    "access",
    "compute",
    "launch",
    "epilogue",
    "m_range",
    "packing",
)


@overload
def schedule(
    op: QuantizeActivations, device: str | Device = "h200", **fixed: Any
) -> QuantizePlan: ...
@overload
def schedule(op: Dequantize, device: str | Device = "h200", **fixed: Any) -> DequantizePlan: ...
@overload
def schedule(
    op: MatMul,
    device: str | Device = "h200",
    *,
    placement: str | None = None,
    tuned: TunedPlans | None = None,
    **fixed: Any,
) -> Plan | PlanSet: ...
def schedule(
    op: MatMul | QuantizeActivations | Dequantize,
    device: str | Device = "h200",
    *,
    placement: str | None = None,
    tuned: TunedPlans | None = None,
    **fixed: Any,
) -> Plan | PlanSet | QuantizePlan | DequantizePlan:
    """Choose how to run an operator on a device, in under a second and without measuring.

    Args:
        op: the operator; with ``m=None`` the answer is a :class:`PlanSet` over one packing. A quantisation of activations
            has one plan, a :class:`QuantizePlan`, the decoding of a weight a :class:`DequantizePlan`; they have neither placements
            nor measured plans.
        device: a device or the name of one.
        placement: where codes become compute values, ``"register"`` or ``"shared"`` (None: the search decides).
        tuned: measured plans, for example ``ladder.tuned()``; one that fits this operator, device and M exactly is
            taken, one that may not be used is announced by a RuntimeWarning. See :mod:`ladder.scheduler.tuned`.
        fixed: decisions of the plan to keep as given, for example ``family="ring"``, ``tiling=Tiling(...)``,
            ``depth=3``, ``access="scalar"`` (activations of any stride), ``launch="pdl"``. None leaves one to the
            search.

    Raises:
        ScheduleError: ``op`` is no operator, a decision is unknown or of another kind than the plan's, or no legal plan
            exists.
        DeviceError: the name of the device is unknown.
        LosslessError: the weight's codes may overflow in the activation's type.
    """
    target = accept(device, DEVICE, "device", at="schedule(device=...)", error=ScheduleError)
    beside = {"placement": placement, "tuned": tuned}
    if isinstance(op, QuantizeActivations):
        return schedule_quantize(op, target, {**_given(beside), **fixed})
    if isinstance(op, Dequantize):
        return schedule_dequantize(op, target, {**_given(beside), **fixed})
    op = accept(op, OPERATOR, "op", at="schedule", error=ScheduleError)
    decisions = fixed_decisions(placement, fixed)
    _refuse_types(op, target)
    _refuse_too_many_rows(op, decisions)
    packing = decisions.pop("packing", None) or choose_packing(op, target.features)
    given = decisions.pop("m_range", None)
    query = _Query(op, target, packing, decisions, tuned, {**fixed, **_placed(placement)})
    if op.m is not None:
        least, most = given or (op.m, op.m)
        return _plans(query, least, (most,))[0]
    least, ends = (0, _range_ends(query)) if given is None else (given[0], (given[1],))
    return PlanSet(_plans(query, least, ends))


def _given(decisions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in decisions.items() if value is not None}


@dataclass(frozen=True)
class _Query:
    """What is asked of the search: ``decisions`` hold what is not varied, ``asked`` what the caller fixed of it."""

    op: MatMul
    device: Device
    packing: Packing
    decisions: Mapping[str, Any]
    tuned: TunedPlans | None
    asked: Mapping[str, Any]


def _placed(placement: str | None) -> dict[str, Any]:
    return {} if placement is None else {"convert": placement}


def _plans(query: _Query, least: int, ends: Sequence[int | None]) -> tuple[Plan, ...]:
    """Plans of adjacent ranges of M from ``least`` on, measured ones where there are; those that agree are one."""
    op, device, packing = query.op, query.device, query.packing
    plans: list[Plan] = []
    for most in ends:
        found = measured_plan(query.tuned, op, device, packing, (least, most), query.asked)
        decisions = query.decisions
        if plans and plans[-1].family == FINER_FAMILY and least > KEPT_FROM:
            decisions = {**decisions, "family": FINER_FAMILY}
        best = found or cheapest(op, device, packing, (least, most), decisions)
        for part in (best,) if found else _cut(query, best):
            wider = _widened(plans[-1], part, measured=found is not None) if plans else None
            if wider is None:
                plans.append(part)
            else:
                plans[-1] = wider
        least = (most or 0) + 1
    return tuple(plans)


def _cut(query: _Query, best: Plan) -> list[Plan]:
    """The best plan of a range of M, after plans of its family for the parts of the range that have tiles of their own."""
    least, most = best.m_range
    if best.family != FINER_FAMILY or most is None:
        return [best]
    decisions = {**query.decisions, "family": best.family}
    parts: list[Plan] = []
    for end in FINER_ENDS:
        if least <= end < most:
            part = cheapest(query.op, query.device, query.packing, (least, end), decisions)
            parts.append(part)
            least = end + 1
    return [*parts, replace(best, m_range=(least, most))]


def shortlist(
    op: MatMul,
    device: str | Device,
    count: int,
    *,
    placement: str | None = None,
    **fixed: Any,
) -> tuple[tuple[Plan, Cost], ...]:
    """The plans worth measuring for an operator with a fixed M: at most ``count``, that of :func:`schedule` first.

    All of them read the operator's packing, so that any may be chosen for weights that are packed already.

    Raises:
        ScheduleError: the operator is for any M, a decision is unknown, or no legal plan exists.
        LosslessError: as :func:`schedule`.
    """
    op = accept(op, OPERATOR, "op", at="shortlist", error=ScheduleError)
    if op.m is None or count < 1:
        raise ScheduleError(
            f"plans are compared for one M, {count} of them",
            at=str(op),
            hint="give the operator an m, and a count of at least 1",
        )
    target = accept(device, DEVICE, "device", at="shortlist(device=...)", error=ScheduleError)
    decisions = fixed_decisions(placement, fixed)
    _refuse_types(op, target)
    _refuse_too_many_rows(op, decisions)
    packing = decisions.pop("packing", None) or choose_packing(op, target.features)
    m_range = decisions.pop("m_range", None) or (op.m, op.m)
    return rank(op, target, packing, m_range, decisions).ranked[:count]


def _range_ends(query: _Query) -> tuple[int | None, ...]:
    """Largest M of each range: those of the table, and those that were measured."""
    if query.tuned is None:
        return RANGE_ENDS
    launch = str(query.decisions.get("launch", "plain"))
    measured = query.tuned.tokens(query.op, query.device, launch)
    limits = {end for end in RANGE_ENDS if end is not None} | {m for m in measured if m > 0}
    return (*sorted(limits), None)


def _widened(before: Plan, best: Plan, *, measured: bool) -> Plan | None:
    """The plan of the ranges before, taking this one too, unless the best plan of this range is worth a kernel.

    A measured plan is worth one wherever it decides otherwise.
    """
    wider = replace(before, m_range=(before.m_range[0], best.m_range[1]))
    if measured and decisions_of(before) != decisions_of(best):
        return None
    if wider.check() or estimate(wider).us > (1 + WORTH_A_KERNEL) * estimate(best).us:
        return None
    return wider


def fixed_decisions(placement: str | None, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """What a caller of :func:`schedule` fixes, in the form in which a plan keeps it, ``placement`` as ``convert``.

    Raises:
        ScheduleError: a decision is unknown or of another kind than the plan's, or one kernel cannot have it.
    """
    refuse_unknown(
        fixed,
        ("placement", *FIXABLE),
        "a plan has no decision",
        at="schedule",
        error=ScheduleError,
    )
    wanted = {name: value for name, value in fixed.items() if value is not None}
    decisions = decided(wanted, "schedule", ScheduleError)
    where = accept(placement, PLACEMENT, "placement", at="schedule", error=ScheduleError)
    if where is None:
        where = decisions.get("convert")
    elif decisions.get("convert", where) != where:
        raise ScheduleError(
            f"placement is {where!r} and convert {decisions['convert']!r}",
            at="schedule",
            hint="they are one decision: give one of them",
        )
    if where is None:
        # Scratch for decoded weights and its traffic never pay on the mma families: measured, register wins.
        return {**decisions, "convert": "register"}
    if where in PLACEMENTS:
        return {**decisions, "convert": where}
    raise ScheduleError(
        f"convert cannot be placed in {where!r} by one kernel",
        at="schedule(placement=...)",
        hint=OTHER_PLACEMENTS.get(where, f"one of {', '.join(PLACEMENTS)}"),
    )


def _refuse_too_many_rows(op: MatMul, decisions: Mapping[str, Any]) -> None:
    """Refuse an M that no tiling of the tables covers with one grid."""
    most = GRID_LIMITS[1] * WARPGROUP_TOKENS
    if op.m is not None and op.m > most and "tiling" not in decisions:
        raise ScheduleError(
            f"M = {op.m} is more rows than one launch covers: {GRID_LIMITS[1]} CTAs of {WARPGROUP_TOKENS} tokens",
            at=op,
            hint=f"declare m=None and call with at most {most} rows at a time",
        )


def _refuse_types(op: MatMul, device: Device) -> None:
    """Refuse a weight whose values overflow beside the activations, and types that the device has no product of.

    Rounding is announced by ``plan.explain()``.
    """
    answer = losslessness(op.weight, op.weight_compute)
    if isinstance(answer, MayOverflow):
        raise LosslessError(
            f"{op.element} does not fit {op.activation}: {answer}",
            at=op,
            hint="use bfloat16 activations, or an element of smaller range",
        )
    weight, activation = op.weight_compute.name, op.activation.name
    if device.instructions(kind="compute", a=activation, w=weight):
        return
    name = f"mma.m16n8k{product_k(activation)}.{pair(weight, activation)}"
    others = [i.type_of("activation") for i in device.instructions(kind="compute")]
    wider = [t for t in dict.fromkeys(others) if t and type_bits(t) > op.activation.bits]
    alike = [t for t in wider if compute_type(t).is_float == op.activation.is_float]
    raise ScheduleError(
        f"{device.name} has no instruction {name}: the tensor cores of {device.arch} have no product of"
        f" {weight} weights with {activation} activations",
        at=op,
        hint=f"they have those of {', '.join(alike or wider)}: declare activation={(alike or wider)[0]!r}"
        if wider
        else "choose another device",
    )
