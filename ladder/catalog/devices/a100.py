"""NVIDIA A100 SXM4 80 GB (sm_80). Published figures (NVIDIA A100 white paper, CUDA programming guide)."""

from __future__ import annotations

from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS = 108
CLOCK_HZ = 1.41e9

DEVICE = Device(
    name="a100",
    title="NVIDIA A100 SXM4 80 GB",
    arch="sm_80",
    capability=(8, 0),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # published 2.039e12 B/s, of which a stream reaches about 0.9
        MemoryLevel("dram", 80 * 10**9, 1.85e12, Tile((32,), Granule(1))),
        MemoryLevel("l2", 40 * 2**20, 5120 * CLOCK_HZ, Tile((32,), Granule(1))),
        MemoryLevel("shared", 164 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        *(isa.mma(t, tera_ops=312) for t in ("float16", "bfloat16")),
        isa.mma("int8", tera_ops=624),
        *isa.nibble_mmas(tera_ops=1248),
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.STG,
    ),
    # lane instructions per clock and SM: "Throughput of Native Arithmetic Instructions", column 8.0;
    # half2 counts 256 results, two per lane instruction
    pipes=(("issue", 128), ("alu", 64), ("fma", 128), ("lsu", 32), ("xu", 16), ("tensor", 16)),
    features=isa.AMPERE,
    # taken over from the H200, latency from the lower clock
    cost=CostConstants(launch_us=1.0, ramp_us=2.2, pdl_ramp_us=2.2, dram_latency_us=0.7),
    shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024,
    warps_per_sm=64,
    blocks_per_sm=32,
)
