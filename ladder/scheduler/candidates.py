"""Candidate plans of an operator: every arrangement of the tables below, legal ones apart from those refused.

Nothing is dropped in silence: a refused arrangement is a :class:`Rejected` with the rule that it breaks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ladder.graph.matmul import MatMul
from ladder.scheduler.epilogue import default_epilogue
from ladder.scheduler.packing import Packing
from ladder.scheduler.plan import LOOKUPS, ZEROS, Plan
from ladder.scheduler.residency import launches_together
from ladder.scheduler.siblings import Shape, Siblings, plans_of
from ladder.scheduler.stage import CHUNK_BYTES
from ladder.scheduler.tiling import TILE_TOKENS, Tiling
from ladder.scheduler.verify import SKINNY_TOKENS, problems
from ladder.scheduler.verify_specialised import PERSISTENT_CTAS
from ladder.scheduler.walk import blocks_of_slice
from ladder.scheduler.zero import register_shifts
from ladder.ttile import Device
from ladder.ttile.isa import WGMMA_STEP

#: row tiles of a warp by its token tiles, and the fewest K slices with them: 5 of one token tile and 6 of either were never ahead
#: of their neighbours by more than 2 %, 3 of two only where many warps fill the gaps between products (measured on int4, 9 shapes)
SKINNY_ROW_TILES = {
    1: {1: 1, 2: 1, 3: 1, 4: 1, 7: 1},
    2: {1: 1, 2: 1, 3: 8, 4: 1, 5: 1, 7: 1},
}
SKINNY_WARPS_K = (1, 2, 4, 8, 16)
SKINNY_DEPTHS = (2, 3, 4, 6, 8)
#: slots of a ring beside activations in registers
COLUMN_DEPTH = 2

#: (warps_n, warps_m, row_tiles, token_tiles): 32 .. 256 channels x 16 .. 128 tokens
RING_SHAPES = (
    *((2, 1, 1, 2), (2, 1, 2, 2), (4, 1, 1, 2), (4, 1, 2, 2), (2, 1, 4, 2)),
    *((2, 1, 1, 4), (2, 1, 2, 4), (4, 1, 1, 4), (4, 1, 2, 4), (2, 1, 4, 4), (2, 2, 2, 2)),
    *((2, 1, 1, 8), (2, 1, 2, 8), (4, 1, 1, 8), (4, 1, 2, 8), (2, 2, 1, 4), (2, 2, 2, 4)),
    *((4, 2, 1, 4), (4, 2, 2, 4), (1, 2, 4, 4), (2, 2, 4, 4)),
    *((2, 2, 2, 8), (4, 2, 1, 8), (4, 2, 2, 8), (8, 1, 2, 8), (1, 4, 4, 4), (2, 4, 4, 4)),
)
#: (warps_n, token_tiles) of warpgroup products: 64 or 128 channels x 16 .. 256 tokens
WARPGROUP_SHAPES = tuple((n, tiles) for n in (4, 8) for tiles in (2, 4, 8, 16, 32))
WARPGROUP_WARPS_K = (1, 2, 4)
WARPGROUP_DEPTHS = (3, 4, 5)
#: (warps_k, warps_n, token_tiles) of the specialised family: 64 .. 256 channels x 16 .. 256 tokens, up to 4 warpgroups
SPECIALISED_SHAPES = (
    *((1, n, tiles) for n in (4, 8, 16) for tiles in (2, 4, 8)),
    *((1, n, tiles) for n in (4, 8) for tiles in (16, 32)),
    *((2, 4, tiles) for tiles in (2, 4, 16)),
)
#: most tokens of a tile with which no CTA works through several: others on its SM hide start and end better (measured on ten
#: types, 16 to 64 tokens: in all 41 pairs of plans the one that does takes longer, 1.02 to 1.47 times)
SHORT_TILES = 64
#: rows of CTAs that a shape may be cut to share M evenly, and its warps along n
EVEN_ROWS = (1, 2, 3)
EVEN_WARPS_N = 8
SPECIALISED_SPLITS = (1, 2, 4)
#: most tokens of its CTAs
SPECIALISED_TOKENS = 256
#: a CTA has at least this part of M up to 256: the ring has no split of K, and fills small grids with small tiles
SPECIALISED_SLIVER, RING_SLIVER = 4, 8
RING_WARPS_K = (1, 2, 4)
RING_DEPTHS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A plan that was refused.

    Attributes:
        plan: one line that describes it.
        reason: the rule that it breaks, with the numbers.
    """

    plan: str
    reason: str

    def __str__(self) -> str:
        return f"{self.plan}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Legal plans and refused ones, in the order of the tables."""

    legal: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]


def default_access(op: MatMul, *, contiguous: bool) -> str:
    """Vector copies of activations where rows and groups start on 16 bytes, else scalar loads."""
    whole = op.k * op.activation.bits % (8 * CHUNK_BYTES) == 0
    return "vector" if contiguous and whole else "scalar"


def arrangements(m_range: tuple[int, int | None]) -> Iterator[tuple[str, Tiling, int]]:
    """(family, tiling, depth) of the tables: skinny only where one CTA can cover all M of the range, no ring far wider."""
    most = m_range[1]
    if most is not None and most <= SKINNY_TOKENS:
        token_tiles = max(1, -(-most // TILE_TOKENS))
        for row_tiles, least in SKINNY_ROW_TILES[token_tiles].items():
            slices = [warps_k for warps_k in SKINNY_WARPS_K if warps_k >= least]
            for warps_k, depth in itertools.product(slices, SKINNY_DEPTHS):
                yield "skinny", Tiling(warps_k, 1, 1, row_tiles, token_tiles), depth
    for warps_n, warps_m, row_tiles, token_tiles in RING_SHAPES:
        if not _suits(warps_m * token_tiles * TILE_TOKENS, most, RING_SLIVER):
            continue
        for warps_k in RING_WARPS_K:
            for depth in RING_DEPTHS:
                yield "ring", Tiling(warps_k, warps_n, warps_m, row_tiles, token_tiles), depth


def _has_blocks(family: str, tiling: Tiling, depth: int, blocks: int) -> bool:
    """Whether a warp's own ring has no more slots than blocks to put there: room for another CTA is worth more."""
    return family != "skinny" or depth <= max(SKINNY_DEPTHS[0], -(-blocks // tiling.warps_k))


def enumerate_plans(
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    fixed: Mapping[str, Any],
) -> Candidates:
    """All candidates of an operator on a device over one packing, for M in ``m_range``.

    Args:
        op: the matmul.
        device: where it runs.
        packing: how its weight lies.
        m_range: least and largest M, None for no limit.
        fixed: decisions of the plan that are not to be varied, by field name.
    """
    legal: list[Plan] = []
    rejected: list[Rejected] = []
    for shape in shapes(op, device, packing, m_range, fixed):
        for plan in plans_of(shape):
            if reason := refusal(plan, fixed):
                rejected.append(Rejected(plan.brief, reason))
            else:
                legal.append(plan)
    return Candidates(tuple(legal), tuple(rejected))


def refusal(plan: Plan, fixed: Mapping[str, Any]) -> str:
    """Why the search does not take a plan: rules that it breaks, or rounding that nobody asked for; else nothing."""
    found = problems(plan)
    if found:
        return "; ".join(problem.what for problem in found)
    return "" if "scale" in fixed else _rounding(plan)


def shapes(
    op: MatMul,
    device: Device,
    packing: Packing,
    m_range: tuple[int, int | None],
    fixed: Mapping[str, Any],
) -> list[Shape]:
    """The shapes of the tables, in their order, for the same arguments as :func:`enumerate_plans`."""
    decisions = {
        "access": default_access(op, contiguous=packing.geometry.is_contiguous),
        "epilogue": default_epilogue(op, packing),
        "m_range": m_range,
        **fixed,
        "op": op,
        "device": device,
        "packing": packing,
    }
    depths: dict[tuple[str, Tiling], dict[int, None]] = {}
    for entry in arrangements(m_range):
        if _has_blocks(*entry, packing.geometry.blocks):
            family, tiling, depth = _with_fixed(entry, fixed)
            depths.setdefault((family, tiling), {})[depth] = None
    family, tiling = next(iter(depths))
    decisions |= {"lookup": _lookups(packing, "specialised", fixed)[0]}
    like = Plan(**{**decisions, "family": family, "tiling": tiling, "depth": SKINNY_DEPTHS[0]})
    others = [*_warpgroup_plans(like, fixed), *_specialised_plans(like, fixed)]
    if others and family == "specialised":
        depths = {}  # that family was asked for, and has shapes of its own
    arranged = [
        (replace(like, family=family, tiling=tiling, depth=min(slots), lookup=lookup), tuple(slots))
        for (family, tiling), slots in depths.items()
        for lookup in _lookups(packing, family, fixed)
    ]
    return [_shape(plan, slots, fixed) for plan, slots in (*arranged, *others)]


def _lookups(packing: Packing, family: str, fixed: Mapping[str, Any]) -> tuple[str, ...]:
    """Where codes may be looked up.

    Activations of warps that share a ring keep shared memory busy, and a table leaves the ring fewer slots: they look codes up in
    registers where a program does.
    """
    if "lookup" in fixed:
        return (fixed["lookup"],)
    if packing.in_registers is None:
        return ("shared",)
    return LOOKUPS if family == "skinny" else ("register",)


def _warpgroup_plans(
    like: Plan, fixed: Mapping[str, Any]
) -> Iterator[tuple[Plan, tuple[int, ...]]]:
    """Plans that multiply by warpgroups, with their depths, where the device has them and nothing fixed rules them out."""
    wanted: dict[str, Any] = {
        "family": "ring",
        "compute": "wgmma",
        "lookahead": True,
        "convert": "register",
    }
    if not like.device.has("wgmma") or any(fixed.get(k, v) != v for k, v in wanted.items()):
        return
    tilings = (
        Tiling(warps_k, warps_n, 1, 1, token_tiles)
        for warps_n, token_tiles in WARPGROUP_SHAPES
        if _suits(token_tiles * TILE_TOKENS, like.m_range[1], RING_SLIVER)
        for warps_k in WARPGROUP_WARPS_K
    )
    depths = (fixed["depth"],) if "depth" in fixed else WARPGROUP_DEPTHS
    for tiling in dict.fromkeys(fixed.get("tiling", tiling) for tiling in tilings):
        yield replace(like, **wanted, tiling=tiling, depth=depths[0]), depths


def _specialised_plans(
    like: Plan, fixed: Mapping[str, Any]
) -> Iterator[tuple[Plan, tuple[int, ...] | None]]:
    """Plans with a warp that only loads, where the device has tensor copies and nothing fixed rules them out; with depths."""
    wanted: dict[str, Any] = {
        "family": "specialised",
        "compute": "wgmma",
        "access": "tensor",
        "lookahead": False,
        "convert": "register",
        **_where_scaled(like),
    }
    free = {"scale", "zero"}
    if not like.device.has("tma") or any(
        fixed.get(k, v) != v for k, v in wanted.items() if k not in free
    ):
        return
    wanted |= {name: fixed[name] for name in free if name in fixed}
    for warps_k, warps_n, token_tiles in (*SPECIALISED_SHAPES, *_even_shapes(like.m_range[1])):
        if "tiling" not in fixed and not _suits(
            token_tiles * TILE_TOKENS, like.m_range[1], SPECIALISED_SLIVER
        ):
            continue
        tiling = fixed.get("tiling", Tiling(warps_k, warps_n, 1, 1, token_tiles))
        splits = [s for s in SPECIALISED_SPLITS if tiling.token_tiles % s == 0]
        for split in (fixed["split"],) if "split" in fixed else splits:
            plan = replace(like, **wanted, tiling=tiling, split=split, depth=2)
            for kept in _persistences(plan, fixed):
                yield kept, (fixed["depth"],) if "depth" in fixed else None
        if "tiling" in fixed:
            return


def _even_shapes(most: int | None) -> list[tuple[int, int, int]]:
    """Shapes whose rows of CTAs share M evenly: for M = 136 one of 144 tokens, or two of 80, rather than one of 256."""
    if most is None:
        return []
    step = WGMMA_STEP // TILE_TOKENS
    shares = (-(-most // (rows * WGMMA_STEP)) * step for rows in EVEN_ROWS)
    listed = {tiles for _, _, tiles in SPECIALISED_SHAPES}
    most_tiles = SPECIALISED_TOKENS // TILE_TOKENS
    return [
        (1, EVEN_WARPS_N, t) for t in dict.fromkeys(shares) if t <= most_tiles and t not in listed
    ]


def _suits(tokens: int, most: int | None, sliver: int) -> bool:
    """Whether a CTA's tokens are of the order of M: not mostly empty, and at least one ``sliver``-th of it."""
    m = SPECIALISED_TOKENS if most is None else most
    return min(m, SPECIALISED_TOKENS) / sliver <= tokens <= max(2 * m, 2 * TILE_TOKENS)


def _persistences(plan: Plan, fixed: Mapping[str, Any]) -> list[Plan]:
    """The plan with a CTA for each tile, and with one that works through several where there are more than SMs."""
    if "persistent" in fixed:
        return [replace(plan, persistent=fixed["persistent"])]
    if min(plan.cluster, plan.tiling.tokens, plan.tiling.tile_rows) < 1:
        return [plan]  # a split or tiling by hand that makes no plan: the checker says why
    m = plan.op.m or plan.m_range[1] or plan.m_range[0]
    tiles = plan.channel_tiles * -(-m // plan.tiling.tokens)
    several_fit = plan.tiling.warps_k == 1 and plan.split <= PERSISTENT_CTAS
    several_fit = several_fit and plan.tiling.tokens > SHORT_TILES
    if not several_fit or not plan.stores_fragments or tiles <= plan.device.sms:
        return [plan]
    several = replace(plan, persistent=True)
    if plan.split == 1:
        return [plan, several]
    # Shared tiles are worth a cluster only where some are left over; beside groups and scales of rows there are no registers for them.
    is_worth = several.shared_tiles(tiles) and plan.value_bits > 8
    return [plan, several] if is_worth else [plan]


def _rounding(plan: Plan) -> str:
    """Why weights of a plan are not to be scaled in registers unless that is asked for: it rounds each of them.

    In float16 that is of the size of an output's own rounding; bfloat16 keeps it there as long as no zero point is folded
    into the same fma, which would round it too.
    """
    if plan.scale != "register":
        return ""
    out, compute = plan.op.out, plan.op.activation
    if out.bits > compute.bits:
        return f"scaling in registers rounds weights to {compute.name}, outputs are {out.name} (scale='register' allows it)"
    if (
        compute.name == "bfloat16"
        and plan.packing.zero_dtype is not None
        and plan.zero != "register"
    ):
        return "scaling in registers rounds zero points to bfloat16 (scale='register' allows it)"
    return ""


def _where_scaled(like: Plan) -> dict[str, str]:
    """Scales that change along K are applied in registers, and zero points with them; others wait for the end of K.

    bfloat16 would round zero points by more than weights: they come off before, exactly. Lanes that hold no scaled weights
    leave scales to the sums of each group.
    """
    packing = like.packing
    exact = not like.has_zeros or register_shifts(packing.one_class) is not None
    if packing.has_unit and (like.has_groups or not exact):
        coarse = packing.program.compute == "bfloat16" and packing.zero_dtype is not None
        before = coarse and register_shifts(packing) is not None
        return {"scale": "register", "zero": "register" if before else "sums"}
    return {"scale": "accumulator", "zero": "register" if like.has_zeros else "sums"}


def _shape(plan: Plan, depths: tuple[int, ...] | None, fixed: Mapping[str, Any]) -> Shape:
    """The plan at all depths, with one token in the ring or in registers and zeros taken off in either place, where there is a choice."""
    found = [Siblings(plan, depths, "lookahead" in fixed)]
    if "access" not in fixed and plan.family == "skinny" and plan.m_range[1] == 1:
        column = replace(plan, access="column", depth=COLUMN_DEPTH)
        fits = depths is not None and COLUMN_DEPTH in depths
        if plan.access == "vector" and fits and not problems(column):
            found = [Siblings(column, _column_depths(column, fixed), "lookahead" in fixed), *found]
    if plan.family == "specialised" or "zero" in fixed:
        return tuple(found)
    if not plan.has_zeros or register_shifts(plan.reading) is None:
        return tuple(found)
    return tuple(replace(s, plan=replace(s.plan, zero=zero)) for s in found for zero in ZEROS)


def _column_depths(plan: Plan, fixed: Mapping[str, Any]) -> tuple[int, ...]:
    """Slots of a ring beside a token in registers, which is loaded one block ahead: more slots would wait for it.

    All of a slice's blocks are worth theirs where that lets the next kernel load its weights beside this one.
    """
    whole = replace(plan, depth=blocks_of_slice(plan))
    is_listed = COLUMN_DEPTH < whole.depth <= SKINNY_DEPTHS[-1] and "depth" not in fixed
    if is_listed and launches_together(whole) > 1:
        return (COLUMN_DEPTH, whole.depth)
    return (COLUMN_DEPTH,)


def _with_fixed(
    arrangement: tuple[str, Tiling, int], fixed: Mapping[str, Any]
) -> tuple[str, Tiling, int]:
    family, tiling, depth = arrangement
    return fixed.get("family", family), fixed.get("tiling", tiling), fixed.get("depth", depth)
