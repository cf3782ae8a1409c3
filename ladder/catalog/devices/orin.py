"""NVIDIA Jetson AGX Orin 64 GB (sm_87). Published figures (Jetson AGX Orin data sheet, CUDA programming guide)."""

from __future__ import annotations

from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS = 16
CLOCK_HZ = 1.3e9

DEVICE = Device(
    name="orin",
    title="NVIDIA Jetson AGX Orin 64 GB",
    arch="sm_87",
    capability=(8, 7),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # published 204.8e9 B/s, shared with the CPU; about 0.85 of it reaches a stream (estimate)
        MemoryLevel("dram", 64 * 2**30, 0.174e12, Tile((32,), Granule(1))),
        # size published; rate estimated at 16 B per clock and SM
        MemoryLevel("l2", 4 * 2**20, 16 * SMS * CLOCK_HZ, Tile((32,), Granule(1))),
        MemoryLevel("shared", 164 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        # derived from the published 170 sparse int8 TOP/s: half of it dense, half of that for 16 bits
        *(isa.mma(t, tera_ops=42.5) for t in ("float16", "bfloat16")),
        isa.mma("int8", tera_ops=85),
        *isa.nibble_mmas(
            tera_ops=170
        ),  # derived: twice int8, as on the other parts of the generation
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.STG,
    ),
    # the guide has no column 8.7: fma as on 8.6, the careful guess
    pipes=(("issue", 128), ("alu", 64), ("fma", 64), ("lsu", 32), ("xu", 16), ("tensor", 16)),
    features=isa.AMPERE,
    cost=CostConstants(launch_us=3.0, ramp_us=3.0, pdl_ramp_us=3.0, dram_latency_us=1.0),
    shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024,
    warps_per_sm=48,
    blocks_per_sm=16,
)
