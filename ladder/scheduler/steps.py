"""The primitives of a plan, level by level: Transform-Load, Compute, Transform-Store, each step on known tiles.

Tiles are those at the far edge of the operands, so that padding shows where there is some.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.primitives import Axes, Convert, Map, Pad, Primitive, Slice, Step, chain, pad_groups
from ladder.scheduler.geometry import round_up
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS, Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.row_order import HALF
from ladder.scheduler.tiling import TILE_TOKENS
from ladder.ttile import Tile

#: lanes of a warp
LANES = 32


@dataclass(frozen=True, slots=True)
class Transfer:
    """Steps of one operand between two levels.

    Attributes:
        title: for example ``load weight dram -> shared``.
        steps: primitives on their tiles, in order.
    """

    title: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {step}" for step in self.steps)])


def activation_padding(plan: Plan, m: int) -> tuple[Primitive, ...]:
    """Primitives that bring activations ``[m, k]`` to ``[m, padded_k]``: each group padded, then the last block."""
    cut = plan.packing.geometry
    steps: tuple[Primitive, ...] = ()
    extent = cut.k
    if not cut.is_contiguous:
        steps = pad_groups((m, cut.k), cut.group, cut.padded_group)
        extent = cut.groups * cut.padded_group
    if cut.padded_k != extent:
        steps = (*steps, Pad((0, cut.padded_k - extent)))
    return steps


def pack_steps(plan: Plan) -> Transfer:
    """Offline: codes ``[n, k]`` padded, mapped into fragment order, and that into ``[bands, blocks, 4, atoms, lanes, codes]``."""
    packing = plan.packing
    cut, program = packing.geometry, packing.program
    rows, fill = packing.stored_tiles * TILE_ROWS, packing.pad_code
    steps: list[Primitive] = []
    n, extent = packing.n, cut.k
    if not cut.is_contiguous:
        steps += pad_groups((n, cut.k), cut.group, cut.padded_group, fill)
        extent = cut.groups * cut.padded_group
    if packing.order == "paired":
        steps += pair_rows(n, extent, fill)
        n = round_up(n // 2, HALF) * 2
    if (rows, cut.padded_k) != (n, extent):
        steps.append(Pad((rows - n, cut.padded_k - extent), value=fill))
    steps.append(
        Map(fragment_order(packing.stored_tiles, packing.atoms, program.steps, program.lanes))
    )
    steps.append(Map(band_order(packing)))
    return Transfer(
        "pack weight offline", chain(Tile((packing.n, packing.k), packing.element), *steps)
    )


def pair_rows(n: int, k: int, fill: int) -> list[Primitive]:
    """``[n, k]`` of gates above what they gate -> ``[2 * padded, k]``, 8 gates and 8 channels in turns."""
    half, padded = n // 2, round_up(n // 2, HALF)
    steps: list[Primitive] = [Map(Axes.reshape((n, k), (2, half, k)))]
    if padded != half:
        steps.append(Pad((0, padded - half, 0), value=fill))
    view = (2, padded // HALF, HALF, k)
    return [*steps, Map(Axes((2, padded, k), view, (1, 0, 2, 3), (2 * padded, k)))]


def fragment_order(tiles: int, atoms: int, steps: int, lanes: int = 2) -> Axes:
    """``[16 * tiles, 8 * lanes * steps * atoms]`` -> ``[tiles, atoms, 32, 4 * lanes * steps]``: thread (g, t), then step, register, lane.

    Source: PTX ISA, Matrix Fragments for mma.m16n8k16, mma.m16n8k32 and mma.m16n8k64, operand A.
    """
    source = (tiles * TILE_ROWS, atoms * steps * 8 * lanes)
    #        tile row_half g atom step k_half t lane
    view = (tiles, 2, 8, atoms, steps, 2, 4, lanes)
    return Axes(source, view, (0, 3, 2, 6, 4, 5, 1, 7), (tiles, atoms, 32, 4 * lanes * steps))


def band_order(packing: Packing) -> Axes:
    """``[tiles, atoms, 32, codes]`` -> ``[bands, blocks, 4, atoms of a block, 32, codes]``."""
    bands, blocks, codes = packing.bands, packing.geometry.blocks, packing.program.codes
    view = (bands, BAND_TILES, blocks, packing.atoms_per_block, LANES, codes)
    order = (0, 2, 1, 3, 4, 5)
    return Axes(
        (packing.stored_tiles, packing.atoms, LANES, codes),
        view,
        order,
        tuple(view[axis] for axis in order),
    )


def load_steps(plan: Plan) -> tuple[Transfer, ...]:
    """Transform-Load: dram -> shared -> register for weights and activations, with their conversion."""
    tiling, packing = plan.tiling, plan.packing
    program = plan.program
    packed = pack_steps(plan).steps[-1].result
    per_block = plan.atoms_per_block
    bands = min(max(1, tiling.tile_rows // BAND_TILES), packing.bands)
    tiles = min(tiling.tile_rows, BAND_TILES)
    part = (bands, 1, tiles, per_block, LANES, program.codes)
    slot = (bands * tiles, *part[3:])
    pipes = tuple((pipe, count) for pipe, count in program.pipes().items() if count)
    convert = Convert(packing.element, plan.op.weight_compute, plan.convert, pipes)
    weight: list[Primitive] = [Slice((0,) * 6, part), Map(Axes.reshape(part, slot))]
    atom: list[Primitive] = [Slice((0, 0, 0, 0), (1, 1, LANES, program.codes))]
    natural = Map(fragment_order(1, 1, program.steps, program.lanes).inverse())
    # in shared memory conversion and fragment both see the whole block; in registers a warp sees an atom
    weight += [convert] if plan.convert == "shared" else []
    atom += [convert] if plan.convert == "register" else []
    to_shared = chain(packed, *weight)
    activation = activation_to_shared(plan)
    return (
        Transfer("load weight dram -> shared", to_shared),
        Transfer("load activation dram -> shared", activation),
        Transfer("load weight shared -> register", chain(to_shared[-1].result, *atom, natural)),
        Transfer(
            "load activation shared -> register by ldmatrix",
            activation_to_register(activation[-1].result),
        ),
    )


def activation_to_shared(plan: Plan) -> tuple[Step, ...]:
    """Steps of the last block of activations: slice, pad to the slot, map to 16-byte pieces."""
    cut = plan.packing.geometry
    m = tokens_shown(plan)
    whole = Tile((m, cut.k), plan.op.activation)
    rows = plan.rows_loaded
    row = (m - 1) // rows * rows
    before: tuple[Primitive, ...] = ()
    if not cut.is_contiguous:
        before = activation_padding(plan, m)
        whole_k = cut.padded_k
    else:
        whole_k = cut.k
    k = (whole_k - 1) // cut.block_k * cut.block_k
    extent = (m - row, whole_k - k)
    steps: list[Primitive] = [*before, Slice((row, k), extent)]
    if extent != (rows, cut.block_k):
        steps.append(Pad((rows - extent[0], cut.block_k - extent[1])))
    pieces = (rows, cut.block_k // plan.piece, plan.piece)
    steps.append(Map(Axes.reshape((rows, cut.block_k), pieces)))
    return chain(whole, *steps)


def activation_to_register(slot: Tile) -> tuple[Step, ...]:
    """Steps of one step and token tile: two pieces of eight rows, as the B operand of the mma reads them."""
    rows, piece = min(TILE_TOKENS, slot.shape[0]), slot.shape[-1]
    steps: list[Primitive] = [Slice((0, 0, 0), (rows, 2, piece))]
    if rows < TILE_TOKENS:
        steps.append(Pad((TILE_TOKENS - rows, 0, 0)))
    steps.append(Map(Axes.reshape((TILE_TOKENS, 2, piece), (TILE_TOKENS, 2 * piece))))
    return chain(slot, *steps)


def store_steps(plan: Plan) -> Transfer:
    """Transform-Store: a CTA's float32 totals -> y, cut at the edges."""
    op, tiling = plan.op, plan.tiling
    m = tokens_shown(plan)
    tile = (plan.out_channels, tiling.tokens)
    steps: list[Primitive] = []
    if op.stored.name != "float32":
        steps.append(Convert("float32", op.stored, "register"))
    steps.append(Map(Axes.transpose(tile, (1, 0))))
    left = (m - (m - 1) // tile[1] * tile[1], op.out_n - (op.out_n - 1) // tile[0] * tile[0])
    if left != (tile[1], tile[0]):
        steps.append(Slice((0, 0), left))
    return Transfer("store y register -> dram", chain(Tile(tile, "float32"), *steps))


def tokens_shown(plan: Plan) -> int:
    """M of the tiles that are shown: the operator's, else the most of the range, else one CTA's."""
    if plan.op.m is not None:
        return max(1, plan.op.m)
    most = plan.m_range[1]
    return max(1, plan.tiling.tokens if most is None else most)


__all__ = [
    "Transfer",
    "activation_padding",
    "fragment_order",
    "load_steps",
    "pack_steps",
    "round_up",
    "store_steps",
    "tokens_shown",
]
