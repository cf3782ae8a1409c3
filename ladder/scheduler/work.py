"""What one CTA of a plan does: instructions by pipe, products, bytes. The cost model divides it by rates."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.scheduler.fit import FITS
from ladder.scheduler.plan import Plan
from ladder.scheduler.stage import Decode, Multiply
from ladder.scheduler.tiling import TILE_TOKENS

#: lane instructions per group flush and row pair that convert a scale and a zero to float32
SCALE_INSTRUCTIONS = 3.0

#: the same to make the offset of one class that a register fma adds
OFFSET_INSTRUCTIONS = 5.0

LANES = 32

#: slots of a ring that lookahead keeps from being on their way
LOOKAHEAD_SLOTS = 0.8

#: warps that issue one wgmma together
WARPGROUP_WARPS = 4


@dataclass(frozen=True, slots=True)
class Work:
    """What one CTA does: lane instructions by pipe, products, bytes.

    Attributes:
        products: mma or wgmma instructions, those that sum activations included.
        alu, fma, lsu: lane instructions.
        issue: warp instructions times 32, on all pipes.
        shared_bytes: read from and written to shared memory.
        weight_bytes, activation_bytes: that come from L2; those that CTAs load for each other, too: sharing them gained nothing.
        in_flight: bytes of weights and metadata that its rings keep on their way.
    """

    products: float
    alu: float
    fma: float
    lsu: float
    issue: float
    shared_bytes: float
    weight_bytes: float
    activation_bytes: float
    in_flight: int


def work(plan: Plan) -> Work:
    """Count the work of one CTA of a plan."""
    tiling, packing, fit = plan.tiling, plan.packing, FITS[plan.family]
    cut, ring = packing.geometry, plan.load_ring
    # A K slice that has one block less than the others waits for them.
    slices = tiling.warps_k * plan.split
    blocks = -(-cut.blocks // slices) * tiling.warps_k
    k, steps = blocks * cut.block_k, blocks * plan.block_steps
    warpgroups = plan.compute == "wgmma"
    products = steps * _products_of_step(plan)
    alu, fma, lsu, scratch = _decode(plan, k)
    # fmas of two lanes for each of the four registers that hold 8 codes, in every warp that multiplies them
    fmas = (plan.zero == "register" and plan.has_zeros) + (plan.scale == "register")
    fma += fmas * tiling.channels * k / 8 * 4 * tiling.warps_m
    flushes, flush_fma, flush_alu = _flush(plan, blocks)
    # ldmatrix.x4 brings four 8 x 8 pieces: one step of two token tiles; wgmma reads all tokens for 64 channels by itself, one
    # token lies in registers
    columns = plan.access == "column"
    fragments = (
        0 if warpgroups or columns else steps * tiling.ring_warps * tiling.token_tiles / 2 * LANES
    )
    # ... at the rate that was measured for the instruction, unless warps that copy for themselves are in its way
    in_the_way = warpgroups and not plan.load_warps
    read_by_tensor = products * tiling.tokens * 32 if in_the_way else 0
    weights = blocks * ring.weight_bytes
    metadata = blocks * (ring.scale_bytes + ring.zero_bytes)
    elements = blocks * plan.rows_loaded * cut.block_k
    activations = elements * plan.value_bits / 8
    copied = 0 if columns else activations
    # lookups are 4 bytes a lane of the same shared memory that all else passes through
    scratch += lsu * 4
    lsu += fragments + weights * tiling.warps_m / 16 + (weights + metadata + copied) / 16
    if columns:  # words by lanes, and a mask for each of two registers a step
        lsu += activations / 4
        alu += steps * tiling.ring_warps * 2 * LANES
    if plan.access == "scalar":
        lsu += elements * 2
        alu += elements * 10
    fma += flushes * flush_fma
    alu += flushes * flush_alu
    turns = blocks * tiling.ring_warps * LANES
    alu += turns * fit.block_alu
    overhead = steps * tiling.ring_warps * fit.step_other * LANES + turns * fit.block_other
    moved = weights * (1 + tiling.warps_m) + metadata * 2 + copied + fragments * 16 + scratch
    moved += read_by_tensor
    return Work(
        products=products,
        alu=alu,
        fma=fma,
        lsu=lsu,
        issue=products * LANES * (WARPGROUP_WARPS if warpgroups else 1)
        + alu
        + fma
        + lsu
        + overhead,
        shared_bytes=moved + 2 * tiling.warps_k * tiling.channels * tiling.tokens * 4,
        weight_bytes=weights + metadata,
        activation_bytes=activations,
        # a slot is refilled when its block is used up, which is late
        in_flight=int(
            ring.rings
            * (ring.slots - fit.late - LOOKAHEAD_SLOTS * plan.lookahead)
            * (ring.weight_bytes + ring.scale_bytes + ring.zero_bytes)
        ),
    )


def _products_of_step(plan: Plan) -> int:
    """Product instructions of one step of a K slice."""
    tiling = plan.tiling
    if plan.compute == "wgmma":
        return tiling.warps_n // WARPGROUP_WARPS
    pairs = tiling.tile_rows * (tiling.tokens // TILE_TOKENS)
    return pairs + len(plan.sum_sets) * tiling.ring_warps * tiling.token_tiles


def _decode(plan: Plan, k: int) -> tuple[float, float, float, float]:
    """Lane instructions of decoding k columns by pipe (alu, fma, lsu), and bytes through scratch.

    In registers each warp along the tokens decodes the weights again; through shared memory they are decoded once.
    """
    tiling = plan.tiling
    decode = next(stage for stage in plan.stages if isinstance(stage, Decode))
    codes = tiling.channels * k
    repeats = tiling.warps_m if plan.convert == "register" else 1
    pipes = decode.program.pipes()
    eights = codes / 8 * repeats
    scratch = 0.0
    lsu = eights * pipes.get("lsu", 0.0)
    if plan.convert == "shared":
        scratch = codes * plan.value_bits / 8 * (1 + tiling.warps_m)
        lsu += scratch / 16
    return eights * pipes.get("alu", 0.0), eights * pipes.get("fma", 0.0), lsu, scratch


def _flush(plan: Plan, blocks: int) -> tuple[float, float, float]:
    """Flushes of a CTA, and the lane instructions of one on fma and alu."""
    tiling = plan.tiling
    product = next(stage for stage in plan.stages if isinstance(stage, Multiply))
    flushes = blocks * plan.flushes_per_block if plan.flushes_per_block else tiling.warps_k
    outputs = tiling.channels * tiling.tokens
    # one FFMA for each class, and one for each set of activation sums
    fma = outputs * (product.classes + product.sums)
    pairs = tiling.ring_warps * tiling.row_tiles * 2 * LANES
    if plan.access == "column" and plan.packing.geometry.groups_per_block == plan.block_steps:
        pairs *= 2  # a lane's two columns are of different groups
    alu = pairs * SCALE_INSTRUCTIONS
    if plan.zero == "register":
        alu += pairs * product.classes * OFFSET_INSTRUCTIONS
    if plan.accumulator == "int32":
        # each integer sum is converted before it is scaled
        alu += outputs * (product.classes + product.sums)
    return float(flushes), float(fma), float(alu)
