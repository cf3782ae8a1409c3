"""The order of plans by their estimated times: of all candidates, or just the first of them.

Most candidates need not be built to know that they lose. What no number of slots in the ring and no lookahead change of an
estimate is a *floor* of all siblings (:func:`~ladder.scheduler.cost.floor_us`); once a plan is known that is below a floor,
those above it are left out (branch and bound). The plan that is found is that of :func:`rank`, which leaves out none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ladder.errors import ScheduleError
from ladder.graph.matmul import MatMul
from ladder.scheduler.candidates import (
    Rejected,
    enumerate_plans,
    refusal,
    shapes,
)
from ladder.scheduler.cost import Cost, estimate, floor_us
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.siblings import walks_of
from ladder.scheduler.verify import has_sizes
from ladder.scheduler.walk import FEW_TOKENS, MOST_TOGETHER
from ladder.ttile import Device

#: plans this much slower than the best one (by the estimate) still count as equally fast
TIE = 0.005
#: the same of rings whose turn takes the most blocks, beside one whose turn takes a single one: few tokens feel that (measured at
#: 32 and 64 tokens on eight problems: 1.00 to 1.12 times as fast, estimated as 1.01 to 1.022 times slower)
WHOLE_TURN = 0.023

#: by how much a floor may be above the estimate that it is of: both are sums of the same numbers in another order
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Ranking:
    """What the search saw.

    Attributes:
        ranked: legal plans with their costs, the chosen one first, the others by estimated time.
        rejected: candidates that broke a rule.
    """

    ranked: tuple[tuple[Plan, Cost], ...]
    rejected: tuple[Rejected, ...]

    @property
    def chosen(self) -> Plan:
        """The plan that the search picks."""
        return self.ranked[0][0]


def rank(
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    fixed: Mapping[str, Any] | None = None,
) -> Ranking:
    """Enumerate, estimate and order the plans of an operator for M in ``m_range``.

    Raises:
        ScheduleError: every candidate breaks a rule.
    """
    found = enumerate_plans(op, device, packing, m_range, fixed or {})
    if not found.legal:
        reasons = dict.fromkeys(rejected.reason for rejected in found.rejected)
        raise ScheduleError(
            f"no legal plan for {op} on {device.name}: {'; '.join(list(reasons)[:4])}",
            at=f"M in {m_range}, fixed {dict(fixed or {})}",
            hint="fix fewer decisions, or choose another device or activation type",
        )
    costs = [(plan, estimate(plan)) for plan in found.legal]
    costs.sort(key=lambda pair: pair[1].us)
    best = _pick(costs)
    others = tuple(pair for pair in costs if pair[0] is not best[0])
    return Ranking((best, *others), found.rejected)


def cheapest(
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    fixed: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan that :func:`rank` chooses, found without building most of the others.

    Raises:
        ScheduleError: every candidate breaks a rule.
    """
    asked = fixed or {}
    tried = shapes(op, device, packing, m_range, asked)
    if not has_sizes(tried[0][0].plan):
        tried = []  # something that was fixed makes no plan
    products = {instruction.name for instruction in device.instruction_set}
    waiting = sorted(
        (floor_us(siblings.plan), number, place)
        for number, shape in enumerate(tried)
        for place, siblings in enumerate(shape)
        if siblings.plan.instruction in products and siblings.plan.cluster <= device.sms
    )
    # (estimated time, place in the order of all candidates), plan, cost
    found: list[tuple[tuple[float, int, int, int], Plan, Cost]] = []
    least = math.inf
    for floor, number, place in waiting:
        if floor > least * (1 + ROUNDING):
            break
        walks = walks_of(tried[number])
        for walk in tried[number][place].walks:
            plan = tried[number][place].walking(*walk)
            cost = estimate(plan)
            # it takes less to see that a plan is slow than that it is legal
            if cost.us <= least * (1 + WHOLE_TURN) and not refusal(plan, asked):
                found.append(((cost.us, number, walks.index(walk), place), plan, cost))
                least = min(least, cost.us)
    if not found:
        return rank(op, device, packing, m_range, asked).chosen  # which says why there is none
    found.sort(key=lambda entry: entry[0])
    return _pick([(plan, cost) for _, plan, cost in found])[0]


def _pick(costs: list[tuple[Plan, Cost]]) -> tuple[Plan, Cost]:
    """The best of plans that are ordered by estimated time."""
    best = costs[0]
    if not best[0].load_warps or best[0].tiling.tokens > FEW_TOKENS:
        return best
    # Few tokens: a ring that one warp fills is faster where a turn of the loop takes more blocks, and not with more slots
    # (measured: int3 53.6 us with 4 slots, 56.1 us with 6, 56.5 us with 7; int2 46.7 us with 4 or 8, 51.7 us with 9).
    alone = best[0].turns_together == 1
    equal = [
        pair
        for pair in costs
        if _but_for_depth(best[0], pair[0])
        and pair[1].us <= best[1].us * (1 + (WHOLE_TURN if alone and _is_whole(pair[0]) else TIE))
    ]
    return min(equal, key=lambda pair: (-pair[0].turns_together, pair[0].depth))


def _is_whole(plan: Plan) -> bool:
    return plan.turns_together == MOST_TOGETHER


def _but_for_depth(one: Plan, other: Plan) -> bool:
    return one == replace(other, depth=one.depth)
