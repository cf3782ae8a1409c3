"""A W4A16 matmul for Hopper as tirx: TMA ring with full and empty mbarriers, A of wgmma decoded in registers. ``fault`` plants a bug."""

# ruff: noqa: C901, F821, PLR0912, PLR0915, SIM102  a kernel in TVMScript is one function of many branches

from __future__ import annotations

from typing import Any

import numpy as np

BN, BM, BK, STAGES = 64, 32, 64, 3
THREADS = 256
TMA = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
MMA = f"wgmma.mma_async.sync.aligned.m64n{BM}k16.f32.f16.f16"
SUBTRACT = """static __device__ __forceinline__ unsigned int test_sub(unsigned int a, unsigned int b) {
  unsigned int d;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
"""
KEEP = """static __device__ __forceinline__ void test_keep(float& r) { asm volatile("" : "+f"(r) :: "memory"); }
"""


def build(m: int, n: int, k: int, fault: str = "") -> Any:
    """The PrimFunc of ``C[m, n] = X[m, k] @ (W[n, k] - 8).T`` for W packed by :func:`pack`."""
    from tvm.script import tirx as T

    steps, accumulators = k // BK, BM // 2
    nbytes = BM * BK * 2 * (2 if fault == "too many bytes expected" else 1)
    arrivals = {"too few arrivals": 127, "too many arrivals": 129}.get(fault, 128)
    parity = 0 if fault == "wrong parity" else 1
    stride = 32 if fault == "wrong stride" else 64
    layout = 2 if fault == "wrong layout" else 3

    @T.prim_func
    def kernel(Xp: T.handle, Wp: T.handle, Cp: T.handle):
        X = T.match_buffer(Xp, (m, k), "float16", align=16)
        W = T.match_buffer(Wp, (n // 64, k // 16, 128), "uint32", align=16)
        C = T.match_buffer(Cp, (m, n), "float32", align=16)
        X_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed(
            "runtime.cuTensorMapEncodeTiled",
            X_map,
            "float16",
            2,
            X.data,
            k,
            m,
            k * 2,
            BK,
            BM,
            1,
            1,
            0,
            3,
            2,
            0,
        )
        T.device_entry()
        bn, bm = T.cta_id([n // BN, m // BM])
        wg = T.warpgroup_id([2])
        tx = T.thread_id_in_wg([128])
        smem = T.alloc_buffer((STAGES * BM * BK,), "float16", scope="shared.dyn", align=1024)
        Xs = T.decl_buffer((STAGES, BM, BK), "float16", data=smem.data, scope="shared.dyn")
        full = T.alloc_shared((STAGES,), "uint64")
        empty = T.alloc_shared((STAGES,), "uint64")
        if (wg == 0) & (tx == 0):
            for s in T.unroll(STAGES):
                T.ptx.mbarrier.init.shared.b64(full.ptr_to([s]), T.uint32(1))
                T.ptx.mbarrier.init.shared.b64(empty.ptr_to([s]), T.uint32(arrivals))
            if fault != "no proxy fence":
                T.ptx.fence.proxy.async_.shared__cta()
        if fault != "no barrier after initialisation":
            T.cuda.cta_sync()
        if wg == 0:
            if tx == 0:
                for step in T.serial(steps):
                    with T.attr({"ladder.stage": "load"}):
                        if fault != "no empty wait":
                            if step >= STAGES:
                                T.cuda.mbarrier_wait(
                                    empty.ptr_to([step % STAGES]), (step // STAGES + parity) % 2
                                )
                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                            full.ptr_to([step % STAGES]), T.uint32(nbytes)
                        )
                        T.ptx[TMA](
                            Xs.ptr_to([step % STAGES, 0, 0]),
                            T.address_of(X_map),
                            step * BK,
                            bm * BM,
                            full.ptr_to([step % STAGES]),
                        )
        else:
            acc = T.alloc_local((accumulators,), "float32")
            a = T.alloc_local((BK // 16 * 4,), "uint32")
            q = T.alloc_local((1,), "uint32")
            desc: T.uint64
            for i in T.unroll(accumulators):
                acc[i] = T.float32(0)
            for step in T.serial(steps):
                with T.attr({"ladder.stage": "decode"}):
                    for ki in T.unroll(BK // 16):
                        q[0] = W[bn, step * (BK // 16) + ki, tx]
                        for i in T.unroll(4):
                            T.ptx["lop3.b32"](
                                a[ki * 4 + i],
                                q[0] >> T.uint32(4 * i),
                                T.uint32(0x000F000F),
                                T.uint32(0x64006400),
                                0xEA,
                            )
                            a[ki * 4 + i] = T.cuda.func_call(
                                "test_sub",
                                a[ki * 4 + i],
                                T.uint32(0x64086408),
                                source_code=SUBTRACT,
                                return_type="uint32",
                            )
                with T.attr({"ladder.stage": "multiply"}):
                    if fault != "no full wait":
                        T.cuda.mbarrier_wait(full.ptr_to([step % STAGES]), (step // STAGES) % 2)
                    for i in T.unroll(accumulators):
                        T.cuda.func_call("test_keep", acc[i], source_code=KEEP)
                    if fault != "no wgmma fence":
                        T.ptx.wgmma.fence.sync.aligned()
                    for ki in T.unroll(BK // 16):
                        T.cuda.wgmma.encode_matrix_descriptor(
                            T.address_of(desc),
                            Xs.ptr_to([step % STAGES, 0, ki * 16]),
                            1,
                            stride,
                            layout,
                        )
                        T.ptx[MMA](
                            *[acc[i] for i in range(accumulators)],
                            *[a[ki * 4 + i] for i in range(4)],
                            desc,
                            True,
                            1,
                            1,
                            0,
                        )
                    T.ptx.wgmma.commit_group.sync.aligned()
                    if fault != "no wgmma wait":
                        T.ptx.wgmma.wait_group.sync.aligned(0)
                    T.ptx["mbarrier.arrive.shared.b64"](empty.ptr_to([step % STAGES]))
            if fault == "no wgmma wait":
                T.ptx.wgmma.wait_group.sync.aligned(0)
            for i in T.unroll(accumulators // 4):
                for j in T.unroll(4):
                    C[
                        bm * BM + i * 8 + tx % 4 * 2 + j % 2,
                        bn * BN + tx % 32 // 4 + tx // 32 * 16 + j // 2 * 8,
                    ] = acc[i * 4 + j]

    return kernel


def pack(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Codes [n, k] as words [n/64, k/16, 128]: nibble i of half j is row g + 8*(i&1), k = 2t + j + 8*(i>>1) of a warp's 16 rows."""
    n, k = codes.shape
    parts = codes.reshape(n // 64, 4, 2, 8, k // 16, 2, 4, 2)
    out = np.zeros((n // 64, k // 16, 4, 8, 4), np.uint32)
    for i in range(4):
        for j in range(2):
            part = parts[:, :, i & 1, :, :, i >> 1, :, j].transpose(0, 3, 1, 2, 4)
            out |= part.astype(np.uint32) << np.uint32(4 * i + 16 * j)
    return out.reshape(n // 64, k // 16, 128)
