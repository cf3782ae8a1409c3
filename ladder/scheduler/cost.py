"""How long a plan should take: three ceilings, occupancy, and constants fitted to the device. Nothing is measured.

The time of a kernel is bounded by the tensor cores (P), by each memory level (I x BW) and by the pipes that decode
weights (P_D); each bound is work of the busiest SM over the rate of one SM, for dram and L2 work of the device. They
overlap, but not wholly: bounds near the largest one lengthen it (`overlap` of :mod:`ladder.scheduler.fit`). Launch, ramp and a refill for
every further wave come on top.

    >>> print(estimate(plan, m=1))
    11.9 us = launch 0.60 + ramp 1.80 + work 9.5 + refills 0.00 ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ladder.scheduler.fit import FITS
from ladder.scheduler.geometry import counted
from ladder.scheduler.plan import Plan
from ladder.scheduler.raster import group_of
from ladder.scheduler.stage import Multiply
from ladder.scheduler.work import LANES, WARPGROUP_WARPS, Work, work

#: M that stands for "any larger M"
LARGE_M = 4096

#: part of the L2 that weights may fill and still be there for the next row of CTAs
L2_SHARE = 0.7

#: cycles that a warpgroup waits in one block besides issuing and multiplying: the end of a group's products, and the barrier;
#: where a warp of its own loads, the ring alone
WARPGROUP_LATENCY = 350.0
SPECIALISED_LATENCY = 135.0

#: part of the SMs that clusters of so many CTAs can fill: they stay within a group of SMs, whose size no power of two
#: divides (measured on an H200: 66 clusters of 2 run at once, 30 of 4)
CLUSTER_SHARE = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.72}

#: warpgroups that fill the tensor cores of an SM; twice as many limit each other by issue
PAIR = 2

#: tokens of the widest product
WIDE_TOKENS = 256

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
    # CTAs of a persistent kernel are one an SM
    share = 1 if plan.persistent else min(resident, -(-ctas // sms))
    active = min(sms, ctas)
    in_flight = int(of_cta.in_flight * min(ctas, active * share))
    constants, fit = device.cost, FITS[plan.family]
    wave = constants.dram_latency_us if fit.wave_us is None else fit.wave_us
    busiest, summed = float(-(-ctas // sms)), plan.split > 1
    if waves > 1:
        busiest += fit.clumped * (waves * resident - busiest)
    if plan.persistent:
        wave, resident, waves = fit.tile_us, 1, -(-tiles // plan.persistent_ctas)
        busiest, summed = _busiest(plan, tiles), plan.shared_tiles(tiles) > 0
    # as long as memory brings what the rings hold at first
    filling = fit.filling * min(in_flight, plan.packing.nbytes) / device.dram_bytes_per_second * 1e6
    return Cost(
        m=tokens,
        ctas=ctas,
        resident=resident,
        waves=waves,
        in_flight=in_flight,
        bounds=(
            *_sm_bounds(plan, of_cta, busiest, share, filling),
            *_memory_bounds(plan, of_cta, ctas, tokens, share, in_flight),
        ),
        launch_us=constants.launch_us
        + _start_us(plan, share)
        + (_exchange_us(plan) if summed else 0.0),
        ramp_us=constants.pdl_ramp_us if plan.launch == "pdl" else constants.ramp_us,
        # while one of several resident blocks starts, the others keep the memory busy
        refill_us=(waves - 1) * wave / resident,
        overlap=fit.overlap,
    )


def _start_us(plan: Plan, share: int) -> float:
    """Start and end of a kernel besides launch and ramp."""
    fit, tiling = FITS[plan.family], plan.tiling
    start = fit.start_us + (fit.pdl_start_us if plan.launch == "pdl" else 0.0)
    start += fit.beside_us * (share - 1)
    return start + tiling.warps_k * tiling.channels * tiling.tokens * 4 / fit.reduced


def _exchange_us(plan: Plan) -> float:
    """What summing the K slices of a cluster takes: each CTA sends all of its tile but the part that it sums itself."""
    away = plan.tiling.channels * plan.tiling.tokens * 4 * (plan.split - 1) / plan.split
    return away / FITS[plan.family].exchange


def _busiest(plan: Plan, tiles: int) -> float:
    """Parts of tiles (a whole one has ``split``) that the busiest CTA of a persistent kernel works through."""
    whole, rest = divmod(tiles, plan.persistent_ctas)
    last = 1 if plan.shared_tiles(tiles) else plan.split
    return float(whole * plan.split + (last if rest else 0))


def _representative(plan: Plan) -> int:
    if plan.op.m is not None:
        return plan.op.m
    return LARGE_M if plan.m_range[1] is None else plan.m_range[1]


def _sm_bounds(
    plan: Plan, of_cta: Work, ctas: float, together: int, filling: float
) -> tuple[Bound, ...]:
    """Ceilings of the busiest SM, which runs ``ctas`` blocks, ``together`` at once, the first after ``filling`` us."""
    device, fit = plan.device, FITS[plan.family]
    clock = device.clock_hz / 1e6
    warpgroups = plan.tiling.threads // (WARPGROUP_WARPS * LANES)
    if warpgroups == PAIR:
        warpgroups *= together
    share = dict(fit.tensor).get((plan.tiling.warps_k, warpgroups), 1.0)
    wide = plan.tiling.tokens == WIDE_TOKENS
    share *= dict(fit.sustained).get((plan.op.activation.name, wide), 1.0)
    product = device.instruction(_product(plan))
    rate = product.per_second or device.pipe_per_second("tensor") / LANES * product.operations
    amount = ctas * of_cta.products * product.operations
    bounds = [Bound("P tensor", amount, "operations an SM", share * rate / device.sms / 1e6)]
    for pipe in ("alu", "fma", "lsu", "issue"):
        lanes = ctas * float(getattr(of_cta, pipe))
        per_us = device.pipe(pipe) * clock
        bounds.append(Bound(f"P_D {pipe}", lanes, "lane instructions an SM", per_us))
    shared = device.level("shared").bytes_per_second / device.sms / 1e6
    bounds.append(Bound("BW shared", ctas * of_cta.shared_bytes, "B an SM", shared))
    # A warp waits for its own results and uses one pipe after the other; only other warps fill the gaps.
    warps = together * plan.threads / LANES
    busy = sum(bound.us for bound in bounds[:4]) / max(fit.overlapping, warps / SCHEDULERS)
    slices = plan.tiling.warps_k * plan.split
    blocks = -(-plan.packing.geometry.blocks // slices) * math.ceil(ctas / together)
    # with lookahead the first fragments of a block are there when it begins
    start = 0.0 if plan.lookahead else fit.block_latency
    wait = start + fit.step_latency * plan.block_steps
    if plan.compute == "wgmma":
        wait = SPECIALISED_LATENCY if plan.load_warps else WARPGROUP_LATENCY
    chain = blocks * wait + (busy * fit.stalls + filling) * clock
    bounds.append(Bound("a warp's chain", chain, "cycles", clock))
    return tuple(bounds)


def _product(plan: Plan) -> str:
    return next(stage.instruction for stage in plan.stages if isinstance(stage, Multiply))


def _memory_bounds(
    plan: Plan, of_cta: Work, ctas: int, m: int, share: int, in_flight: int
) -> tuple[Bound, ...]:
    """Ceilings of L2 and dram, which all SMs share, and Little's law."""
    device, op = plan.device, plan.op
    from_l2 = ctas * (of_cta.weight_bytes + of_cta.activation_bytes)
    weights = plan.packing.nbytes
    passes = 1
    if weights > L2_SHARE * device.l2_bytes:
        # rows of tokens that do not run together read the weights again
        together = max(1, group_of(plan), device.sms * share // plan.channel_tiles)
        passes = -(-(ctas // (plan.channel_tiles * plan.split)) // together)
    beside = op.out.dtype.itemsize * op.residual  # is read, and of the out type whatever is stored
    stores = m * op.out_n * (op.stored.dtype.itemsize + beside)
    from_dram = passes * weights + plan.value_bytes(m * op.k) + stores
    fit = FITS[plan.family]
    latency = device.cost.dram_latency_us if fit.latency_us is None else fit.latency_us
    return (
        Bound("BW l2", from_l2, "B", fit.l2 * device.level("l2").bytes_per_second / 1e6),
        Bound("BW dram", from_dram, "B", fit.dram * device.dram_bytes_per_second / 1e6),
        # Little's law: bytes in flight / latency is all that comes
        Bound("in flight", passes * weights, "B", max(1, in_flight) / latency),
    )
