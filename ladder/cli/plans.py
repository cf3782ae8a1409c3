"""``ladder plan`` and ``ladder explain``: what the scheduler decides, and why."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ladder.cli.options import Json, Request, takes_request
from ladder.cli.show import Screen

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan
    from ladder.scheduler.planset import PlanSet

Emulate = Annotated[
    bool,
    typer.Option("--emulate", help="run one CTA on the CPU and count; needs the compile extra"),
]


@takes_request
def plan(request: Request, *, json: Json = False) -> None:
    """Decide how to run a matmul, and print the plan."""
    screen = Screen(as_json=json)
    decided = request.plan()
    screen.data(json_module.loads(decided.to_json()))
    screen.text(str(decided))


@takes_request
def explain(request: Request, *, emulate: Emulate = False, json: Json = False) -> None:
    """Print a plan with the arithmetic of the cost model, and what was rejected and why."""
    screen = Screen(as_json=json)
    decided = request.plan()
    reasons = decided.explain()
    data = {"plan": json_module.loads(decided.to_json()), "explanation": reasons.splitlines()}
    counted: list[dict[str, Any]] = []
    if emulate:
        with screen.working("emulating"):
            counted = _counted(decided)
        data["emulated"] = [{"m": c["m"], "lines": c["lines"]} for c in counted]
    screen.data(data)
    screen.text(reasons)
    for one in counted:
        screen.text(f"\nemulated, M {one['m']}")
        for line in one["table"]:
            screen.text(f"  {line}")


def _counted(decided: Plan | PlanSet) -> list[dict[str, Any]]:
    """What one CTA of each plan does, counted."""
    from ladder.emulator.beside_cost import beside_cost, record, table
    from ladder.scheduler.planset import PlanSet

    found = []
    for plan in decided if isinstance(decided, PlanSet) else (decided,):
        lines = beside_cost(plan)
        found.append({"m": plan.m_text, "lines": record(lines), "table": table(lines)})
    return found
