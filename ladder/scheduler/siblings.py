"""Plans that do the same work: they differ in the slots of their rings and in lookahead alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ladder.scheduler.geometry import LONG_ATOM_STEPS
from ladder.scheduler.plan import Plan
from ladder.scheduler.verify import LOOKAHEAD_DEPTH
from ladder.scheduler.walk import MOST_TOGETHER

#: least and most slots of a ring that a warp fills, which takes half of an SM or a whole one
SPECIALISED_DEPTHS = (2, 12)
SHORT_RING = 4


@dataclass(frozen=True)
class Siblings:
    """Plans that do the same work: they differ in the slots of their rings and in lookahead alone.

    Attributes:
        plan: one of them, but for its depth and lookahead.
        depths: slots of their rings; None for those that fill its share of shared memory.
        keeps_lookahead: whether lookahead is that of the plan.
    """

    plan: Plan
    depths: tuple[int, ...] | None
    keeps_lookahead: bool

    @cached_property
    def walks(self) -> tuple[tuple[int, bool], ...]:
        """Depth and lookahead of each of them."""
        plan = self.plan
        depths = _depths(plan) if self.depths is None else self.depths
        if self.keeps_lookahead:
            return tuple((depth, plan.lookahead) for depth in depths)
        return tuple((depth, ahead) for depth in depths for ahead in _lookaheads(plan, depth))

    def walking(self, depth: int, lookahead: bool) -> Plan:
        """The sibling with a ring of ``depth`` slots, with or without lookahead."""
        return replace(self.plan, depth=depth, lookahead=lookahead)


#: all siblings of one tiling, beside which nothing else has it
Shape = tuple[Siblings, ...]


def plans_of(shape: Shape) -> Iterator[Plan]:
    """All plans of a shape, depth by depth."""
    for walk in walks_of(shape):
        yield from (siblings.walking(*walk) for siblings in shape if walk in siblings.walks)


def walks_of(shape: Shape) -> list[tuple[int, bool]]:
    """Depth and lookahead of the plans of a shape, each pair once."""
    return list(dict.fromkeys(walk for siblings in shape for walk in siblings.walks))


def _depths(plan: Plan) -> list[int]:
    """Slots that fill the ring's share of shared memory: of half an SM, and of a whole one."""
    least, most = SPECIALISED_DEPTHS
    if plan.split < 1 or not plan.load_ring.slot_bytes:
        return [least]  # a split or tiling by hand that makes no plan: the checker says why
    other = sum(stage.shared_bytes for stage in plan.stages) - plan.load_ring.shared_bytes
    whole = plan.device.shared_bytes_per_block - other
    # Programmatic launch: with room for two CTAs on an SM, those of the next launch would double up where this one has none.
    rooms = (whole,) if plan.launch == "pdl" else (whole // 2, whole)
    depths = [room // plan.load_ring.slot_bytes for room in rooms]
    # A short ring is worth no second CTA.
    kept = [depth for depth in depths if depth >= SHORT_RING] or depths[-1:]
    slices = max(1, plan.tiling.warps_k)  # each has as many slots
    slots = [min(max(d, least), most) // slices * slices for d in kept]
    return sorted({*slots, *_whole_turns(plan, slots)})


def _whole_turns(plan: Plan, slots: Iterable[int]) -> Iterator[int]:
    """Fewer slots where a turn of the loop then takes more blocks: that is worth more to few tokens.

    Measured at 64 tokens on int2, int3, int4, int5 and mxfp4, two shapes: with the most blocks 1.02 to 1.17 times as fast.
    """
    for depth in slots:
        whole = depth // MOST_TOGETHER * MOST_TOGETHER
        fewer, full = (replace(plan, depth=d).turns_together for d in (whole, depth))
        if whole and fewer > full:
            yield whole


def _lookaheads(plan: Plan, depth: int) -> tuple[bool, ...]:
    """With and without: warps of their own ring are bound by memory, those that share one wait for each other at every block."""
    if plan.family != "ring" or plan.convert != "register":
        return (plan.lookahead,)
    if plan.compute == "wgmma":
        return (True,)
    # Elements that are loaded one by one between products spill registers, and so do the many steps of a long atom.
    roomy = plan.access == "vector" and plan.program.steps < LONG_ATOM_STEPS
    return (False, True) if depth >= LOOKAHEAD_DEPTH and roomy else (False,)
