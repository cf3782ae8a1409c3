"""NVIDIA H200 SXM (sm_90a). Rates marked measured are medians from one H200, CUDA 13.0, clocks as found."""

from __future__ import annotations

from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

SMS = 132
#: derived: 15.2 T lop3 lane instructions/s measured = 132 SMs x 64 lanes x 1.8 GHz (boost is 1.98 GHz)
CLOCK_HZ = 1.8e9

#: 10**12 operations/s of wgmma by its tokens, operands of 16 bits and of 8
WIDE = {8: 238, 16: 468, 32: 800, 64: 872, 128: 903, 256: 924}
NARROW = {8: 476, 16: 936, 32: 1600, 64: 1744}

DEVICE = Device(
    name="h200",
    title="NVIDIA H200 SXM 141 GB",
    arch="sm_90a",
    capability=(9, 0),
    sms=SMS,
    clock_hz=CLOCK_HZ,
    levels=(
        # measured: read-only stream; a copy reaches 3.98e12 B/s read plus written
        MemoryLevel("dram", 141 * 10**9, 4.65e12, Tile((32,), Granule(1)), measured=True),
        # published size; rate derived: 5120 B per clock (NVIDIA A100 and H100 white papers)
        MemoryLevel("l2", 60 * 2**20, 5120 * CLOCK_HZ, Tile((32,), Granule(1))),
        # published: 32 banks x 4 B per clock and SM
        MemoryLevel("shared", 228 * 1024, 128 * SMS * CLOCK_HZ, Tile((32,), Granule(4))),
        # derived: two 4-byte reads and one write of 128 lanes per clock and SM
        MemoryLevel("register", 256 * 1024, 3 * 512 * SMS * CLOCK_HZ, Tile((16, 2), Granule(16))),
    ),
    instruction_set=(
        # measured
        *(isa.mma(t, tera_ops=575, measured=True) for t in ("float16", "bfloat16")),
        isa.mma("int8", tera_ops=1159, measured=True),
        # n = 32 is derived (between its neighbours, bound by issue as they are); bfloat16 and e5m2 take over the rate of
        # their width, and a wgmma of 8 bits below n = 128 does twice the work of one of 16 bits
        *isa.wgmmas("float16", WIDE, measured=(8, 16, 64, 128, 256)),
        *isa.wgmmas("bfloat16", WIDE),
        *isa.wgmmas("fp8_e4m3fn", NARROW | {128: 1803, 256: 1843}, measured=(128, 256)),
        *isa.wgmmas("fp8_e5m2", NARROW | {128: 1803, 256: 1843}),
        *isa.wgmmas("int8", NARROW | {128: 1828, 256: 1879}, measured=(128, 256)),
        isa.wgmma("float16", 256, tera_ops=926, measured=True, weight_level="shared"),
        isa.wgmma("bfloat16", 256, tera_ops=926, weight_level="shared"),
        isa.ldmatrix(4),
        isa.ldmatrix(2),
        isa.LDG,
        isa.CP_ASYNC,
        isa.CP_ASYNC_BULK,
        isa.TMA_2D,
        isa.STG,
    ),
    pipes=(
        ("issue", 128),  # published: four schedulers, one warp instruction per clock each
        ("alu", 64),  # measured: lop3, prmt, shf, dp4a at 15.2 T lane instructions/s
        ("fma", 116),  # measured: fma.f16x2 at 27.7 T lane instructions/s
        ("lsu", 32),  # published: one shared access of 32 lanes per clock
        ("xu", 17),  # measured: popc at 4.1 T lane instructions/s
        ("tensor", 18.9),  # measured: mma.m16n8k16, 575e12 / 4096 operations, 32 lanes
    ),
    features=isa.HOPPER,
    cost=CostConstants(
        launch_us=0.6,  # measured: empty kernel of 132 .. 264 blocks in a graph, 0.56 .. 0.65 us
        ramp_us=1.8,  # measured: 8 MB read in 3.6 us by a plain launch, 1.8 us at the dram rate
        pdl_ramp_us=0.1,  # measured: the same read in 1.83 us
        dram_latency_us=0.8,
        measured=True,
    ),
    shared_bytes_per_block=227 * 1024,
    shared_bytes_per_sm=228 * 1024,
    warps_per_sm=64,
    blocks_per_sm=32,
)
