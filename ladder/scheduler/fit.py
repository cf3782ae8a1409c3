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
        sustained: share of the tensor rate by type of the activations and whether a product has 256 tokens, 1 where nothing
            stands: power sets clocks, and what decodes to 16 bits is in the way of products that are short.
        l2, dram: shares of these rates.
        start_us: added to launch and ramp.
        exchange: bytes per microsecond at which a CTA of a cluster sends what the others sum.
        overlapping: schedulers' worth of warps that a CTA has at least, where products run by themselves.
        wave_us: start and end of a further wave of CTAs that have an SM for themselves.
        pdl_wave_us: the same under programmatic launch, where CTAs of the next kernel fill the gap; None: no different.
        late: slots of a ring that are on average not on their way.
        tile_us: the same where a persistent CTA goes on to its next tile.
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
    pdl_wave_us: float | None = None
    late: float = 1.5
    tile_us: float = 1.0


FITS = {
    # 545 kernels of 20 problems at M = 1 (int4, nf4, codebook3, uint1, uint2, fp4, mxfp4, nvfp4): rms 0.18, the choice 1.03
    "skinny": Fit(wave_us=1.0, pdl_wave_us=0.0, late=0.75),
    "ring": Fit(start_us=1.0),
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
        exchange=15.5e3,
        overlapping=1.9,
        wave_us=6.5,
        tile_us=3.5,
    ),
}
