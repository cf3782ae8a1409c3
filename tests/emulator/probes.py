"""Small kernels that each exercise one class of instructions; their results are compared with NumPy here and with a GPU elsewhere.

Copies beside the warp are in ``probes_copies.py``, what only Hopper has in ``probes_hopper.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def bits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random words, half of them with exponents near 1 when read as float16 pairs."""
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint64).astype(np.uint32)
    halves = rng.standard_normal((*shape, 2)).astype(np.float16).view(np.uint32)[..., 0]
    return np.where(rng.random(shape) < 0.5, words, halves)


# ---- registers -----------------------------------------------------------------------------------------------------

#: instructions of three words, as T.ptx spells them, with the operands that they take
REGISTER_OPS: tuple[tuple[str, str], ...] = (
    ("prmt.b32", "abc"),
    ("shf.l.wrap.b32", "abc"),
    ("shf.r.clamp.b32", "abc"),
    ("shl.b32", "ac"),
    ("shr.u32", "ac"),
    ("fma.rn.f16x2", "abc"),
    ("fma.rn.bf16x2", "abc"),
    ("add.rn.f16x2", "ab"),
    ("sub.rn.f16x2", "ab"),
    ("mul.rn.f16x2", "ab"),
    ("min.f16x2", "ab"),
    ("max.f16x2", "ab"),
    ("min.bf16x2", "ab"),
    ("max.bf16x2", "ab"),
    ("max.NaN.f16x2", "ab"),
    ("max.NaN.bf16x2", "ab"),
    ("and.b32", "ab"),
    ("or.b32", "ab"),
    ("xor.b32", "ab"),
    ("not.b32", "a"),
    ("popc.b32", "a"),
    ("add.u32", "ab"),
    ("mul.lo.u32", "ab"),
    ("mad.lo.u32", "abc"),
    ("min.u32", "ab"),
    ("max.u32", "ab"),
)
ROWS = 64


def registers() -> Any:
    """Every operation of ``REGISTER_OPS`` and three lop3 on rows of words."""
    from ladder.codegen import emit as e
    from ladder.codegen.tvm_api import IRBuilder, T

    count = len(REGISTER_OPS) + 3
    with IRBuilder() as builder, T.prim_func():
        T.func_name("kernel")
        source = T.match_buffer(T.arg("I", T.handle()), (3 * ROWS * 32,), "uint32")
        target = T.match_buffer(T.arg("O", T.handle()), (count * ROWS * 32,), "uint32")
        IRBuilder.name("I", source)
        IRBuilder.name("O", target)
        T.device_entry()
        block = T.cta_id([ROWS])
        lane = T.thread_id([32])
        v, r = e.registers("v", 3, "uint32"), e.registers("r", count, "uint32")
        for i in range(3):
            e.store(v, i, source[i * ROWS * 32 + block * 32 + lane])
        for i, (text, names) in enumerate(REGISTER_OPS):
            e.ptx(text, r[i], *[v["abc".index(name)] for name in names])
        for i, table in enumerate((0xEA, 0x96, 0x2B)):
            e.ptx("lop3.b32", r[count - 3 + i], v[0], v[1], v[2], table)
        for i in range(count):
            e.store(target, i * ROWS * 32 + block * 32 + lane, r[i])
    return builder.get()


def conversions() -> Any:
    """Every 16-bit word as two 8-bit floats; float32 words rounded to halves."""
    from tvm.script import tirx as T

    @T.prim_func
    def kernel(Fp: T.handle, Op: T.handle):
        F = T.match_buffer(Fp, (2, 2048, 32), "float32")
        O = T.match_buffer(Op, (6, 2048, 32), "uint32")
        T.device_entry()
        b = T.cta_id([2048])
        t = T.thread_id([32])
        r = T.alloc_local((6,), "uint32")
        f = T.alloc_local((4,), "float32")
        pair = T.meta_var(T.Cast("uint16", b * 32 + t))
        f[0] = F[0, b, t]
        f[1] = F[1, b, t]
        T.ptx["cvt.rn.f16x2.e4m3x2"](r[0], pair)
        T.ptx["cvt.rn.f16x2.e5m2x2"](r[1], pair)
        T.ptx["cvt.rn.f16x2.f32"](r[2], f[0], f[1])
        T.ptx["cvt.rn.bf16x2.f32"](r[3], f[0], f[1])
        T.ptx["fma.rn.f32"](f[2], f[0], f[1], f[0])
        r[4] = T.reinterpret("uint32", f[2])
        r[5] = T.reinterpret("uint32", f[0] * f[1])
        for i in T.unroll(6):
            O[i, b, t] = r[i]

    return kernel


# ---- lanes ---------------------------------------------------------------------------------------------------------


def exchanges() -> Any:
    """Shuffles, votes, reductions, ldmatrix plain and transposed, stmatrix, movmatrix."""
    from tvm.script import tirx as T

    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    turned = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    store = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"

    @T.prim_func
    def kernel(Ip: T.handle, Op: T.handle):
        I = T.match_buffer(Ip, (8, 32), "uint32")
        O = T.match_buffer(Op, (27, 32), "uint32")
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        s = T.alloc_buffer((256,), "uint32", scope="shared", align=128)
        u = T.alloc_buffer((128,), "uint32", scope="shared", align=128)
        r = T.alloc_local((27,), "uint32")
        everyone = T.meta_var(T.uint32(0xFFFFFFFF))
        for i in T.unroll(8):
            s[i * 32 + t] = I[i, t]
        T.cuda.warp_sync()
        T.ptx[load](r[0], r[1], r[2], r[3], s.ptr_to([t * 4]))
        T.ptx[turned](r[4], r[5], r[6], r[7], s.ptr_to([128 + t * 4]))
        T.ptx[store](u.ptr_to([t * 4]), r[0], r[5], r[2], r[7])
        T.cuda.warp_sync()
        for i in T.unroll(4):
            r[8 + i] = u[i * 32 + t]
        T.ptx["movmatrix.sync.aligned.m8n8.trans.b16"](r[12], r[1])
        T.ptx["shfl_sync.bfly.b32"](r[13], r[0], T.uint32(5), T.uint32(31), everyone)
        T.ptx["shfl_sync.up.b32"](r[14], r[0], T.uint32(3), T.uint32(0), everyone)
        T.ptx["shfl_sync.down.b32"](r[15], r[0], T.uint32(2), T.uint32(31), everyone)
        T.ptx["shfl_sync.idx.b32"](r[16], r[0], r[1], T.uint32(0x181F), everyone)
        T.ptx["shfl_sync.bfly.b32"](r[17], r[0], T.uint32(9), T.uint32(0x1807), everyone)
        T.ptx["vote_sync.ballot.b32"](r[18], T.ptx.pred(r[0] & T.uint32(1)), everyone)
        for i in T.unroll(5):
            r[19 + i] = T.uint32(0)
        T.ptx["vote_sync.any.pred"](r[19], T.ptx.pred(r[0] & T.uint32(64)), everyone)
        T.ptx["vote_sync.all.pred"](r[20], T.ptx.pred(r[0] & T.uint32(128)), everyone)
        T.ptx["redux_sync.max.u32"](r[24], r[0], everyone)
        T.ptx["redux_sync.min.u32"](r[25], r[0], everyone)
        T.ptx["redux_sync.add.u32"](r[26], r[0], everyone)
        T.ptx["elect_sync"](r[21], r[22], everyone)
        for i in T.unroll(27):
            O[i, t] = r[i]

    return kernel


# ---- tensor cores --------------------------------------------------------------------------------------------------

MMA = {
    "f16": ("m16n8k16.row.col.f32.f16.f16.f32", "float32"),
    "bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", "float32"),
    "e4m3": ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "float32"),
    "e5m2": ("m16n8k32.row.col.f32.e5m2.e5m2.f32", "float32"),
    "s8": ("m16n8k32.row.col.s32.s8.s8.s32", "uint32"),
    "u8": ("m16n8k32.row.col.s32.u8.u8.s32", "uint32"),
    "b1": ("m16n8k256.row.col.s32.b1.b1.s32.and.popc", "uint32"),
}


def product(kind: str) -> Callable[[], Any]:
    """One mma.sync on rows of operand registers."""

    def build() -> Any:
        from tvm.script import tirx as T

        text, dtype = MMA[kind]
        name = f"mma.sync.aligned.{text}"

        @T.prim_func
        def kernel(Ap: T.handle, Cp: T.handle, Op: T.handle):
            A = T.match_buffer(Ap, (ROWS, 6, 32), "uint32")
            C = T.match_buffer(Cp, (ROWS, 4, 32), dtype)
            O = T.match_buffer(Op, (ROWS, 4, 32), dtype)
            T.device_entry()
            b = T.cta_id([ROWS])
            t = T.thread_id([32])
            a = T.alloc_local((6,), "uint32")
            c = T.alloc_local((4,), dtype)
            for i in T.unroll(6):
                a[i] = A[b, i, t]
            for i in T.unroll(4):
                c[i] = C[b, i, t]
            T.ptx[name](
                *[c[i] for i in range(4)], *[a[i] for i in range(6)], *[c[i] for i in range(4)]
            )
            for i in T.unroll(4):
                O[b, i, t] = c[i]

        return kernel

    return build


def operands(kind: str) -> Callable[[np.random.Generator], Arrays]:
    """Operands whose sums are exact in float32: small integers, subnormals scaled alike, powers of two."""

    def make(rng: np.random.Generator) -> Arrays:
        import ml_dtypes

        dtype = {
            "f16": np.float16,
            "bf16": ml_dtypes.bfloat16,
            "e4m3": ml_dtypes.float8_e4m3fn,
            "e5m2": ml_dtypes.float8_e5m2,
        }.get(kind)
        number = {"float32": np.float32, "int32": np.int32, "uint32": np.uint32}[MMA[kind][1]]
        if dtype is None:
            a = rng.integers(0, 1 << 32, (ROWS, 6, 32), dtype=np.uint64).astype(np.uint32)
            c = rng.integers(0, 1000, (ROWS, 4, 32)).astype(number)
            return {"A": a, "C": c, "O": np.zeros_like(c)}
        per = 4 // np.dtype(dtype).itemsize
        values = rng.integers(-3, 4, (ROWS, 6, 32, per)).astype(np.float64)
        low = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        values[::4, :4] *= low  # A subnormal in every fourth row, B plain
        a = np.ascontiguousarray(values.astype(dtype)).view(np.uint32)[..., 0]
        c = np.zeros((ROWS, 4, 32), number)
        c[1::4] = rng.integers(-50, 50, c[1::4].shape)
        return {"A": a, "C": c, "O": np.zeros_like(c)}

    return make
