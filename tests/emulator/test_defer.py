"""Work that is put off and done together gives what it gives one by one, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ladder.emulator import Options, run, translate

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TEXTS = {
    "fma": 'static __device__ unsigned int fma(unsigned int a, unsigned int b, unsigned int c) { unsigned int d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }',
    "prmt": 'static __device__ unsigned int prmt(unsigned int a, unsigned int b, unsigned int c) { unsigned int d; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }',
}
WORDS, SETS = 12, 3

register = st.integers(0, WORDS - 1)
operand = st.one_of(register, st.sampled_from(["0x3C003C00", "0x5140"]))
statements = st.one_of(
    st.tuples(
        st.just("call"), st.sampled_from(sorted(TEXTS)), register, register, operand, register
    ),
    st.tuples(st.just("xor"), register, register, register),
    st.tuples(
        st.just("mma"),
        st.integers(0, SETS - 1),
        st.integers(0, WORDS - 4),
        st.integers(0, WORDS - 2),
    ),
    st.tuples(st.just("read"), register, st.integers(0, SETS - 1), st.integers(0, 3)),
    st.tuples(st.just("set"), st.integers(0, SETS - 1), st.integers(0, 3)),
)
programs = st.lists(
    st.one_of(
        statements, st.tuples(st.just("if"), st.integers(0, 40), st.lists(statements, max_size=4))
    ),
    max_size=25,
)


def emitted(k, statement, r, acc):
    """The JSON of one drawn statement."""
    word = lambda i: ["load", r, i] if isinstance(i, int) else ["int", int(i, 0), "uint32"]  # noqa: E731
    match statement:
        case ("call", name, d, a, b, c):
            return k.store(r, d, ["call", f"func.{name}", "uint32", word(a), word(b), word(c)])
        case ("xor", d, a, b):
            return k.store(r, d, ["bitxor", word(a), word(b)])
        case ("mma", target, a, b):
            d = [["load", acc, 4 * target + i] for i in range(4)]
            return k.ptx(MMA, *d, *[word(a + i) for i in range(4)], word(b), word(b + 1), *d)
        case ("read", d, target, i):
            return k.store(r, d, ["call", "reinterpret", "uint32", ["load", acc, 4 * target + i]])
        case ("set", target, i):
            return k.store(acc, 4 * target + i, ["float", "0x1p+0", "float32"])
        case ("if", limit, body):
            inner = [emitted(k, s, r, acc) for s in body if s[0] != "mma"]
            return ["if", ["lt", k.tid, limit], ["seq", *inner], None]
    raise AssertionError(statement)


@given(programs, st.integers(0, 2**32 - 1))
def test_work_put_off_is_the_same_work(hand, program, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((WORDS, 64)).astype(np.float16).view(np.uint32)
    results = []
    k = hand(32)
    k.externs.update(TEXTS)
    y, z = np.zeros((WORDS, 32), np.uint32), np.zeros((4 * SETS, 32), np.float32)
    source, words, sums = k.array("x", x), k.array("y", y), k.array("z", z)
    r, acc = k.registers("r", "uint32", WORDS), k.registers("acc", "float32", 4 * SETS)
    k.add(*[k.store(r, i, ["load", source, ["add", 32 * i, k.tid]]) for i in range(WORDS)])
    k.add(*[k.store(acc, i, ["float", "0x0p+0", "float32"]) for i in range(4 * SETS)])
    k.add(*[emitted(k, statement, r, acc) for statement in program])
    k.add(*[k.store(words, ["add", 32 * i, k.tid], ["load", r, i]) for i in range(WORDS)])
    k.add(*[k.store(sums, ["add", 32 * i, k.tid], ["load", acc, i]) for i in range(4 * SETS)])
    for together in (False, True):
        kernel = translate(k.listing(), Options(together=together))
        run(kernel, k.arguments, k.grid, k.threads)
        results.append((y.copy(), z.view(np.uint32).copy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    same = (results[0][1] == results[1][1]) | np.isclose(
        results[0][1].view(np.float32), results[1][1].view(np.float32), rtol=1e-6, equal_nan=True
    )
    assert same.all()


def test_products_are_done_together(hand):
    """Four steps of two by two tiles become one call."""
    k = hand(32)
    r, acc = k.registers("r", "uint32", 12), k.registers("acc", "float32", 16)
    k.add(*[k.store(r, i, ["int", 0x3C003C00, "uint32"]) for i in range(12)])
    k.add(*[k.store(acc, i, ["float", "0x0p+0", "float32"]) for i in range(16)])
    for _ in range(4):
        for a in range(2):
            for b in range(2):
                d = [["load", acc, 4 * (2 * a + b) + i] for i in range(4)]
                left = [["load", r, 4 * a + i] for i in range(4)]
                right = [["load", r, 8 + 2 * b + i] for i in range(2)]
                k.add(k.ptx(MMA, *d, *left, *right, *d))
    y = np.zeros((16, 32), np.float32)
    out = k.array("y", y)
    k.add(*[k.store(out, ["add", 32 * i, k.tid], ["load", acc, i]) for i in range(16)])
    kernel = translate(k.listing())
    assert kernel.text.count("mma_batch(") == 1
    run(kernel, k.arguments, k.grid, k.threads)
    assert (y == 64).all()
