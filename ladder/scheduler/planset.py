"""A plan set: the plans of an operator with any M, each for a range of M, all over one packing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from ladder.checks import accept, instance, integer, several
from ladder.errors import PlanError
from ladder.graph.matmul import MatMul
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import Plan
from ladder.ttile import Device

PLANS = several(instance(Plan, "ladder.schedule(op) makes plans"), "a tuple of plans")


@dataclass(frozen=True)
class PlanSet:
    """Plans for adjacent ranges of M, from 0 on; see the module's docstring.

    Raises:
        PlanError: a part is no plan, the ranges leave a gap or overlap, or plans differ in operator, device or packing.
    """

    plans: tuple[Plan, ...]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "plans", accept(self.plans, PLANS, "plans", at="PlanSet", error=PlanError)
        )
        if not self.plans:
            raise PlanError(
                "a plan set holds at least one plan",
                at="PlanSet",
                hint="ladder.schedule(op) of an operator with m=None makes one",
            )
        expected = self.plans[0].m_range[0]
        for place, plan in enumerate(self.plans):
            first = self.plans[0]
            if (plan.op, plan.device, plan.packing) != (first.op, first.device, first.packing):
                raise PlanError(
                    f"plan {place} is of another operator, device or packing",
                    at=plan.title,
                    hint="all plans of a set read the same bytes",
                )
            least, most = plan.m_range
            if least != expected:
                raise PlanError(
                    f"plan {place} starts at M={least}, expected {expected}",
                    at="PlanSet",
                    hint="ranges are adjacent and in order",
                )
            if most is None and place != len(self.plans) - 1:
                raise PlanError(
                    f"plan {place} has no upper limit but is not the last",
                    at="PlanSet",
                    hint="ranges are adjacent and in order",
                )
            expected = (most or 0) + 1

    @property
    def op(self) -> MatMul:
        """The operator."""
        return self.plans[0].op

    @property
    def device(self) -> Device:
        """The device."""
        return self.plans[0].device

    @property
    def packing(self) -> Packing:
        """The packing that all plans read."""
        return self.plans[0].packing

    def plan_for(self, m: int) -> Plan:
        """The plan for ``m`` tokens; M = 0 has one like any other.

        Raises:
            PlanError: no plan covers ``m``, or it is no number of tokens.
        """
        m = accept(m, integer(0), "m", at="PlanSet.plan_for", error=PlanError)
        for plan in self.plans:
            least, most = plan.m_range
            if least <= m and (most is None or m <= most):
                return plan
        raise PlanError(
            f"no plan for M={m}",
            at=f"PlanSet of {self.op}",
            hint="ranges: " + ", ".join(plan.m_text for plan in self.plans),
        )

    def with_(self, **decisions: Any) -> PlanSet:
        """A copy with some decisions of every plan fixed by hand, checked again.

        Raises:
            PlanError: as :meth:`Plan.with_`.
        """
        return PlanSet(tuple(plan.with_(**decisions) for plan in self.plans))

    def run(
        self, x: Any, weights: Any, bias: Any = None, x_scale: Any = None, residual: Any = None
    ) -> Any:
        """The NumPy meaning: :meth:`Plan.run` of the plan for the rows of x.

        Raises:
            ShapeError: as in :meth:`Plan.run`.
            PackingError: as in :meth:`Plan.run`.
            PlanError: no plan covers the rows of x.
        """
        from ladder.scheduler.operand_check import array_of

        rows = prod(array_of("x", x, self.op).shape[:-1])
        return self.plan_for(rows).run(x, weights, bias, x_scale, residual)

    def explain(self) -> str:
        """What was chosen for each range, and why."""
        return "\n\n".join(plan.explain() for plan in self.plans)

    def to_json(self) -> str:
        """Stable text that :meth:`from_json` reads back."""
        from ladder.scheduler.serial import dump_planset

        return dump_planset(self)

    @classmethod
    def from_json(cls, text: str) -> PlanSet:
        """Read what :meth:`to_json` wrote.

        Raises:
            PlanError: the text is no plan set, or of another version.
        """
        from ladder.scheduler.serial import load_planset

        return load_planset(text)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.device.name}"]
        lines += [f"  M {plan.m_text:<12} {plan.brief}" for plan in self.plans]
        return "\n".join(lines)
