"""``ladder plan`` and ``ladder explain``: what the scheduler decides, and why."""

from __future__ import annotations

import json as json_module

from ladder.cli.options import Json, Request, takes_request
from ladder.cli.show import Screen


@takes_request
def plan(request: Request, *, json: Json = False) -> None:
    """Decide how to run a matmul, and print the plan."""
    screen = Screen(as_json=json)
    decided = request.plan()
    screen.data(json_module.loads(decided.to_json()))
    screen.text(str(decided))


@takes_request
def explain(request: Request, *, json: Json = False) -> None:
    """Print a plan with the arithmetic of the cost model, and what was rejected and why."""
    screen = Screen(as_json=json)
    decided = request.plan()
    reasons = decided.explain()
    screen.data({"plan": json_module.loads(decided.to_json()), "explanation": reasons.splitlines()})
    screen.text(reasons)
