"""A plan's decisions in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan


def m_text(plan: Plan) -> str:
    """The M range: ``1``, ``0..8``, ``65..``."""
    least, most = plan.m_range
    if least == most:
        return str(least)
    return f"{least}.." if most is None else f"{least}..{most}"


def brief(plan: Plan) -> str:
    """The decisions, without operator and device."""
    walk = (
        (f" looked up in {plan.lookup}s,", plan.lookup != "shared"),
        (f" zeros by {plan.zero},", plan.has_zeros and plan.scale != "register"),
        (" scales in register,", plan.scale == "register"),
        (f" {plan.compute} products,", plan.compute != "mma"),
        (f" K over {plan.split} CTAs,", plan.split > 1),
        (" persistent,", plan.persistent),
        (f" activations for {plan.multicast} CTAs at once,", plan.multicast > 1),
        (" lookahead,", plan.lookahead),
    )
    return (
        f"{plan.family}, {plan.tiling}, depth {plan.depth}, convert in {plan.convert},"
        f"{''.join(words for words, holds in walk if holds)}"
        f" {plan.access} activations, {plan.launch} launch"
    )
