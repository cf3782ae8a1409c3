"""How kernels walk K and the output tiles: what follows from a plan's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: (most tokens, steps of a chunk): the more accumulators a thread has, the fewer fragments have room beside them
CHUNKS = ((128, 4), (192, 2), (256, 1))

#: most tokens of a CTA whose loop takes several blocks in a turn
FEW_TOKENS = 64

#: most blocks of a turn
MOST_TOGETHER = 4

#: steps of a chunk, and chunks whose products may be under way, where few tokens leave little time for lanes of two fmas each: a
#: warpgroup then waits less before it decodes on (int4 in bfloat16 on an H200, M = 64: 1 to 3 %)
SHORT_CHUNK, SHORT_CHUNKS = 2, 2


def holds_slice(plan: Plan) -> bool:
    """Whether a ring has a slot for every block of its slice of K: none is then asked for while others are worked on."""
    return not plan.load_warps and not plan.lookahead and blocks_of_slice(plan) <= plan.depth


def blocks_ahead(plan: Plan) -> int:
    """Blocks of a ring that are asked for before the first one is worked on."""
    return blocks_of_slice(plan) if holds_slice(plan) else plan.depth - 1


def blocks_of_slice(plan: Plan) -> int:
    """Blocks of the longest K slice of a CTA."""
    return -(-plan.packing.geometry.blocks // plan.tiling.warps_k)


def sums_columns(plan: Plan) -> bool:
    """Whether one product sums the activations of eight steps: each step has a column of its own, and all sums are of one kind."""
    return plan.access == "column" and len(plan.sum_sets) == 1


def sums_of_tokens(plan: Plan) -> int:
    """Tokens whose sums a warpgroup holds; where those of a group are kept apart from the totals, each counts twice."""
    return plan.tiling.tokens * (1 if plan.in_place else 2)


def chunk_steps(plan: Plan) -> int:
    """Steps whose products a warpgroup issues together, while it decodes the next ones: at most half a block's.

    The fragments of the chunk before are still being read then, so that a block has two chunks or more. A chunk ends where
    sums are flushed.
    """
    steps = next((steps for most, steps in CHUNKS if sums_of_tokens(plan) <= most), 1)
    if _is_pressed(plan):
        steps = SHORT_CHUNK
    of_group = plan.block_steps // max(1, plan.flushes_per_block)
    return min(steps, plan.block_steps // 2, of_group)


def chunks_in_flight(plan: Plan) -> int:
    """Chunks whose products a warpgroup does not wait for before it decodes the next one, which has registers of its own in a block."""
    if not _is_pressed(plan):
        return 1
    return min(SHORT_CHUNKS, -(-plan.block_steps // plan.chunk_steps) - 1)


def steps_held(plan: Plan) -> int:
    """Steps whose fragments a warpgroup holds at once: those of the chunks in flight, and of the one that it decodes."""
    return min((1 + chunks_in_flight(plan)) * plan.chunk_steps, plan.block_steps)


def _is_pressed(plan: Plan) -> bool:
    """Whether decoding takes two fmas of each register, beside the products of few tokens."""
    twice = plan.scale == "register" and plan.zero == "register"
    return twice and plan.tiling.tokens <= FEW_TOKENS


def turns_together(plan: Plan) -> int:
    """Blocks of one turn of the loop: their slots then lie at constant distances.

    Few tokens leave few products for the instructions of a turn to hide behind (on an H200, M = 64: 3 %).
    """
    blocks = plan.packing.geometry.blocks
    if plan.persistent or plan.tiling.warps_k > 1 or blocks % plan.split:
        return 1
    if plan.tiling.tokens > FEW_TOKENS:
        return 1
    each = blocks // plan.split
    return next((n for n in (MOST_TOGETHER, 2) if each % n == 0 and plan.depth % n == 0), 1)


def persistent_ctas(plan: Plan) -> int:
    """CTAs of a persistent kernel: one for every SM, in whole clusters."""
    return plan.device.sms // plan.cluster * plan.cluster


def shared_tiles(plan: Plan, tiles: int) -> int:
    """How many of a persistent kernel's output tiles, the last ones, are shared by the CTAs of a cluster."""
    ctas = persistent_ctas(plan)
    rest = tiles % ctas
    return rest if plan.split > 1 and rest <= ctas // plan.split else 0
