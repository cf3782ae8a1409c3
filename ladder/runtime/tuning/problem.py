"""What is tuned: an operator with one M on a device, and the plans that are compared for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ladder.errors import TuningError
from ladder.graph import MatMul
from ladder.scheduler.plan import LAUNCHES, Plan
from ladder.scheduler.search import shortlist
from ladder.scheduler.tuned import identity
from ladder.ttile import Device


@dataclass(frozen=True)
class Problem:
    """An operator with a fixed M, the device, and how kernels are launched.

    Attributes:
        op: the matmul; its m is at least 1.
        device: whose plans are compared.
        launch: ``plain`` or ``pdl``.

    Raises:
        TuningError: the operator is for any M or for none, or the launch is unknown.
    """

    op: MatMul
    device: Device
    launch: str = "plain"

    def __post_init__(self) -> None:
        if not self.op.m:
            raise TuningError(
                f"plans are measured for one M, not {self.op.m}",
                at=str(self.op),
                hint="give the operator an m of at least 1",
            )
        if self.launch not in LAUNCHES:
            raise TuningError(
                f"no launch is called {self.launch!r}", at=str(self.op), hint=", ".join(LAUNCHES)
            )

    @cached_property
    def key(self) -> str:
        """See :func:`problem_key`."""
        return problem_key(self.op, self.device, self.launch)

    def candidates(self, count: int) -> tuple[Candidate, ...]:
        """The ``count`` plans that the scheduler estimates to be best; the first is its choice.

        Raises:
            ScheduleError: no legal plan exists.
        """
        found = shortlist(self.op, self.device, count, launch=self.launch)
        return tuple(
            Candidate(self, rank, plan, cost.us) for rank, (plan, cost) in enumerate(found)
        )

    def __str__(self) -> str:
        launch = "" if self.launch == "plain" else f", {self.launch} launch"
        return f"{self.op} on {self.device.name}{launch}"


@dataclass(frozen=True)
class Candidate:
    """A plan to be measured.

    Attributes:
        problem: for which it competes.
        rank: its place by the estimate; 0 is the plan that is used untuned.
        plan: the plan.
        estimate_us: what the cost model says, in microseconds.
    """

    problem: Problem
    rank: int
    plan: Plan
    estimate_us: float

    @cached_property
    def digest(self) -> str:
        """See :func:`plan_digest`."""
        return plan_digest(self.plan)


def plan_digest(plan: Any) -> str:
    """Identity of a plan of any kind: operator, device, packing and decisions."""
    return hashlib.sha256(plan.to_json().encode()).hexdigest()[:32]


def problem_key(op: MatMul, device: Device, launch: str) -> str:
    """A file name that tells a problem from all others."""
    return f"{device.name}-{launch}-{identity(op)}"
