"""A device that is not shipped: this file is all there is to it.

``ladder devices examples/new_device.py`` shows it, ``ladder plan ... --device examples/new_device.py`` plans for it.
"""

from __future__ import annotations

import ladder
from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS, CLOCK_HZ = 84, 1.8e9  # published, the clock is that of a boost

DEVICE = Device(
    name="rtx_a6000",
    title="NVIDIA RTX A6000",
    arch="sm_86",
    capability=(8, 6),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # published 768e9 B/s, of which a stream reaches about 0.92
        MemoryLevel("dram", 48 * 2**30, 0.71e12, Tile((32,), Granule(1))),
        MemoryLevel("l2", 6 * 2**20, 16 * SMS * CLOCK_HZ, Tile((32,), Granule(1))),
        MemoryLevel("shared", 100 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        # published, float32 sums: 84 SMs x 1024 operations a clock, twice as many in 8 bits
        *(isa.mma(t, tera_ops=154.8) for t in ("float16", "bfloat16")),
        isa.mma("int8", tera_ops=309.7),
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.STG,
    ),
    pipes=(("issue", 128), ("alu", 64), ("fma", 64), ("lsu", 32), ("xu", 16), ("tensor", 8)),
    features=isa.AMPERE,
    cost=CostConstants(launch_us=1.0, ramp_us=2.0, pdl_ramp_us=2.0, dram_latency_us=0.7),
    shared_bytes_per_block=99 * 1024,
    shared_bytes_per_sm=100 * 1024,
    warps_per_sm=48,
    blocks_per_sm=16,
)

if __name__ == "__main__":
    weight = ladder.types["int4"].grouped(128, scale="float16")
    for m in (1, 16, 256):
        op = ladder.matmul(m=m, n=5120, k=5120, activation="float16", weight=weight)
        print(ladder.schedule(op, device=DEVICE))
