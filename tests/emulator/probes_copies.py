"""Probes of copies beside the warp: cp.async, bulk copies, and boxes of tensors through TMA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ladder.emulator import TensorMap

Arrays = dict[str, Any]


def partial_copies() -> Any:
    """cp.async of 4, 8 and 16 bytes with shortened sources."""
    from tvm.script import tirx as T

    @T.prim_func
    def kernel(Ip: T.handle, Op: T.handle):
        I = T.match_buffer(Ip, (512,), "uint32", align=16)
        O = T.match_buffer(Op, (3, 128), "uint32")
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        s = T.alloc_buffer((384,), "uint32", scope="shared", align=128)
        kept = T.meta_var(T.Cast("uint32", t % 17))
        for i in T.unroll(12):
            s[i * 32 + t] = T.uint32(7)
        T.cuda.warp_sync()
        T.ptx["cp.async.cg.shared.global"](s.ptr_to([t * 4]), I.ptr_to([t * 4]), 16, kept)
        T.ptx["cp.async.ca.shared.global"](
            s.ptr_to([128 + t * 2]), I.ptr_to([128 + t * 2]), 8, kept % T.uint32(9)
        )
        T.ptx["cp.async.ca.shared.global"](
            s.ptr_to([256 + t]), I.ptr_to([256 + t]), 4, kept % T.uint32(5)
        )
        T.ptx["cp.async.commit_group"]()
        T.ptx["cp.async.wait_group"](0)
        T.cuda.warp_sync()
        for i in T.unroll(4):
            O[0, i * 32 + t] = s[i * 32 + t]
            O[1, i * 32 + t] = s[128 + i * 32 + t]
            O[2, i * 32 + t] = s[256 + i * 32 + t]

    return kernel


def bulk_copies() -> Any:
    """A bulk copy in, a change, a bulk copy out and a bulk reduction."""
    from tvm.script import tirx as T

    @T.prim_func
    def kernel(Ip: T.handle, Op: T.handle, Rp: T.handle):
        I = T.match_buffer(Ip, (4, 256), "uint32", align=16)
        O = T.match_buffer(Op, (4, 256), "uint32", align=16)
        R = T.match_buffer(Rp, (256,), "uint32", align=16)
        T.device_entry()
        b = T.cta_id([4])
        t = T.thread_id([64])
        s = T.alloc_buffer((256,), "uint32", scope="shared", align=128)
        full = T.alloc_shared((1,), "uint64")
        if t == 0:
            T.ptx["mbarrier.init.shared.b64"](full.ptr_to([0]), T.uint32(1))
            T.ptx["fence.proxy.async.shared::cta"]()
        T.cuda.cta_sync()
        if t == 0:
            T.ptx["mbarrier.arrive.expect_tx.shared.b64"](full.ptr_to([0]), T.uint32(1024))
            T.ptx["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"](
                s.ptr_to([0]), I.ptr_to([b, 0]), T.uint32(1024), full.ptr_to([0])
            )
        T.cuda.mbarrier_wait(full.ptr_to([0]), 0)
        s[t * 4] = s[t * 4] + T.uint32(1)
        T.ptx["fence.proxy.async.shared::cta"]()
        T.cuda.cta_sync()
        if t == 0:
            T.ptx["cp.async.bulk.global.shared::cta.bulk_group"](
                O.ptr_to([b, 0]), s.ptr_to([0]), T.uint32(1024)
            )
            T.ptx["cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"](
                R.ptr_to([0]), s.ptr_to([0]), T.uint32(1024)
            )
            T.ptx["cp.async.bulk.commit_group"]()
            T.ptx["cp.async.bulk.wait_group"](0)

    return kernel


SPANS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def tensor_copies(swizzle: str, rank: int) -> Callable[[], Any]:
    """A box through TMA into shared memory, whose bytes are written out as they lie; then back through TMA."""

    def build() -> Any:
        from tvm.script import tirx as T

        inner, outer = box_of(swizzle)
        elements = inner * outer
        load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        store = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
        place = (24, 5, 1)[:rank]
        shape = (96, 40, 3)[:rank][::-1]
        boxes = [inner, outer, 1][:rank] if rank > 1 else [inner]
        count = elements if rank > 1 else inner
        encode = _encode(shape, boxes, SPANS[swizzle])

        @T.prim_func
        def kernel(Xp: T.handle, Op: T.handle, Yp: T.handle):
            X = T.match_buffer(Xp, shape, "float16", align=16)
            O = T.match_buffer(Op, (count,), "float16", align=16)
            Y = T.match_buffer(Yp, shape, "float16", align=16)
            X_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
            T.call_packed("runtime.cuTensorMapEncodeTiled", X_map, "float16", rank, X.data, *encode)
            Y_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
            T.call_packed("runtime.cuTensorMapEncodeTiled", Y_map, "float16", rank, Y.data, *encode)
            T.device_entry()
            T.cta_id([1])
            t = T.thread_id([32])
            s = T.alloc_buffer((count,), "float16", scope="shared.dyn", align=1024)
            full = T.alloc_shared((1,), "uint64")
            if t == 0:
                T.ptx["mbarrier.init.shared.b64"](full.ptr_to([0]), T.uint32(1))
                T.ptx["fence.proxy.async.shared::cta"]()
                T.ptx["mbarrier.arrive.expect_tx.shared.b64"](full.ptr_to([0]), T.uint32(2 * count))
                T.ptx[load](s.ptr_to([0]), T.address_of(X_map), *place, full.ptr_to([0]))
            T.cuda.warp_sync()
            T.cuda.mbarrier_wait(full.ptr_to([0]), 0)
            for i in T.serial((count + 31) // 32):
                if i * 32 + t < count:
                    O[i * 32 + t] = s[i * 32 + t]
            T.cuda.warp_sync()
            if t == 0:
                T.ptx[store](T.address_of(Y_map), *place, s.ptr_to([0]))
                T.ptx["cp.async.bulk.commit_group"]()
                T.ptx["cp.async.bulk.wait_group"](0)

        return kernel

    return build


def box_of(swizzle: str) -> tuple[int, int]:
    """Extents of the box: rows as wide as the swizzle's span, 64 bytes without one."""
    return {"none": 32, "32B": 16, "64B": 32, "128B": 64}[swizzle], 40


def _encode(shape: tuple[int, ...], boxes: list[int], swizzle: int) -> list[int]:
    dims = list(shape[::-1])
    strides = [2 * int(np.prod(dims[: i + 1])) for i in range(len(dims) - 1)]
    return [*dims, *strides, *boxes, *[1] * len(dims), 0, swizzle, 2, 0]


def tensor_arguments(swizzle: str, rank: int) -> Callable[[np.random.Generator], Arrays]:
    """A tensor that the box partly leaves."""

    def make(rng: np.random.Generator) -> Arrays:
        inner, outer = box_of(swizzle)
        shape = (96, 40, 3)[:rank]
        boxes = (inner, outer, 1)[:rank]
        x = rng.standard_normal(shape[::-1]).astype(np.float16)
        y = np.zeros_like(x)
        strides = tuple(2 * int(np.prod(shape[: i + 1])) for i in range(rank - 1))
        count = inner * outer if rank > 1 else inner
        return {
            "X_map": TensorMap(x, shape, strides, boxes, swizzle),
            "Y_map": TensorMap(y, shape, strides, boxes, swizzle),
            "O": np.zeros(count, np.float16),
        }

    return make
