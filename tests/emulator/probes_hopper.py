"""Probes of what only Hopper has: wgmma with operands in registers and in shared memory, clusters, multicast."""

# ruff: noqa: C901, F821, PLR0915  a kernel in TVMScript is one function of many statements

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ladder.emulator import TensorMap

COLUMNS = 24
#: kind -> (instruction tail, bytes of k, dtype of the accumulators)
WGMMA = {
    "f16": ("k16.f32.f16.f16", "float32"),
    "bf16": ("k16.f32.bf16.bf16", "float32"),
    "e4m3": ("k32.f32.e4m3.e4m3", "float32"),
    "s8": ("k32.s32.s8.s8", "uint32"),
    "b1": ("k256.s32.b1.b1.and.popc", "uint32"),
}
#: swizzle of the operands -> (mode of the descriptor, words of a row)
ROWS = {"32B": (1, 8), "64B": (2, 16), "128B": (3, 32)}


def products(kind: str, swizzle: str, *, registers: bool) -> Callable[[], Any]:
    """D = A*B + D over one swizzled row of k, A and B written to shared memory by ordinary stores."""

    def build() -> Any:
        from tvm.script import tirx as T

        tail, dtype = WGMMA[kind]
        name = f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}{tail}"
        mode, words = ROWS[swizzle]
        steps, accumulators = words // 8, COLUMNS // 2
        scales = () if dtype == "uint32" else (1, 1)
        turned = (0,) if kind in ("f16", "bf16") else ()
        if not registers and turned:
            turned = (0, 0)
        place = lambda row, word: row * words + _chunk(row, word, words)  # noqa: E731

        @T.prim_func
        def kernel(Ap: T.handle, Bp: T.handle, Fp: T.handle, Op: T.handle):
            A = T.match_buffer(Ap, (64, words), "uint32", align=16)
            B = T.match_buffer(Bp, (COLUMNS, words), "uint32", align=16)
            F = T.match_buffer(Fp, (steps, 4, 128), "uint32", align=16)
            O = T.match_buffer(Op, (128, accumulators), dtype, align=16)
            T.device_entry()
            T.cta_id([1])
            t = T.thread_id([128])
            sa = T.alloc_buffer((64 * words,), "uint32", scope="shared", align=1024)
            sb = T.alloc_buffer((COLUMNS * words,), "uint32", scope="shared", align=1024)
            acc = T.alloc_local((accumulators,), dtype)
            f = T.alloc_local((4 * steps,), "uint32")
            da: T.uint64
            db: T.uint64
            for i in T.serial(64 * words // 128):
                row = T.meta_var((i * 128 + t) // words)
                sa[place(row, (i * 128 + t) % words)] = A[row, (i * 128 + t) % words]
            for i in T.serial((COLUMNS * words + 127) // 128):
                row = T.meta_var((i * 128 + t) // words)
                if i * 128 + t < COLUMNS * words:
                    sb[place(row, (i * 128 + t) % words)] = B[row, (i * 128 + t) % words]
            for i in T.unroll(4 * steps):
                f[i] = F[i // 4, i % 4, t]
            for i in T.unroll(accumulators):
                acc[i] = T.Cast(dtype, i + t % 3)
            T.ptx["fence.proxy.async.shared::cta"]()
            T.cuda.cta_sync()
            T.ptx.wgmma.fence.sync.aligned()
            for ki in T.unroll(steps):
                T.cuda.wgmma.encode_matrix_descriptor(
                    T.address_of(db), sb.ptr_to([ki * 8]), 1, words * 2, mode
                )
                T.cuda.wgmma.encode_matrix_descriptor(
                    T.address_of(da), sa.ptr_to([ki * 8]), 1, words * 2, mode
                )
                if registers:
                    T.ptx[name](
                        *[acc[i] for i in range(accumulators)],
                        *[f[4 * ki + i] for i in range(4)],
                        db,
                        True,
                        *scales,
                        *turned,
                    )
                else:
                    T.ptx[name](
                        *[acc[i] for i in range(accumulators)], da, db, True, *scales, *turned
                    )
            T.ptx.wgmma.commit_group.sync.aligned()
            T.ptx.wgmma.wait_group.sync.aligned(0)
            for i in T.unroll(accumulators):
                O[t, i] = acc[i]

        return kernel

    return build


def _chunk(row: Any, word: Any, words: int) -> Any:
    """Word of a row after the swizzle: 16-byte chunks XORed with address bits 7 and up."""
    if words == 32:
        return ((word // 4) ^ (row % 8)) * 4 + word % 4
    per_line = 32 // words
    return ((word // 4) ^ (row // per_line % (words // 4))) * 4 + word % 4


def numbers(kind: str, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[..., words] -> [..., elements] of a kind."""
    import ml_dtypes

    dtype = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "s8": np.int8,
    }.get(kind)
    if dtype is None:
        return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float64)
    return words.view(dtype).astype(np.float64)


def operands(kind: str, swizzle: str, rng: np.random.Generator) -> dict[str, Any]:
    """A, B of small integers (or random bits), A once more as fragments, and room for D."""
    import ml_dtypes

    words = ROWS[swizzle][1]
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}.get(
        kind
    )
    if dtype is None:
        a = rng.integers(0, 1 << 32, (64, words), dtype=np.uint64).astype(np.uint32)
        b = rng.integers(0, 1 << 32, (COLUMNS, words), dtype=np.uint64).astype(np.uint32)
    else:
        per = 4 // np.dtype(dtype).itemsize
        a = rng.integers(-4, 5, (64, words * per)).astype(dtype).view(np.uint32)
        b = rng.integers(-4, 5, (COLUMNS, words * per)).astype(dtype).view(np.uint32)
    accumulator = WGMMA[kind][1]
    return {"A": a, "B": b, "F": fragments(a), "O": np.zeros((128, COLUMNS // 2), accumulator)}


def fragments(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows [64, words] as registers [steps, 4, 128]: register i of lane (g, t) is row g + 8*(i&1), word t + 4*(i>>1) of eight."""
    steps = a.shape[1] // 8
    out = np.zeros((steps, 4, 128), np.uint32)
    for thread in range(128):
        warp, g, t = thread // 32, thread % 32 // 4, thread % 4
        for i in range(4):
            row = 16 * warp + g + 8 * (i & 1)
            out[:, i, thread] = a[row, t + 4 * (i >> 1) :: 8]
    return out


# ---- clusters ------------------------------------------------------------------------------------------------------


def neighbours() -> Any:
    """Remote stores and loads, a remote arrive, a bulk copy to the peer, st.async and red.async."""
    from tvm.script import tirx as T

    @T.prim_func
    def kernel(Op: T.handle):
        O = T.match_buffer(Op, (4, 64, 4), "uint32", align=16)
        T.device_entry()
        bx = T.cta_id([4])
        rank = T.cta_id_in_cluster([2])
        tid = T.thread_id([64])
        S = T.alloc_buffer((3, 64, 4), "uint32", scope="shared", align=128)
        bar = T.alloc_shared((3,), "uint64")
        rem: T.uint32
        rbar: T.uint32
        v = T.alloc_local((4,), "uint32")
        if tid == 0:
            T.ptx.mbarrier.init.shared.b64(bar.ptr_to([0]), T.uint32(64))
            T.ptx.mbarrier.init.shared.b64(bar.ptr_to([1]), T.uint32(1))
            T.ptx.mbarrier.init.shared.b64(bar.ptr_to([2]), T.uint32(1))
            T.ptx.fence.mbarrier_init.release.cluster()
        for i in T.unroll(4):
            S[2, tid, i] = T.uint32(0)
        T.cuda.cluster_sync()
        peer = T.meta_var(T.Cast("uint32", rank ^ 1))
        T.ptx["mapa.shared::cluster.u32"](
            rem, T.cuda.cvta_generic_to_shared(S.ptr_to([0, tid, 0])), peer
        )
        T.ptx["mapa.shared::cluster.u32"](
            rbar, T.cuda.cvta_generic_to_shared(bar.ptr_to([0])), peer
        )
        T.ptx["st.shared::cluster.v4.b32"](
            rem, T.uint32(1), T.Cast("uint32", tid), T.Cast("uint32", bx), T.Cast("uint32", rank)
        )
        T.ptx["mbarrier.arrive.release.cluster.shared::cluster.b64"](rbar)
        T.cuda.mbarrier_wait_acquire_cluster(bar.ptr_to([0]), 0)
        for i in T.unroll(4):
            v[i] = S[0, tid, i]
        O[bx, tid, 0] = v[1] + v[2] * T.uint32(1000) + v[3] * T.uint32(100000)
        T.ptx["fence.proxy.async.shared::cta"]()
        T.cuda.cta_sync()
        if tid == 0:
            T.ptx["mbarrier.arrive.expect_tx.shared.b64"](bar.ptr_to([1]), T.uint32(1024))
            T.ptx["mapa.shared::cluster.u32"](
                rem, T.cuda.cvta_generic_to_shared(S.ptr_to([1, 0, 0])), peer
            )
            T.ptx["mapa.shared::cluster.u32"](
                rbar, T.cuda.cvta_generic_to_shared(bar.ptr_to([1])), peer
            )
            T.ptx["cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"](
                rem, S.ptr_to([0, 0, 0]), T.uint32(1024), rbar
            )
        T.cuda.mbarrier_wait_acquire_cluster(bar.ptr_to([1]), 0)
        O[bx, tid, 1] = (
            S[1, tid, 1] + S[1, tid, 2] * T.uint32(1000) + S[1, tid, 3] * T.uint32(100000)
        )
        if tid == 0:
            T.ptx["mbarrier.arrive.expect_tx.shared.b64"](bar.ptr_to([2]), T.uint32(64 * 8))
        T.ptx["mapa.shared::cluster.u32"](
            rem, T.cuda.cvta_generic_to_shared(S.ptr_to([2, tid, 0])), peer
        )
        T.ptx["mapa.shared::cluster.u32"](
            rbar, T.cuda.cvta_generic_to_shared(bar.ptr_to([2])), peer
        )
        T.ptx["st_async.shared::cluster.mbarrier::complete_tx::bytes.b32"](
            rem, T.Cast("uint32", tid) * T.uint32(3), rbar
        )
        T.ptx["mapa.shared::cluster.u32"](
            rem, T.cuda.cvta_generic_to_shared(S.ptr_to([2, tid % 4, 1])), peer
        )
        T.ptx["red_async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"](
            rem, T.uint32(1), rbar
        )
        T.cuda.mbarrier_wait_acquire_cluster(bar.ptr_to([2]), 0)
        O[bx, tid, 2] = S[2, tid, 0]
        O[bx, tid, 3] = S[2, tid, 1]
        T.cuda.cluster_sync()

    return kernel


def multicast() -> Any:
    """Each CTA of a pair loads half a box by TMA and sends it to both."""
    from tvm.script import tirx as T

    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"

    @T.prim_func
    def kernel(Xp: T.handle, Op: T.handle):
        X = T.match_buffer(Xp, (64, 64), "float16", align=16)
        O = T.match_buffer(Op, (2, 4096), "float16", align=16)
        X_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed(
            "runtime.cuTensorMapEncodeTiled",
            X_map,
            "float16",
            2,
            X.data,
            64,
            64,
            128,
            64,
            32,
            1,
            1,
            0,
            3,
            2,
            0,
        )
        T.device_entry()
        bx = T.cta_id([2])
        rank = T.cta_id_in_cluster([2])
        tid = T.thread_id([128])
        S = T.alloc_buffer((4096,), "float16", scope="shared.dyn", align=1024)
        full = T.alloc_shared((1,), "uint64")
        if tid == 0:
            T.ptx.mbarrier.init.shared.b64(full.ptr_to([0]), T.uint32(1))
            T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cluster_sync()
        if tid == 0:
            T.ptx["mbarrier.arrive.expect_tx.shared.b64"](full.ptr_to([0]), T.uint32(8192))
            T.ptx[load](
                S.ptr_to([rank * 2048]),
                T.address_of(X_map),
                0,
                rank * 32,
                full.ptr_to([0]),
                T.uint16(3),
            )
        T.cuda.mbarrier_wait(full.ptr_to([0]), 0)
        for i in T.serial(32):
            O[bx, i * 128 + tid] = S[i * 128 + tid]
        T.cuda.cluster_sync()

    return kernel


def multicast_arguments(rng: np.random.Generator) -> dict[str, Any]:
    """A tensor of 64 rows, read by boxes of 32."""
    x = rng.standard_normal((64, 64)).astype(np.float16)
    return {
        "X_map": TensorMap(x, (64, 64), (128,), (64, 32), "128B"),
        "O": np.zeros((2, 4096), np.float16),
    }


def reductions() -> Any:
    """Vector reductions into global memory, an atomic with its old value, shared atomics."""
    from tvm.script import tirx as T

    @T.prim_func
    def kernel(Cp: T.handle, Hp: T.handle, Np: T.handle):
        C = T.match_buffer(Cp, (32, 4), "float32", align=16)
        H = T.match_buffer(Hp, (32, 8), "float16", align=16)
        N = T.match_buffer(Np, (4,), "uint32", align=16)
        T.device_entry()
        T.cta_id([8])
        tid = T.thread_id([32])
        v = T.alloc_local((4,), "float32")
        h = T.alloc_local((4,), "uint32")
        old: T.uint32
        for i in T.unroll(4):
            v[i] = T.Cast("float32", tid + i)
            h[i] = T.uint32(0x3C003800)
        T.ptx["red.relaxed.gpu.global.add.v4.f32"](C.ptr_to([tid, 0]), v[0], v[1], v[2], v[3])
        T.ptx["red.global.add.noftz.v4.f16x2"](H.ptr_to([tid, 0]), h[0], h[1], h[2], h[3])
        T.ptx["atom.acq_rel.gpu.global.add.u32"](old, N.ptr_to([0]), T.uint32(1))
        T.ptx["red.relaxed.gpu.global.max.u32"](N.ptr_to([1]), old)
        T.ptx["red.relaxed.gpu.global.xor.b32"](N.ptr_to([2]), old)

    return kernel
