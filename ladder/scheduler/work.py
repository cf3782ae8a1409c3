"""What one CTA of a plan does: instructions by pipe, products, bytes. The cost model divides it by rates."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.scheduler.fit import FITS
from ladder.scheduler.plan import Plan
from ladder.scheduler.tiling import TILE_TOKENS
from ladder.scheduler.walk import sums_columns

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
    tiling, fit = plan.tiling, FITS[plan.family]
    blocks = _blocks(plan)
    steps = blocks * plan.block_steps
    products = steps * _products_of_step(plan)
    decode_alu, decode_fma, lookups, scratch = _decode(plan, blocks)
    flush_alu, flush_fma = _flush(plan, blocks)
    loads = _loads(plan, blocks)
    turns = blocks * tiling.ring_warps * LANES
    alu = decode_alu + loads.alu + flush_alu + turns * fit.block_alu
    fma = decode_fma + flush_fma
    lsu = lookups + loads.lsu
    issued = products * LANES * (WARPGROUP_WARPS if plan.compute == "wgmma" else 1)
    overhead = steps * tiling.ring_warps * fit.step_other * LANES + turns * fit.block_other
    sums = 2 * tiling.warps_k * tiling.channels * tiling.tokens * 4
    return Work(
        products=products,
        alu=alu,
        fma=fma,
        lsu=lsu,
        issue=issued + alu + fma + lsu + overhead,
        shared_bytes=loads.shared_bytes + scratch + _read_by_tensor(plan, products) + sums,
        weight_bytes=loads.weight_bytes,
        activation_bytes=loads.activation_bytes,
        in_flight=_in_flight(plan),
    )


def _blocks(plan: Plan) -> int:
    """Blocks of K of a CTA, all its slices together; one that has a block less than the others waits for them."""
    slices = plan.tiling.warps_k * plan.split
    return -(-plan.packing.geometry.blocks // slices) * plan.tiling.warps_k


def _products_of_step(plan: Plan) -> float:
    """Product instructions of one step of a K slice."""
    tiling = plan.tiling
    if plan.compute == "wgmma":
        return tiling.warps_n // WARPGROUP_WARPS
    pairs = tiling.tile_rows * (tiling.tokens // TILE_TOKENS)
    of_one_sum = min(TILE_TOKENS, plan.block_steps) if sums_columns(plan) else 1
    return pairs + len(plan.sum_sets) * tiling.ring_warps * tiling.token_tiles / of_one_sum


def _decode(plan: Plan, blocks: int) -> tuple[float, float, float, float]:
    """Lane instructions of decoding some blocks by pipe (alu, fma, lsu), and bytes of lookups and scratch.

    In registers each warp along the tokens decodes the weights again; through shared memory they are decoded once.
    """
    tiling = plan.tiling
    codes = tiling.channels * blocks * plan.packing.geometry.block_k
    repeats = tiling.warps_m if plan.convert == "register" else 1
    pipes = plan.program.pipes()
    eights = codes / 8 * repeats
    lsu = eights * pipes.get("lsu", 0.0)
    scratch = 0.0
    if plan.convert == "shared":
        scratch = codes * plan.value_bits / 8 * (1 + tiling.warps_m)
        lsu += scratch / 16
    # fmas of two lanes for each of the four registers that hold 8 codes, in every warp that multiplies them
    fmas = (plan.zero == "register" and plan.has_zeros) + (plan.scale == "register")
    fma = eights * pipes.get("fma", 0.0) + fmas * codes / 8 * 4 * tiling.warps_m
    # lookups are 4 bytes a lane of the same shared memory that all else passes through
    return eights * pipes.get("alu", 0.0), fma, lsu, scratch + lsu * 4


@dataclass(frozen=True, slots=True)
class _Loads:
    """What brings operands to shared memory and from there to registers, in the units of :class:`Work`."""

    alu: float
    lsu: float
    shared_bytes: float
    weight_bytes: float
    activation_bytes: float


def _loads(plan: Plan, blocks: int) -> _Loads:
    """Copies of some blocks, and what reads activations from the ring."""
    tiling, ring = plan.tiling, plan.load_ring
    steps = blocks * plan.block_steps
    columns = plan.access == "column"
    # ldmatrix.x4 brings four 8 x 8 pieces: one step of two token tiles; wgmma reads all tokens for 64 channels by itself, one
    # token lies in registers
    by_themselves = plan.compute == "wgmma" or columns
    fragments = 0 if by_themselves else steps * tiling.ring_warps * tiling.token_tiles / 2 * LANES
    weights = blocks * ring.weight_bytes
    metadata = blocks * (ring.scale_bytes + ring.zero_bytes)
    elements = blocks * plan.rows_loaded * plan.packing.geometry.block_k
    activations = elements * plan.value_bits / 8
    copied = 0 if columns else activations
    alu, lsu = 0.0, fragments + weights * tiling.warps_m / 16 + (weights + metadata + copied) / 16
    if columns:  # words by lanes, and a mask for each of two registers a step
        lsu += activations / 4
        alu += steps * tiling.ring_warps * 2 * LANES
    if plan.access == "scalar":
        lsu += elements * 2
        alu += elements * 10
    moved = weights * (1 + tiling.warps_m) + metadata * 2 + copied + fragments * 16
    return _Loads(alu, lsu, moved, weights + metadata, activations)


def _read_by_tensor(plan: Plan, products: float) -> float:
    """Bytes of shared memory that products read, where warps that copy for themselves are in their way.

    Elsewhere they come at the rate that was measured for the instruction.
    """
    in_the_way = plan.compute == "wgmma" and not plan.load_warps
    return products * plan.tiling.tokens * 32 if in_the_way else 0


def _flush(plan: Plan, blocks: int) -> tuple[float, float]:
    """Lane instructions of all flushes of a CTA, on alu and fma."""
    tiling = plan.tiling
    product = plan.product
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
    return float(flushes * alu), float(flushes * fma)


def _in_flight(plan: Plan) -> int:
    """Bytes of weights and metadata that the rings of a CTA keep on their way: a slot is refilled when its block is used up."""
    ring = plan.load_ring
    slots = ring.slots - FITS[plan.family].late - LOOKAHEAD_SLOTS * plan.lookahead
    return int(ring.rings * slots * (ring.weight_bytes + ring.scale_bytes + ring.zero_bytes))
