"""A W4A16 matmul as tirx: cp.async ring, swizzled shared memory, ldmatrix, decode by lop3 and a half2 subtraction, mma.

Written apart from the compiler's own families, so that the emulator is not only tested on code of one hand. ``fault`` plants a bug.
"""

# ruff: noqa: C901, PLR0912, PLR0915  a kernel in TVMScript is one function of many branches

from __future__ import annotations

from typing import Any

import numpy as np

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
SUBTRACT = """static __device__ __forceinline__ unsigned int test_sub(unsigned int a, unsigned int b) {
  unsigned int d;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
"""
BM, BN, BK, STAGES, WN = 32, 64, 32, 3, 2
#: threads of a CTA with one warp along the rows
THREADS = WN * 32


def swizzle(row: Any, column: Any) -> Any:
    """Place of a half in a [rows, BK] tile: 16-byte chunks XORed with the row pair."""
    return row * BK + ((column // 8) ^ ((row // 2) % 4)) * 8 + column % 8


def build(m: int, n: int, k: int, fault: str = "", *, rows: int = BM, warps_m: int = 1) -> Any:
    """The PrimFunc of ``C[m, n] = A[m, k] @ (W[n, k] - 8).T`` for W of 4-bit codes packed by :func:`pack`."""
    from tvm.script import tirx as T

    threads = warps_m * THREADS
    tiles, steps, vectors = rows // warps_m // 16, k // BK, rows * BK // 8 // threads
    columns = BN // WN // 16
    reading = (lambda r, c: r * BK + c) if fault == "plain read" else swizzle
    table = 0xCA if fault == "truth table" else 0xEA
    pending = STAGES - 1 if fault == "wait too little" else STAGES - 2

    @T.prim_func
    def kernel(Ap: T.handle, Wp: T.handle, Cp: T.handle):
        A = T.match_buffer(Ap, (m, k), "float16", align=16)
        W = T.match_buffer(Wp, (n // 16, k // 16, 32), "uint32", align=16)
        C = T.match_buffer(Cp, (m, n), "float32", align=16)
        T.device_entry()
        bm, bn = T.cta_id([m // rows, n // BN])
        tid = T.thread_id([threads])
        smem = T.alloc_buffer((STAGES * rows * BK,), "float16", scope="shared.dyn", align=128)
        acc = T.alloc_local((tiles * columns * 8,), "float32")
        a = T.alloc_local((tiles * 4,), "uint32")
        b = T.alloc_local((columns * 4,), "uint32")
        q = T.alloc_local((1,), "uint32")
        lane = T.meta_var(tid % 32)
        wm = T.meta_var(tid // 32 // WN)
        wn = T.meta_var(tid // 32 % WN)
        for i in T.unroll(tiles * columns * 8):
            acc[i] = T.float32(0)

        @T.inline
        def load(step):
            for v in T.unroll(vectors):
                r = T.meta_var((v * threads + tid) // (BK // 8))
                c = T.meta_var((v * threads + tid) % (BK // 8) * 8)
                T.ptx["cp.async.cg.shared.global.L2::128B"](
                    smem.ptr_to([(step % STAGES) * (rows * BK) + swizzle(r, c)]),
                    A.ptr_to([bm * rows + r, step * BK + c]),
                    16,
                )
            T.ptx["cp.async.commit_group"]()

        for s in T.unroll(STAGES - 1):
            load(s)
        for step in T.serial(steps):
            with T.attr({"ladder.stage": "ring"}):
                T.ptx["cp.async.wait_group"](pending)
                if fault != "late barrier":
                    T.cuda.cta_sync()
                if step + STAGES - 1 < steps:
                    load(step + STAGES - 1)
                else:
                    T.ptx["cp.async.commit_group"]()
                if fault == "late barrier":
                    T.cuda.cta_sync()
            with T.attr({"ladder.stage": "multiply"}):
                for ki in T.unroll(BK // 16):
                    for t in T.unroll(tiles):
                        r = T.meta_var((wm * tiles + t) * 16 + lane % 16)
                        c = T.meta_var(ki * 16 + lane // 16 * 8)
                        T.ptx[LDMATRIX](
                            *[a[t * 4 + i] for i in range(4)],
                            smem.ptr_to([(step % STAGES) * (rows * BK) + reading(r, c)]),
                        )
                    for t in T.unroll(columns):
                        q[0] = W[bn * (BN // 16) + wn * columns + t, step * (BK // 16) + ki, lane]
                        for i in T.unroll(4):
                            T.ptx["lop3.b32"](
                                b[t * 4 + i],
                                q[0] >> T.uint32(4 * i),
                                T.uint32(0x000F000F),
                                T.uint32(0x64006400),
                                table,
                            )
                            b[t * 4 + i] = T.cuda.func_call(
                                "test_sub",
                                b[t * 4 + i],
                                T.uint32(0x64086408),
                                source_code=SUBTRACT,
                                return_type="uint32",
                            )
                    for t in T.unroll(tiles):
                        for u in T.unroll(columns):
                            for h in T.unroll(2):
                                d = T.meta_var(
                                    [acc[((t * columns + u) * 2 + h) * 4 + i] for i in range(4)]
                                )
                                T.ptx[MMA](
                                    *d,
                                    *[a[t * 4 + i] for i in range(4)],
                                    b[u * 4 + h * 2],
                                    b[u * 4 + h * 2 + 1],
                                    *d,
                                )
        for t in T.unroll(tiles):
            for u in T.unroll(columns):
                for h in T.unroll(2):
                    for i in T.unroll(2):
                        for j in T.vectorized(2):
                            C[
                                bm * rows + (wm * tiles + t) * 16 + lane // 4 + i * 8,
                                bn * BN + (wn * columns + u) * 16 + h * 8 + lane % 4 * 2 + j,
                            ] = acc[((t * columns + u) * 2 + h) * 4 + i * 2 + j]

    return kernel


def pack(codes: np.ndarray[Any, Any], *, swapped: bool = False) -> np.ndarray[Any, Any]:
    """Codes [n, k] as words [n/16, k/16, 32]: nibble ``h*2 + r`` of half j is row g of n8 tile h, k = 2t + j + 8r."""
    n, k = codes.shape
    parts = codes.reshape(n // 16, 2, 8, k // 16, 2, 4, 2)
    out = np.zeros((n // 16, k // 16, 8, 4), np.uint32)
    for h in range(2):
        for r in range(2):
            for j in range(2):
                nibble = h + r * 2 if swapped else h * 2 + r
                part = parts[:, h, :, :, r, :, j].transpose(0, 2, 1, 3).astype(np.uint32)
                out |= part << np.uint32(4 * nibble + 16 * j)
    return out.reshape(n // 16, k // 16, 32)
