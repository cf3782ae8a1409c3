"""How long a plan should take: three ceilings, occupancy, and constants fitted to the device. Nothing is measured.

The time of a kernel is bounded by the tensor cores (P), by each memory level (I x BW) and by the pipes that decode
weights (P_D); each bound is work of the busiest SM over the rate of one SM, for dram and L2 work of the device. They
overlap, but not wholly: bounds near the largest one lengthen it (`overlap` of :mod:`ladder.scheduler.fit`). Launch, ramp and a refill for
every further wave come on top.

    >>> print(estimate(plan, m=1))
    11.9 us = launch 0.60 + ramp 1.80 + work 9.5 + refills 0.00 ...
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.scheduler.fit import FITS
from ladder.scheduler.geometry import counted
from ladder.scheduler.plan import Plan
from ladder.scheduler.raster import group_of
from ladder.scheduler.stage import Decode, Multiply
from ladder.scheduler.tiling import TILE_TOKENS

#: M that stands for "any larger M"
LARGE_M = 4096

#: part of the L2 that weights may fill and still be there for the next row of CTAs
L2_SHARE = 0.7

#: instructions besides product, decode, flush and loads, per warp and step (addresses, loop, waits)
STEP_OVERHEAD = 4.0

#: instructions of a warp per block besides those (addresses and bounds of copies, metadata, waits): alu, and on no busy pipe
BLOCK_ALU = 60.0
BLOCK_OTHER = 40.0

#: lane instructions per group flush and row pair that convert a scale and a zero to float32
SCALE_INSTRUCTIONS = 3.0

#: cycles that a warp waits in one block besides issuing: slot, shared loads, start and end of the products
BLOCK_LATENCY = 200.0

#: cycles from one step's products to those of the next on the same accumulators (mma latency)
STEP_LATENCY = 33.0

#: the same to make the offset of one class that a register fma adds
OFFSET_INSTRUCTIONS = 5.0

LANES = 32

#: slots of a ring that lookahead keeps from being on their way
LOOKAHEAD_SLOTS = 0.8

#: warps that issue one wgmma together
WARPGROUP_WARPS = 4

#: cycles that a warpgroup waits in one block besides issuing and multiplying: the end of a group's products, and the barrier;
#: where a warp of its own loads, the ring alone
WARPGROUP_LATENCY = 350.0
SPECIALISED_LATENCY = 155.0

#: part of the SMs that clusters of so many CTAs can fill: they stay within a group of SMs, whose size no power of two
#: divides (measured on an H200: 66 clusters of 2 run at once, 30 of 4)
CLUSTER_SHARE = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.72}

#: warpgroups that fill the tensor cores of an SM; twice as many limit each other by issue
PAIR = 2

#: warp schedulers of an SM
SCHEDULERS = 4


@dataclass(frozen=True, slots=True)
class Bound:
    """One ceiling: ``us = amount / per_us``.

    Attributes:
        name: what bounds, for people.
        amount: work, in ``unit``.
        unit: of the amount.
        per_us: rate, in units per microsecond.
    """

    name: str
    amount: float
    unit: str
    per_us: float

    @property
    def us(self) -> float:
        """Time that this ceiling alone asks for, in microseconds."""
        return self.amount / self.per_us

    def __str__(self) -> str:
        return f"{self.name:<14} {self.us:9.2f} us = {self.amount:.4g} {self.unit} / {self.per_us:.4g} a us"


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate that shows its arithmetic.

    Attributes:
        m: tokens that it is for.
        ctas: blocks of the grid.
        resident: blocks that one SM holds at once.
        waves: times that the grid fills the device, rounded up.
        in_flight: bytes of weights and metadata on their way, all SMs together.
        bounds: the ceilings.
        launch_us, ramp_us, refill_us: constants of the device, and a refill for each further wave.
        overlap: norm in which the ceilings add up.
    """

    m: int
    ctas: int
    resident: int
    waves: int
    in_flight: int
    bounds: tuple[Bound, ...]
    launch_us: float
    ramp_us: float
    refill_us: float
    overlap: float = 4.0

    @property
    def work_us(self) -> float:
        """The ceilings together, in microseconds."""
        longest = max(bound.us for bound in self.bounds)
        return float(
            longest
            * sum((b.us / longest) ** self.overlap for b in self.bounds) ** (1 / self.overlap)
        )

    @property
    def us(self) -> float:
        """The whole estimate, in microseconds."""
        return self.launch_us + self.ramp_us + self.work_us + self.refill_us

    @property
    def limit(self) -> Bound:
        """The largest ceiling."""
        return max(self.bounds, key=lambda bound: bound.us)

    def __str__(self) -> str:
        lines = [
            (
                f"{self.us:.2f} us at M={self.m} = launch {self.launch_us:.2f} + ramp {self.ramp_us:.2f}"
                f" + work {self.work_us:.2f} + refills {self.refill_us:.2f}; bound by {self.limit.name}"
            ),
            (
                f"  {counted(self.ctas, 'CTA')} in {counted(self.waves, 'wave')}, {self.resident} on an SM,"
                f" {self.in_flight} B in flight"
            ),
        ]
        return "\n".join(lines + [f"  {bound}" for bound in self.bounds])


@dataclass(frozen=True, slots=True)
class Work:
    """What one CTA does: lane instructions by pipe, products, bytes.

    Attributes:
        products: mma or wgmma instructions, those that sum activations included.
        alu, fma, lsu: lane instructions.
        issue: warp instructions times 32, on all pipes.
        shared_bytes: read from and written to shared memory.
        weight_bytes, activation_bytes: read from L2.
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
    tiling, packing = plan.tiling, plan.packing
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
    # ldmatrix.x4 brings four 8 x 8 pieces: one step of two token tiles; wgmma reads all tokens for 64 channels by itself
    fragments = 0 if warpgroups else steps * tiling.ring_warps * tiling.token_tiles / 2 * LANES
    # ... at the rate that was measured for the instruction, unless warps that copy for themselves are in its way
    in_the_way = warpgroups and not plan.load_warps
    read_by_tensor = products * tiling.tokens * 32 if in_the_way else 0
    weights = blocks * ring.weight_bytes
    metadata = blocks * (ring.scale_bytes + ring.zero_bytes)
    elements = blocks * plan.rows_loaded * cut.block_k
    activations = elements * plan.value_bytes
    lsu += fragments + weights * tiling.warps_m / 16 + (weights + metadata + activations) / 16
    if plan.access == "scalar":
        lsu += elements * 2
        alu += elements * 10
    fma += flushes * flush_fma
    alu += flushes * flush_alu
    turns = blocks * tiling.ring_warps * LANES
    alu += turns * BLOCK_ALU
    overhead = steps * tiling.ring_warps * STEP_OVERHEAD * LANES + turns * BLOCK_OTHER
    moved = weights * (1 + tiling.warps_m) + metadata * 2 + activations + fragments * 16 + scratch
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
        activation_bytes=activations / plan.multicast,
        # a slot is refilled when its block is used up, which is late
        in_flight=int(
            ring.rings
            * (ring.slots - FITS[plan.family].late - LOOKAHEAD_SLOTS * plan.lookahead)
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
        scratch = float(codes * plan.value_bytes * (1 + tiling.warps_m))
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
    alu = pairs * SCALE_INSTRUCTIONS
    if plan.zero == "register":
        alu += pairs * product.classes * OFFSET_INSTRUCTIONS
    if plan.accumulator == "int32":
        # each integer sum is converted before it is scaled
        alu += outputs * (product.classes + product.sums)
    return float(flushes), float(fma), float(alu)


def estimate(plan: Plan, m: int | None = None) -> Cost:
    """Estimate the time of a plan for ``m`` tokens (the operator's, else the most that the plan takes)."""
    device, tiling = plan.device, plan.tiling
    tokens = max(1, _representative(plan) if m is None else m)
    rows = -(-tokens // tiling.tokens)
    tiles = plan.channel_tiles * rows
    ctas = tiles * plan.split
    resident = max(
        1,
        device.blocks_resident(
            threads=plan.threads, registers=plan.registers, shared_bytes=plan.launch_bytes
        ),
    )
    sms = int(device.sms * CLUSTER_SHARE.get(plan.cluster, min(CLUSTER_SHARE.values())))
    waves = -(-ctas // (sms * resident))
    of_cta = work(plan)
    share = min(resident, -(-ctas // sms))
    active = min(sms, ctas)
    in_flight = int(of_cta.in_flight * min(ctas, active * share))
    constants, fit = device.cost, FITS[plan.family]
    wave = constants.dram_latency_us if fit.wave_us is None else fit.wave_us
    if plan.launch == "pdl" and fit.pdl_wave_us is not None:
        wave = fit.pdl_wave_us
    busiest, summed = -(-ctas // sms), plan.split > 1
    if plan.persistent:
        wave, resident, waves = fit.tile_us, 1, -(-tiles // plan.persistent_ctas)
        busiest, summed = _busiest(plan, tiles), plan.shared_tiles(tiles) > 0
    start = fit.start_us + (dict(fit.cluster_us).get(plan.split, 0.0) if summed else 0.0)
    return Cost(
        m=tokens,
        ctas=ctas,
        resident=resident,
        waves=waves,
        in_flight=in_flight,
        bounds=(
            *_sm_bounds(plan, of_cta, busiest, share),
            *_memory_bounds(plan, of_cta, ctas, tokens, in_flight),
        ),
        launch_us=constants.launch_us + start,
        ramp_us=constants.pdl_ramp_us if plan.launch == "pdl" else constants.ramp_us,
        # while one of several resident blocks starts, the others keep the memory busy
        refill_us=(waves - 1) * wave / resident,
        overlap=fit.overlap,
    )


def _busiest(plan: Plan, tiles: int) -> int:
    """Parts of tiles (a whole one has ``split``) that the busiest CTA of a persistent kernel works through."""
    whole, rest = divmod(tiles, plan.persistent_ctas)
    last = 1 if plan.shared_tiles(tiles) else plan.split
    return whole * plan.split + (last if rest else 0)


def _representative(plan: Plan) -> int:
    if plan.op.m is not None:
        return plan.op.m
    return LARGE_M if plan.m_range[1] is None else plan.m_range[1]


def _sm_bounds(plan: Plan, of_cta: Work, ctas: int, together: int) -> tuple[Bound, ...]:
    """Ceilings of the busiest SM, which runs ``ctas`` blocks, ``together`` at once."""
    device, fit = plan.device, FITS[plan.family]
    clock = device.clock_hz / 1e6
    warpgroups = plan.tiling.threads // (WARPGROUP_WARPS * LANES)
    if warpgroups == PAIR:
        warpgroups *= together
    share = dict(fit.tensor).get((plan.tiling.warps_k, warpgroups), 1.0)
    product = device.instruction(_product(plan))
    rate = product.per_second or device.pipe_per_second("tensor") / LANES * product.operations
    amount = ctas * of_cta.products * product.operations
    bounds = [Bound("P tensor", amount, "operations an SM", share * rate / device.sms / 1e6)]
    for pipe, reached in (("alu", fit.alu), ("fma", 1.0), ("lsu", 1.0), ("issue", 1.0)):
        lanes = ctas * float(getattr(of_cta, pipe))
        per_us = reached * device.pipe(pipe) * clock
        bounds.append(Bound(f"P_D {pipe}", lanes, "lane instructions an SM", per_us))
    shared = device.level("shared").bytes_per_second / device.sms / 1e6
    bounds.append(Bound("BW shared", ctas * of_cta.shared_bytes, "B an SM", shared))
    # A warp waits for its own results and uses one pipe after the other; only other warps fill the gaps.
    warps = together * plan.threads / LANES
    busy = sum(bound.us for bound in bounds[:4]) / max(fit.overlapping, warps / SCHEDULERS)
    slices = plan.tiling.warps_k * plan.split
    blocks = -(-plan.packing.geometry.blocks // slices) * -(-ctas // together)
    # with lookahead the first fragments of a block are there when it begins
    start = 0.0 if plan.lookahead else BLOCK_LATENCY
    wait = start + STEP_LATENCY * plan.block_steps
    if plan.compute == "wgmma":
        wait = SPECIALISED_LATENCY if plan.load_warps else WARPGROUP_LATENCY
    bounds.append(Bound("a warp's chain", blocks * wait + busy * clock, "cycles", clock))
    return tuple(bounds)


def _product(plan: Plan) -> str:
    return next(stage.instruction for stage in plan.stages if isinstance(stage, Multiply))


def _memory_bounds(
    plan: Plan, of_cta: Work, ctas: int, m: int, in_flight: int
) -> tuple[Bound, ...]:
    """Ceilings of L2 and dram, which all SMs share, and Little's law."""
    device, op = plan.device, plan.op
    from_l2 = ctas * (of_cta.weight_bytes + of_cta.activation_bytes)
    weights = plan.packing.nbytes
    passes = 1
    if weights > L2_SHARE * device.l2_bytes:
        # rows of tokens that do not run together read the weights again
        together = max(1, group_of(plan), device.sms // plan.channel_tiles)
        passes = -(-(ctas // (plan.channel_tiles * plan.split)) // together)
    # of a residual as many bytes are read as are stored
    stores = m * op.out_n * op.out.dtype.itemsize * (1 + op.residual)
    from_dram = passes * weights + m * op.k * plan.value_bytes + stores
    latency, fit = device.cost.dram_latency_us, FITS[plan.family]
    return (
        Bound("BW l2", from_l2, "B", fit.l2 * device.level("l2").bytes_per_second / 1e6),
        Bound("BW dram", from_dram, "B", fit.dram * device.dram_bytes_per_second / 1e6),
        # Little's law: bytes in flight / latency is all that comes
        Bound("in flight", passes * weights, "B", max(1, in_flight) / latency),
    )
