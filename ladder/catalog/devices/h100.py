"""NVIDIA H100 SXM5 (sm_90a). Published figures (NVIDIA H100 data sheet and white paper); nothing measured here.

The SM is the H200's, so pipe rates and the share of the published peak that instructions reach are taken over
from the figures measured there.
"""

from __future__ import annotations

from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS = 132
#: published: the peak of 989 TFLOP/s is 132 SMs x 4096 operations at 1.83 GHz; sustained as on the H200
CLOCK_HZ = 1.8e9

DEVICE = Device(
    name="h100",
    title="NVIDIA H100 SXM5 80 GB",
    arch="sm_90a",
    capability=(9, 0),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # published 3.35e12 B/s; a stream reaches 0.93 of it, the share that HBM3 keeps on the H200 class
        MemoryLevel("dram", 80 * 10**9, 3.1e12, Tile((32,), Granule(1))),
        MemoryLevel("l2", 50 * 2**20, 5120 * CLOCK_HZ, Tile((32,), Granule(1))),
        MemoryLevel("shared", 228 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        *(isa.mma(t, tera_ops=575) for t in ("float16", "bfloat16")),
        isa.mma("int8", tera_ops=1159),
        *(
            one
            for t in ("float16", "bfloat16")
            for one in isa.wgmmas(t, {8: 238, 16: 468, 32: 800, 64: 872, 128: 903, 256: 924})
        ),
        *(
            one
            for t in ("fp8_e4m3fn", "fp8_e5m2", "int8")
            for one in isa.wgmmas(t, {8: 476, 16: 936, 32: 1600, 64: 1744, 128: 1803, 256: 1843})
        ),
        *(isa.wgmma(t, 256, tera_ops=926, weight_level="shared") for t in ("float16", "bfloat16")),
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.CP_ASYNC_BULK,
        isa.TMA_2D,
        isa.STG,
    ),
    pipes=(("issue", 128), ("alu", 64), ("fma", 116), ("lsu", 32), ("xu", 17), ("tensor", 18.9)),
    features=isa.HOPPER,
    cost=CostConstants(launch_us=0.6, ramp_us=1.8, pdl_ramp_us=0.1, dram_latency_us=0.8),
    shared_bytes_per_block=227 * 1024,
    shared_bytes_per_sm=228 * 1024,
    warps_per_sm=64,
    blocks_per_sm=32,
)
