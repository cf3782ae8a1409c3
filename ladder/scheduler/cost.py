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
from typing import NamedTuple

from ladder.scheduler.fit import CROWDED, FITS
from ladder.scheduler.geometry import counted
from ladder.scheduler.plan import Plan
from ladder.scheduler.raster import group_of
from ladder.scheduler.residency import is_paced, launches_together, may_leave_room
from ladder.scheduler.walk import blocks_ahead
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


class Bound(NamedTuple):
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


def _overlapped(bounds: tuple[Bound, ...], overlap: float) -> float:
    """Time of ceilings together, in microseconds: their norm."""
    times = [bound.us for bound in bounds]
    longest = max(times)
    return float(longest * sum([(us / longest) ** overlap for us in times]) ** (1 / overlap))


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate that shows its arithmetic.

    Attributes:
        m: tokens that it is for.
        ctas: blocks of the grid that have a tile of their own.
        resident: blocks that one SM holds at once.
        waves: times that the grid fills the device, rounded up.
        in_flight: bytes of weights and metadata on their way, all SMs together.
        bounds: the ceilings.
        launch_us, ramp_us, refill_us: constants of the device, and a refill for each further wave.
        queue_us: what the activations wait behind weights that were asked for too early.
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
    queue_us: float = 0.0
    overlap: float = 4.0

    @property
    def work_us(self) -> float:
        """The ceilings together, in microseconds."""
        return _overlapped(self.bounds, self.overlap)

    @property
    def us(self) -> float:
        """The whole estimate, in microseconds."""
        return self.launch_us + self.ramp_us + self.work_us + self.refill_us + self.queue_us

    @property
    def limit(self) -> Bound:
        """The largest ceiling."""
        return max(self.bounds, key=lambda bound: bound.us)

    def __str__(self) -> str:
        lines = [
            (
                f"{self.us:.2f} us at M={self.m} = launch {self.launch_us:.2f} + ramp {self.ramp_us:.2f}"
                f" + work {self.work_us:.2f} + refills {self.refill_us:.2f} + queues {self.queue_us:.2f};"
                f" bound by {self.limit.name}"
            ),
            (
                f"  {counted(self.ctas, 'CTA')} in {counted(self.waves, 'wave')}, {self.resident} on an SM,"
                f" {self.in_flight} B in flight"
            ),
        ]
        return "\n".join(lines + [f"  {bound}" for bound in self.bounds])


def estimate(plan: Plan, m: int | None = None) -> Cost:
    """Estimate the time of a plan for ``m`` tokens (the operator's, else the most that the plan takes)."""
    device, fit = plan.device, FITS[plan.family]
    tokens = max(1, _representative(plan) if m is None else m)
    grid, of_cta = _grid(plan, tokens), work(plan)
    in_flight = int(of_cta.in_flight * min(grid.ctas, min(grid.sms, grid.ctas) * grid.together))
    in_flight = min(in_flight, plan.packing.nbytes)  # rings may have room for more than there is
    # as long as memory brings what the rings hold at first, unless all of it comes beside the kernel before
    filling = fit.filling * in_flight / device.dram_bytes_per_second * 1e6
    if launches_together(plan) > 1:
        filling = 0.0
    return Cost(
        m=tokens,
        ctas=grid.ctas,
        resident=grid.resident,
        waves=grid.waves,
        in_flight=in_flight,
        bounds=(
            *_sm_bounds(plan, of_cta, grid.busiest, grid.together, filling),
            *_memory_bounds(plan, of_cta, grid.ctas, tokens, grid.together, in_flight),
        ),
        launch_us=_launch_us(plan, grid.tiles, grid.together, alone=launches_together(plan) == 1),
        ramp_us=_ramp_us(plan),
        # while one of several resident blocks starts, the others keep the memory busy
        refill_us=(grid.waves - 1) * _wave_us(plan) / grid.resident,
        queue_us=_queue_us(plan, grid.together),
        overlap=fit.overlap,
    )


def floor_us(plan: Plan) -> float:
    """Microseconds below which no slots of the ring and no lookahead take the estimate of a plan.

    It counts start, end, and the ceilings that know neither, with as few blocks on the busiest SM and as few passes over the
    weights as any number of resident blocks leaves.
    """
    fit, tokens = FITS[plan.family], max(1, _representative(plan))
    tiles = plan.channel_tiles * -(-tokens // plan.tiling.tokens)
    ctas, of_cta = tiles * plan.split, work(plan)
    busiest = _busiest(plan, tiles) if plan.persistent else float(-(-ctas // _sms(plan)))
    share = max([1.0, *(part for _, part in fit.tensor)])
    bounds = (
        *_pipe_bounds(plan, of_cta, busiest, share),
        *_rate_bounds(plan, of_cta, ctas, tokens, passes=1),
    )
    launch = _launch_us(plan, tiles, together=1, alone=not may_leave_room(plan))
    return launch + _ramp_us(plan) + _overlapped(bounds, fit.overlap)


@dataclass(frozen=True, slots=True)
class _Grid:
    """How the blocks of a launch lie on the device.

    Attributes:
        tiles: output tiles.
        ctas: blocks.
        sms: those that clusters can fill.
        resident: blocks that an SM holds at once; of a persistent kernel one.
        waves: times that they fill the device; of a persistent kernel, tiles of its busiest block.
        together: blocks that the busiest SM runs at once.
        busiest: blocks that it runs in all.
    """

    tiles: int
    ctas: int
    sms: int
    resident: int
    waves: int
    together: int
    busiest: float


def _grid(plan: Plan, tokens: int) -> _Grid:
    device, tiles = plan.device, plan.channel_tiles * -(-tokens // plan.tiling.tokens)
    ctas = tiles * plan.split
    resident = max(
        1,
        device.blocks_resident(
            threads=plan.threads, registers=plan.registers, shared_bytes=plan.launch_bytes
        ),
    )
    sms = _sms(plan)
    waves = -(-ctas // (sms * resident))
    busiest = float(-(-ctas // sms))
    together = min(resident, -(-ctas // sms))
    if waves > 1:
        busiest += FITS[plan.family].clumped * (waves * resident - busiest)
    if plan.persistent:
        resident, waves, together = 1, -(-tiles // plan.persistent_ctas), 1
        busiest = _busiest(plan, tiles)
    return _Grid(tiles, ctas, sms, resident, waves, together, busiest)


def _sms(plan: Plan) -> int:
    """SMs that clusters can fill."""
    return int(plan.device.sms * CLUSTER_SHARE.get(plan.cluster, min(CLUSTER_SHARE.values())))


def _launch_us(plan: Plan, tiles: int, together: int, *, alone: bool) -> float:
    """Launch, start and end of a kernel, and the sums of a cluster where it shares tiles."""
    summed = plan.shared_tiles(tiles) > 0 if plan.persistent else plan.split > 1
    exchange = _exchange_us(plan) if summed else 0.0
    return plan.device.cost.launch_us + _start_us(plan, together, alone=alone) + exchange


def _ramp_us(plan: Plan) -> float:
    constants = plan.device.cost
    return constants.pdl_ramp_us if plan.launch == "pdl" else constants.ramp_us


def _wave_us(plan: Plan) -> float:
    """Start and end of a further wave, or of a further tile of a persistent kernel."""
    fit = FITS[plan.family]
    if plan.persistent:
        return fit.tile_us
    return plan.device.cost.dram_latency_us if fit.wave_us is None else fit.wave_us


def _start_us(plan: Plan, together: int, *, alone: bool) -> float:
    """Start and end of a kernel besides launch and ramp, ``together`` CTAs on an SM that the next launch finds room on or not."""
    fit, tiling = FITS[plan.family], plan.tiling
    beside = fit.pdl_beside_us if plan.launch == "pdl" else fit.beside_us
    start = fit.start_us + beside * (together - 1)
    if plan.launch == "pdl" and alone:
        start += fit.pdl_start_us
    return start + tiling.warps_k * tiling.channels * tiling.tokens * 4 / fit.reduced


def _queue_us(plan: Plan, together: int) -> float:
    """What activations wait behind weights that the rings of ``together`` CTAs on an SM ask for too early."""
    device, ring, crowding = plan.device, plan.load_ring, FITS[plan.family].crowding
    if not crowding or is_paced(plan):
        return 0.0
    early = together * ring.rings * ring.weight_bytes * blocks_ahead(plan) - CROWDED
    return crowding * max(0, early) * device.sms / device.dram_bytes_per_second * 1e6


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
    pipes = _pipe_bounds(plan, of_cta, ctas, _tensor_share(plan, together))
    chain = _chain(plan, pipes, ctas, together, filling)
    return (*pipes, Bound("a warp's chain", chain, "cycles", plan.device.clock_hz / 1e6))


def _tensor_share(plan: Plan, together: int) -> float:
    """Part of the tensor rate that the warpgroups of ``together`` blocks on an SM reach."""
    warpgroups = plan.tiling.threads // (WARPGROUP_WARPS * LANES)
    if warpgroups == PAIR:
        warpgroups *= together
    return dict(FITS[plan.family].tensor).get((plan.tiling.warps_k, warpgroups), 1.0)


def _pipe_bounds(plan: Plan, of_cta: Work, ctas: float, share: float) -> tuple[Bound, ...]:
    """Ceilings of the tensor cores, at ``share`` of their rate, the pipes and the shared memory of an SM that runs ``ctas`` blocks."""
    device = plan.device
    clock = device.clock_hz / 1e6
    wide = plan.tiling.tokens == WIDE_TOKENS
    share *= dict(FITS[plan.family].sustained).get((plan.op.activation.name, wide), 1.0)
    product = device.instruction(plan.instruction)
    rate = product.per_second or device.pipe_per_second("tensor") / LANES * product.operations
    amount = ctas * of_cta.products * product.operations
    bounds = [Bound("P tensor", amount, "operations an SM", share * rate / device.sms / 1e6)]
    for pipe in ("alu", "fma", "lsu", "issue"):
        lanes = ctas * float(getattr(of_cta, pipe))
        per_us = device.pipe(pipe) * clock
        bounds.append(Bound(f"P_D {pipe}", lanes, "lane instructions an SM", per_us))
    shared = device.level("shared").bytes_per_second / device.sms / 1e6
    bounds.append(Bound("BW shared", ctas * of_cta.shared_bytes, "B an SM", shared))
    return tuple(bounds)


def _chain(
    plan: Plan, pipes: tuple[Bound, ...], ctas: float, together: int, filling: float
) -> float:
    """Cycles of a warp, which waits for its own results and uses one pipe after the other; only other warps fill the gaps."""
    fit = FITS[plan.family]
    warps = together * plan.threads / LANES
    busy = sum(bound.us for bound in pipes[:4]) / max(fit.overlapping, warps / SCHEDULERS)
    slices = plan.tiling.warps_k * plan.split
    blocks = -(-plan.packing.geometry.blocks // slices) * math.ceil(ctas / together)
    # with lookahead the first fragments of a block are there when it begins
    start = 0.0 if plan.lookahead else fit.block_latency
    wait = start + fit.step_latency * plan.block_steps
    if plan.compute == "wgmma":
        wait = SPECIALISED_LATENCY if plan.load_warps else WARPGROUP_LATENCY
    return blocks * wait + (busy * fit.stalls + filling) * (plan.device.clock_hz / 1e6)


def _memory_bounds(
    plan: Plan, of_cta: Work, ctas: int, m: int, share: int, in_flight: int
) -> tuple[Bound, ...]:
    """Ceilings of L2 and dram, which all SMs share, and Little's law."""
    passes, fit = _passes(plan, ctas, share), FITS[plan.family]
    latency = plan.device.cost.dram_latency_us if fit.latency_us is None else fit.latency_us
    return (
        *_rate_bounds(plan, of_cta, ctas, m, passes),
        # Little's law: bytes in flight / latency is all that comes
        Bound("in flight", passes * plan.packing.nbytes, "B", max(1, in_flight) / latency),
    )


def _passes(plan: Plan, ctas: int, share: int) -> int:
    """Times that the weights come from dram: rows of tokens that do not run together read them again."""
    device = plan.device
    if plan.packing.nbytes <= L2_SHARE * device.l2_bytes:
        return 1
    together = max(1, group_of(plan), device.sms * share // plan.channel_tiles)
    return -(-(ctas // (plan.channel_tiles * plan.split)) // together)


def _rate_bounds(plan: Plan, of_cta: Work, ctas: int, m: int, passes: int) -> tuple[Bound, ...]:
    """Ceilings of L2 and dram, the weights read ``passes`` times."""
    device, op, fit = plan.device, plan.op, FITS[plan.family]
    from_l2 = ctas * (of_cta.weight_bytes + of_cta.activation_bytes)
    beside = op.out.dtype.itemsize * op.residual  # is read, and of the out type whatever is stored
    stores = m * op.out_n * (op.stored.dtype.itemsize + beside)
    from_dram = passes * plan.packing.nbytes + plan.value_bytes(m * op.k) + stores
    dram = fit.dram * device.dram_bytes_per_second / 1e6
    if plan.launch == "pdl":
        share = -(-ctas // _sms(plan))
        dram /= 1 + fit.uneven * (share * _sms(plan) / ctas - 1)
    return (
        Bound("BW l2", from_l2, "B", fit.l2 * device.level("l2").bytes_per_second / 1e6),
        Bound("BW dram", from_dram, "B", dram),
    )
