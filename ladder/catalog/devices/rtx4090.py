"""NVIDIA GeForce RTX 4090 (sm_89). Published figures (NVIDIA Ada white paper, CUDA programming guide)."""

from __future__ import annotations

from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS = 128
CLOCK_HZ = 2.52e9

DEVICE = Device(
    name="rtx4090",
    title="NVIDIA GeForce RTX 4090",
    arch="sm_89",
    capability=(8, 9),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # published 1008e9 B/s, of which a stream reaches about 0.93
        MemoryLevel("dram", 24 * 2**30, 0.94e12, Tile((32,), Granule(1))),
        # size published; rate estimated at 16 B per clock and SM
        MemoryLevel("l2", 72 * 2**20, 16 * SMS * CLOCK_HZ, Tile((32,), Granule(1))),
        MemoryLevel("shared", 100 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        # published, float32 accumulation (half the rate of float16 accumulation on GeForce)
        *(isa.mma(t, tera_ops=165.2) for t in ("float16", "bfloat16")),
        *(isa.mma(t, tera_ops=330.3) for t in ("fp8_e4m3fn", "fp8_e5m2")),
        isa.mma("int8", tera_ops=660.6),
        *isa.nibble_mmas(tera_ops=1321.2),
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.STG,
    ),
    # column 8.9: half2 gives 128 results, two per lane instruction
    pipes=(("issue", 128), ("alu", 64), ("fma", 64), ("lsu", 32), ("xu", 16), ("tensor", 4)),
    features=isa.ADA,
    cost=CostConstants(launch_us=1.0, ramp_us=2.0, pdl_ramp_us=2.0, dram_latency_us=0.7),
    shared_bytes_per_block=99 * 1024,
    shared_bytes_per_sm=100 * 1024,
    warps_per_sm=48,
    blocks_per_sm=24,
)
