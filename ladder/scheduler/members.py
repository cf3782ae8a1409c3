"""The documents of a plan set's plans, taken out of that of the set."""

from __future__ import annotations

from typing import Any

from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.serial import FORMATS, SHARED


def members(document: Any) -> list[Any]:
    """The documents of a plan set's plans, from that of the set; they share its parts. Empty for any other document."""
    if not isinstance(document, dict) or document.get("format") != FORMATS[PlanSet]:
        return []
    shared = {name: document[name] for name in SHARED}
    return [
        {"format": FORMATS[Plan], "value": {**shared, **own}} for own in document.get("plans", ())
    ]
