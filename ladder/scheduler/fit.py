"""What the kernels of each family reach of the ceilings of a device."""

from __future__ import annotations

from dataclasses import dataclass

#: bytes of weights on their way to an SM beyond which more do not come sooner (an H200; 24 KB are too few, 96 KB too many, by 3 to 9 %)
CROWDED = 64 * 1024


@dataclass(frozen=True, slots=True)
class Fit:
    """What the kernels of a family reach of the ceilings, fitted to their times on an H200.

    Attributes:
        overlap: bounds add up in this norm: infinity would be perfect overlap, 1 none.
        tensor: share of the tensor rate by (K slices, warpgroups); 1 where nothing stands. Pairs count those of all CTAs
            that an SM runs at once.
        sustained: share of the tensor rate by type of the activations and whether a product has 256 tokens, 1 where nothing
            stands: power sets clocks, and what decodes to 16 bits is in the way of products that are short.
        l2, dram: shares of these rates.
        start_us: added to launch and ramp.
        exchange: bytes per microsecond at which a CTA of a cluster sends what the others sum.
        overlapping: schedulers' worth of warps that a CTA has at least, where products run by themselves.
        wave_us: start and end of a further wave of CTAs that have an SM for themselves.
        pdl_start_us: added under programmatic launch, where an SM has no room for the next one: from the end of the kernel before
            to the first product, and from the last one to the end.
        uneven: under programmatic launch, by what memory takes longer, as a part of what the busiest SM has to do above the
            mean: SMs with less to do start CTAs of the next kernel beside, and those of one kernel end far apart.
        clumped: of the CTAs that an SM could get beyond its share where there are several waves, the part that the busiest gets:
            an SM whose CTAs end together takes as many new ones at once.
        late: slots of a ring that are on average not on their way.
        latency_us: from the request of a slot to its arrival; None: what the device says.
        beside_us, pdl_beside_us: start and end of a CTA that an SM runs beside another one; the same under programmatic launch,
            where it starts beside one of the kernel before.
        stalls: what a warp's own instructions take, by what they would take if none waited for the one before.
        filling: part of the time in which the rings fill that the first product waits: until the last warp has asked for all
            its slots, memory is busy with later ones.
        crowding: part of the time in which memory brings what the rings of an SM ask for beyond :data:`CROWDED` bytes, that a kernel
            takes longer: such requests stand in queues, before those that are needed first.
        block_latency, step_latency: cycles that a warp waits besides issuing: in one block (slot, shared loads, start and end of
            the products), and from one step's products to those of the next on the same accumulators.
        reduced: bytes per microsecond at which a CTA sums its K slices and stores.
        tile_us: the same where a persistent CTA goes on to its next tile.
        block_alu, block_other: instructions of a warp per block besides product, decode, flush and loads (addresses and
            bounds of copies, metadata, waits), on alu and on no busy pipe.
        step_other: the same per step.
    """

    overlap: float = 4.0
    tensor: tuple[tuple[tuple[int, int], float], ...] = ()
    sustained: tuple[tuple[tuple[str, bool], float], ...] = ()
    l2: float = 1.0
    dram: float = 1.0
    start_us: float = 0.0
    exchange: float = float("inf")
    overlapping: float = 1.0
    wave_us: float | None = None
    pdl_start_us: float = 0.0
    uneven: float = 0.0
    clumped: float = 0.0
    late: float = 1.5
    latency_us: float | None = None
    beside_us: float = 0.0
    pdl_beside_us: float = 0.0
    stalls: float = 1.0
    filling: float = 0.0
    crowding: float = 0.0
    block_latency: float = 200.0
    step_latency: float = 33.0
    reduced: float = float("inf")
    tile_us: float = 1.0
    block_alu: float = 60.0
    block_other: float = 40.0
    step_other: float = 4.0


FITS = {
    # 1457 kernels of 121 problems at M = 1 to 16 (int4 on 13 shapes, sixteen other types on one or two): rms 0.09, the choice
    # among those measured, of all families, 1.013 of the best up to M = 8, 1.034 at 16. The instructions of a block are counted in its machine code
    # (int4, 1 to 7 row tiles). Uneven shares: 21 kernels of int8 and int4 at M = 1 (int8, 28672 channels: 1.07 times as long with
    # 1.18 times the mean on the busiest SM; 14336 channels of int4: no longer), kept as low as orders all of them
    "skinny": Fit(
        overlap=4.3,
        l2=1.31,
        wave_us=3.3,
        pdl_start_us=0.6,
        uneven=0.15,
        clumped=0.82,
        late=1.0,
        latency_us=0.7,
        beside_us=0.3,
        pdl_beside_us=0.2,
        stalls=1.09,
        filling=0.35,
        crowding=0.8,
        block_latency=5.0,
        step_latency=11.4,
        reduced=24.8e3,
        block_alu=24.5,
        block_other=36.0,
        step_other=4.0,
    ),
    # 230 kernels of 75 problems at M up to 64: rms 0.09. The part of the memory rate is what kernels with a ring a warp were found to reach
    "ring": Fit(
        overlap=3.7,
        dram=0.945,
        start_us=1.08,
        stalls=1.07,
        block_latency=188.0,
        step_latency=0.4,
        block_alu=61.0,
        block_other=50.0,
        step_other=3.3,
    ),
    # 733 kernels (4096 .. 28672 channels and columns, M 1 .. 4096, activations of 16 and 8 bits): rms of the logarithm 0.03 with
    # dense weights, 0.04 with low-bit ones from M = 128 on, 0.07 below, 0.06 with activations of 8 bits
    "specialised": Fit(
        overlap=4.5,
        # one waits for its own products, those beside each other are limited by issue, those that take turns at the ring by each other
        tensor=(((1, 1), 0.87), ((1, 4), 0.87), ((2, 2), 0.72), ((2, 4), 0.57)),
        sustained=(
            *(((name, True), 0.95) for name in ("float16", "bfloat16")),
            *(((name, False), 0.91) for name in ("float16", "bfloat16")),
            *((("int8", is_wide), 1.08) for is_wide in (False, True)),
        ),
        # 64 bytes per clock and SM: neighbours read the same lines, and what its slices alone deliver is no limit
        l2=1.65,
        dram=0.96,
        start_us=0.7,
        pdl_start_us=0.6,
        beside_us=0.84,
        pdl_beside_us=0.84,
        exchange=15.5e3,
        overlapping=1.9,
        wave_us=6.5,
        tile_us=3.5,
    ),
}
