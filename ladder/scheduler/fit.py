"""What the kernels of each family reach of the ceilings of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fit:
    """What the kernels of a family reach of the ceilings, fitted to their times on an H200.

    Attributes:
        overlap: bounds add up in this norm: infinity would be perfect overlap, 1 none.
        tensor: share of the tensor rate by (K slices, warpgroups); 1 where nothing stands. Pairs count those of all CTAs
            that an SM runs at once.
        alu, l2, dram: shares of these rates.
        start_us: added to launch and ramp.
        cluster_us: what summing over a cluster adds, by its CTAs.
        overlapping: schedulers' worth of warps that a CTA has at least, where products run by themselves.
        wave_us: start and end of a further wave of CTAs that have an SM for themselves.
        pdl_start_us: added under programmatic launch: from the end of the kernel before to the first product, and from the last
            one to the end.
        late: slots of a ring that are on average not on their way.
        tile_us: the same where a persistent CTA goes on to its next tile.
        block_alu, block_other: instructions of a warp per block besides product, decode, flush and loads (addresses and
            bounds of copies, metadata, waits), on alu and on no busy pipe.
        step_other: the same per step.
    """

    overlap: float = 4.0
    tensor: tuple[tuple[tuple[int, int], float], ...] = ()
    alu: float = 1.0
    l2: float = 1.0
    dram: float = 1.0
    start_us: float = 0.0
    cluster_us: tuple[tuple[int, float], ...] = ()
    overlapping: float = 1.0
    wave_us: float | None = None
    pdl_start_us: float = 0.0
    late: float = 1.5
    tile_us: float = 1.0
    block_alu: float = 60.0
    block_other: float = 40.0
    step_other: float = 4.0


#: fitted to 293 kernels of 75 problems (4096 .. 28672 channels and columns, M 16 .. 4096): rms of the logarithm 0.08
FITS = {
    # 312 kernels of 24 problems at M = 1 and 16 (int4, nf4, codebook3, mxfp4, nvfp4, int8, fp8, fp4): rms 0.11, the choice 1.03.
    # The instructions of a block are counted in its machine code (int4, 1 to 7 row tiles)
    "skinny": Fit(
        wave_us=1.0,
        pdl_start_us=0.9,
        late=0.25,
        block_alu=22.0,
        block_other=17.0,
        step_other=0.0,
    ),
    "ring": Fit(start_us=1.0),
    "specialised": Fit(
        overlap=5.6,
        # warpgroups beside each other are limited by issue, those that take turns at the ring by each other
        tensor=(((1, 4), 0.85), ((2, 2), 0.57), ((2, 4), 0.57), ((1, 1), 1.3)),
        alu=0.8,
        l2=0.91,
        dram=0.885,
        start_us=0.15,
        cluster_us=((2, 2.0), (4, 4.5), (8, 6.0)),
        overlapping=1.6,
        wave_us=4.4,
    ),
}
