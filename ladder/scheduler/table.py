"""How a plan prints: operator, decisions, the table of levels with every step's tiles, stages and sizes."""

from __future__ import annotations

from ladder.scheduler.geometry import counted
from ladder.scheduler.plan import Plan
from ladder.scheduler.residency import grid_tiles
from ladder.scheduler.steps import load_steps, pack_steps, store_steps

#: where zero points are taken off, for people
ZERO_PLACES = {"sums": "sums of activations", "register": "one fma a register"}

#: who multiplies, for people
PRODUCTS = {"mma": "each warp by itself", "wgmma": "four warps together, all tokens at once"}


def table(plan: Plan) -> str:
    """The whole plan as text; equal plans give equal text."""
    return "\n".join([*head(plan), "", *levels(plan), "", *stages(plan)])


def head(plan: Plan) -> list[str]:
    """Operator, device and decisions."""
    tiling, launch = plan.tiling, plan.launch
    blocks = plan.packing.geometry.blocks
    in_register = plan.scale == "register"
    ctas = grid_tiles(plan)
    walkers = ", one an SM works through the tiles" if plan.persistent else ""
    if ctas > plan.channel_tiles:
        walkers = f", {ctas - plan.channel_tiles} of which repeat the last tile and store nothing"
    loads = f"; {counted(plan.load_warps, 'warp')} more to load" if plan.load_warps else ""
    shared = f", shared by {plan.split} CTAs of a cluster" if plan.split > 1 else ""
    lookups = f", looked up in {plan.lookup}s" if plan.lookup != "shared" else ""
    cast = f", loaded for {plan.multicast} CTAs of a cluster at once" if plan.multicast > 1 else ""
    return [
        str(plan.op),
        f"on {plan.device.name} for M {plan.m_text}, {plan.family} family",
        f"  cta      {tiling.channels} channels x {tiling.tokens} tokens, {counted(ctas, 'CTA')} along N{walkers}",
        (
            f"  warps    {tiling.threads // 32}: {tiling.warps_k} along K, {tiling.warps_n} along N,"
            f" {tiling.warps_m} along M; a warp has {tiling.row_tiles} x {tiling.token_tiles} tiles of 16 x 8{loads}"
        ),
        f"  k        {counted(blocks, 'block')} of {plan.packing.geometry.block_k}, ring of {plan.depth} slots{shared}",
        f"  convert  {plan.packing.element.name} -> {plan.op.weight_compute.name} in {plan.convert}{lookups}",
        *(
            [f"  zeros    taken off by {ZERO_PLACES[plan.zero]}"]
            if plan.has_zeros and not in_register
            else []
        ),
        *(
            [f"  scales   applied to decoded weights, {_zeros_before_scales(plan)}"]
            if in_register
            else []
        ),
        f"  compute  {plan.compute}: {PRODUCTS.get(plan.compute, 'not offered')}",
        *(
            ["  walk     the next block's first fragments beside the last products"]
            * plan.lookahead
        ),
        f"  access   {plan.access} activations{cast}, {launch} launch",
    ]


def _zeros_before_scales(plan: Plan) -> str:
    if plan.zero == "register" and plan.has_zeros:
        return "zeros before them, by an exact fma a register and one that rounds"
    return "zeros with them, by one fma a register"


def levels(plan: Plan) -> list[str]:
    """Transform-Load, Compute, Transform-Store, one step a line."""
    lines: list[str] = []
    for transfer in (pack_steps(plan), *load_steps(plan)):
        lines += str(transfer).splitlines()
    product = next(stage for stage in plan.stages if stage.name == "multiply")
    lines.append(f"compute {product.describe()}")
    lines += str(store_steps(plan)).splitlines()
    return lines


def stages(plan: Plan) -> list[str]:
    """Stages with what they hold, and the sums."""
    lines = ["stages"]
    for stage in plan.stages:
        held = f"{stage.shared_bytes} B shared, " if stage.shared_bytes else ""
        lines.append(f"  {stage.name:<13}{stage.describe()} ({held}{stage.registers} registers)")
    lines.append(
        f"total {plan.shared_bytes} B shared, about {plan.registers} registers a thread,"
        f" {plan.threads} threads"
    )
    return lines
