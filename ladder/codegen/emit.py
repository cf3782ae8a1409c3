"""A small typed face of tirx's IRBuilder: what the stages write their TensorIR with.

Everything is a plain function call; loops and branches are context managers:

    with e.loop(4, "i") as i, e.when(i < m):
        e.store(y, i, x[i] + 1)

``Expr`` and ``Buffer`` are TVM objects; their operators (``+ - * // % < &``) build expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ladder.codegen import intrinsics
from ladder.codegen.tvm_api import PTX, IRBuilder, T, tirx

Expr = Any
Buffer = Any


def u32(value: int) -> Expr:
    """A 32-bit unsigned constant."""
    return T.uint32(value)


def u16(value: int) -> Expr:
    """A 16-bit unsigned constant."""
    return T.uint16(value)


def i64(value: Expr) -> Expr:
    """Widen an index to 64 bits."""
    return T.Cast("int64", value)


def u64(value: Expr) -> Expr:
    """A 64-bit unsigned constant, or a value widened to one."""
    return T.uint64(value) if isinstance(value, int) else T.Cast("uint64", value)


def boolean(value: bool) -> Expr:
    """A constant predicate."""
    return T.bool(value)


def f32(value: float) -> Expr:
    """A float32 constant."""
    return T.float32(value)


#: how an accumulator is kept in registers: PTX takes integers of any sign there, TVM's table of it unsigned ones
ACCUMULATOR = {"float32": "float32", "int32": "uint32"}


def zero(dtype: str) -> Expr:
    """Zero of an accumulator's type."""
    return T.uint32(0) if dtype == "int32" else T.float32(0.0)


def bind(value: Expr, name: str) -> Expr:
    """Name a value; later uses read the name, not the expression."""
    var = T.Bind(value)
    IRBuilder.name(name, var)
    return var


def store(buffer: Buffer, index: Expr, value: Expr) -> None:
    """``buffer[index] = value``."""
    T.buffer_store(buffer, value, [index])


def registers(name: str, count: int, dtype: str) -> Buffer:
    """Registers of one thread, indexed by constants."""
    buffer = T.alloc_buffer((count,), dtype, scope="local")
    IRBuilder.name(name, buffer)
    return buffer


def hold(value: Expr, name: str, dtype: str) -> Expr:
    """Keep a value in a register that any later scope may read."""
    register = registers(name, 1, dtype)
    store(register, 0, value)
    return register[0]


def ptx(text: str, *operands: Expr) -> None:
    """Issue one PTX instruction; destinations come first, as in PTX."""
    T.evaluate(PTX[text](*operands))


def ptx_where(condition: Expr, text: str, *operands: Expr) -> None:
    """Issue one PTX instruction without results under a predicate: no branch, as between products of a warpgroup."""
    T.evaluate(PTX[text](*operands, pred=T.Cast("uint32", condition)))


def call(name: str, *operands: Expr) -> Expr:
    """The result of an intrinsic of :mod:`ladder.codegen.intrinsics`."""
    entry = intrinsics.find(name)
    return T.cuda.func_call(
        entry.symbol, *operands, source_code=entry.source, return_type=entry.returns
    )


def cast(dtype: str, value: Expr) -> Expr:
    """Convert a value."""
    return T.Cast(dtype, value)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """``a * b + c`` of float32, rounded once. ``+`` and ``*`` round each: compilers make no fma of them (decision 0015)."""
    return call("fma_f32", a, b, c)


def as_f32(dtype: str, value: Expr) -> Expr:
    """An accumulator of a type as a float32, rounded to nearest."""
    return value if dtype == "float32" else T.Cast("float32", T.Cast("int32", value))


def bits_as_f32(value: Expr) -> Expr:
    """Reinterpret 32 bits as a float32."""
    return T.reinterpret("float32", value)


def f32_as_bits(value: Expr) -> Expr:
    """Reinterpret a float32 as 32 bits."""
    return T.reinterpret("uint32", value)


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """A choice without a branch; both sides are evaluated."""
    return T.Select(condition, then, otherwise)


def both(a: Expr, b: Expr) -> Expr:
    """Logical and; what is known to be true leaves nothing."""
    if a is True or b is True:
        return b if a is True else a
    return tirx.all(a, b)


def least(a: Expr, b: Expr) -> Expr:
    """The smaller of two integers."""
    return T.min(a, b)


@contextmanager
def loop(count: Expr, name: str, *, together: int | None = None) -> Iterator[Expr]:
    """``for name in range(count)``, with so many turns ``together`` (1: not unrolled, None: as the compiler likes)."""
    frame = T.serial(count, unroll=False if together == 1 else together)
    with frame as index:
        IRBuilder.name(name, index)
        yield index


@contextmanager
def when(condition: Expr | bool) -> Iterator[None]:
    """``if condition``; a condition known to be true leaves no branch."""
    if condition is True:
        yield
        return
    with T.If(condition), T.Then():
        yield


def elected() -> Expr:
    """Whether this is the one lane that its warp elects (PTX ISA, elect.sync)."""
    return T.cuda.elect_sync() != T.uint32(0)


def first_lanes(value: Expr) -> Expr:
    """The value of a warp's first lane, which the compiler may keep in a register of the whole warp."""
    shuffle = getattr(T.cuda, "__shfl_sync")
    return shuffle(T.uint32(0xFFFFFFFF), value, 0, 32)


def annotate(key: str, value: int) -> None:
    """Annotate the rest of the kernel."""
    frame = T.attr({key: value})
    frame.add_callback(partial(frame.__exit__, None, None, None))
    frame.__enter__()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Mark statements as belonging to a stage of the plan."""
    with T.attr({"ladder.stage": name}):
        yield


def load_vector(target: Buffer, first: int, source: Buffer, index: Expr, width: int) -> None:
    """Read ``width`` consecutive elements into registers ``target[first:]`` with one load."""
    if width == 1:
        store(target, first, source[index])
        return
    with T.vectorized(width) as i:
        T.buffer_store(target, source[index + i], [first + i])


def store_vector(target: Buffer, index: Expr, source: Buffer, first: int, width: int) -> None:
    """Write registers ``source[first:]`` to ``width`` consecutive elements with one store."""
    with T.vectorized(width) as i:
        T.buffer_store(target, source[first + i], [index + i])


def load_shared(target: Buffer, first: int, address: Expr, width: int) -> None:
    """Read ``width`` words from a 32-bit shared-memory address into registers ``target[first:]`` with one load.

    What :func:`load_vector` asks for becomes one load only where the compiler can prove that its index is a multiple of the width.
    """
    vector = f".v{width}" if width > 1 else ""
    ptx(f"ld.shared{vector}.b32", *(target[first + i] for i in range(width)), address)


def shared_pointer(buffer: Buffer, index: Expr) -> Expr:
    """Address of a shared-memory element as the 32-bit number that PTX instructions take."""
    return T.cuda.cvta_generic_to_shared(buffer.ptr_to([index]))


def sync_warp() -> None:
    """Make writes of the warp's lanes visible to each other."""
    T.evaluate(T.cuda.warp_sync())


def sync_cta() -> None:
    """Barrier of all threads of the CTA."""
    T.evaluate(T.cuda.cta_sync())


def sync_named(barrier: Expr, threads: int) -> None:
    """Named barrier of some warps of the CTA (PTX ISA barrier.cta.sync)."""
    ptx("barrier.cta.sync.aligned", T.Cast("uint32", barrier), u32(threads))
