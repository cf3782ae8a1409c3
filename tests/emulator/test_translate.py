"""Expressions and control flow of listings against a scalar interpreter with C's rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.emulator import Fault, translate
from ladder.emulator.report import Site

LIMITS = {"int32": (32, True), "uint32": (32, False), "int64": (64, True)}


def wrap(value, dtype):
    bits, signed = LIMITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def literal(value, dtype):
    return value if dtype == "int32" else ["int", value, dtype]


def c_divide(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def evaluate(node, dtype, tid):
    """One thread's value, by C's rules on integers that wrap."""
    match node:
        case int():
            return node
        case ["int", value, _]:
            return value
        case ["tid"]:
            return wrap(tid, dtype)
        case ["select", condition, a, b]:
            return evaluate(a if compare(condition, dtype, tid) else b, dtype, tid)
        case [name, a, b]:
            x, y = evaluate(a, dtype, tid), evaluate(b, dtype, tid)
            result = {
                "add": lambda: x + y,
                "sub": lambda: x - y,
                "mul": lambda: x * y,
                "div": lambda: c_divide(x, y),
                "mod": lambda: x - c_divide(x, y) * y,
                "floordiv": lambda: x // y,
                "floormod": lambda: x % y,
                "min": lambda: min(x, y),
                "max": lambda: max(x, y),
                "bitand": lambda: x & y,
                "bitor": lambda: x | y,
                "bitxor": lambda: x ^ y,
                "shl": lambda: x << y,
                "shr": lambda: x >> y,
            }[name]()
            return wrap(result, dtype)
    raise AssertionError(node)


def compare(node, dtype, tid):
    name, a, b = node
    x, y = evaluate(a, dtype, tid), evaluate(b, dtype, tid)
    return {"lt": x < y, "le": x <= y, "eq": x == y, "ne": x != y, "gt": x > y, "ge": x >= y}[name]


@st.composite
def expressions(draw, dtype, depth=3):
    bits, signed = LIMITS[dtype]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    numbers = st.integers(low, high) | st.integers(0, 40)
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.one_of(numbers.map(lambda v: literal(v, dtype)), st.just(["tid"])))
    kind = draw(st.sampled_from(["binary", "binary", "divide", "shift", "select"]))
    inner = expressions(dtype, depth - 1)
    if kind == "binary":
        names = ["add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor"]
        return [draw(st.sampled_from(names)), draw(inner), draw(inner)]
    if kind == "divide":
        divisor = draw(st.integers(1, 1000))
        names = ["div", "mod", "floordiv", "floormod"]
        return [draw(st.sampled_from(names)), draw(inner), literal(divisor, dtype)]
    if kind == "shift":
        return [
            draw(st.sampled_from(["shl", "shr"])),
            draw(inner),
            literal(draw(st.integers(0, bits - 1)), dtype),
        ]
    comparison = [
        draw(st.sampled_from(["lt", "le", "eq", "ne", "gt", "ge"])),
        draw(inner),
        draw(inner),
    ]
    return ["select", comparison, draw(inner), draw(inner)]


def with_thread(node, tid, dtype):
    if node == ["tid"]:
        return tid if dtype == "int32" else ["cast", dtype, tid]
    if isinstance(node, list) and node[0] != "int":
        return [node[0], *(with_thread(child, tid, dtype) for child in node[1:])]
    return node


@pytest.mark.parametrize("dtype", LIMITS)
@given(data=st.data())
def test_integer_expressions_follow_c(hand, dtype, data):
    node = data.draw(expressions(dtype))
    y = np.zeros(64, dtype)
    k = hand(64)
    b = k.array("y", y)
    k.add(k.store(b, k.tid, with_thread(node, k.tid, dtype)))
    k.run()
    want = [evaluate(node, dtype, tid) for tid in range(64)]
    assert y.tolist() == want


@given(st.integers(-70, 70), st.integers(-70, 70), st.integers(1, 9))
def test_loops_and_branches_run_lane_by_lane(hand, start, stop, modulus):
    """for (i = start + tid; i < stop; i++) if (i % modulus == 1) sum += i; else sum -= 1;"""
    y = np.zeros(32, np.int32)
    k = hand(32)
    b, r = k.array("y", y), k.registers("sum", "int32", 1)
    k.add(k.store(r, 0, 0))
    first = ["add", start, k.tid]

    def body(i):
        add = k.store(r, 0, ["add", ["load", r, 0], i])
        subtract = k.store(r, 0, ["sub", ["load", r, 0], 1])
        return [["if", ["eq", ["mod", i, modulus], 1], add, subtract]]

    k.add(k.loop("i", first, ["sub", stop, first], body), k.store(b, k.tid, ["load", r, 0]))
    k.run()
    for tid in range(32):
        total = 0
        for i in range(start + tid, stop):
            total += i if i - c_divide(i, modulus) * modulus == 1 else -1
        assert y[tid] == total


def test_while_loops_stop_lane_by_lane(hand):
    """Collatz lengths."""
    y = np.zeros(32, np.int32)
    k = hand(32)
    b, r = k.array("y", y), k.registers("r", "int32", 2)
    n, steps = ["load", r, 0], ["load", r, 1]
    odd = k.store(r, 0, ["add", ["mul", n, 3], 1])
    even = k.store(r, 0, ["shr", n, 1])
    body = ["seq", ["if", ["eq", ["bitand", n, 1], 1], odd, even], k.store(r, 1, ["add", steps, 1])]
    k.add(k.store(r, 0, ["add", k.tid, 1]), k.store(r, 1, 0), ["while", ["gt", n, 1], body])
    k.add(k.store(b, k.tid, steps))
    k.run()
    for tid in range(32):
        value, count = tid + 1, 0
        while value > 1:
            value, count = (3 * value + 1 if value % 2 else value // 2), count + 1
        assert y[tid] == count


def test_a_guarded_load_is_not_executed_where_the_guard_fails(hand):
    x, y = np.arange(20, dtype=np.int32), np.zeros(32, np.int32)
    for form in ("select", "if_then_else", "and"):
        k = hand(32)
        a, b = k.array("x", x), k.array("y", y)
        inside, load = ["lt", k.tid, 20], ["load", a, k.tid]
        value = {
            "select": ["select", inside, load, -1],
            "if_then_else": ["call", "if_then_else", "int32", inside, load, -1],
            "and": ["cast", "int32", ["and", inside, ["gt", load, 9]]],
        }[form]
        k.add(k.store(b, k.tid, value))
        k.run()
        want = [i > 9 for i in range(20)] + [0] * 12 if form == "and" else [*range(20), *[-1] * 12]
        assert y.tolist() == [int(v) for v in want]


def test_registers_may_be_indexed_by_lane(hand):
    y = np.zeros(32, np.int32)
    k = hand(32)
    b, r = k.array("y", y), k.registers("r", "int32", 4)
    k.add(*[k.store(r, i, 10 * i) for i in range(4)])
    k.add(
        k.store(r, ["bitand", k.tid, 3], k.tid),
        k.store(b, k.tid, ["load", r, ["bitand", ["add", k.tid, 1], 3]]),
    )
    k.run()
    assert y.tolist() == [10 * ((tid + 1) % 4) for tid in range(32)]
    k = hand(32)
    r = k.registers("r", "int32", 4)
    k.add(k.store(r, ["bitand", k.tid, 7], k.tid))
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "bounds"


def test_vector_loads_and_stores_move_consecutive_elements(hand):
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    k = hand(32)
    a, b = k.array("x", x), k.array("y", y)
    ramp = ["ramp", ["mul", k.tid, 4], 1, 4]
    k.add(
        k.store(
            b, ramp, ["mul", ["load", a, ramp], ["broadcast", ["float", "0x1p+1", "float32"], 4]]
        )
    )
    k.run()
    assert (y == 2 * x).all()


def test_a_misaligned_vector_load_is_caught(hand):
    k = hand(32)
    a, r = k.array("x", np.zeros(256, np.float32)), k.registers("r", "float32", 4)
    k.add(k.store(r, ["ramp", 0, 1, 4], ["load", a, ["ramp", ["add", ["mul", k.tid, 4], 2], 1, 4]]))
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "misaligned"


def test_the_grid_counts_blocks(hand):
    y = np.zeros(96, np.int32)
    k = hand(32, grid=(3, 1, 1))
    b = k.array("y", y)
    k.add(k.store(b, ["add", ["mul", k.block, 32], k.tid], k.block))
    k.run()
    assert y.tolist() == [i // 32 for i in range(96)]


def test_launches_that_do_not_fit_are_refused(hand):
    k = hand(32, grid=(3, 1, 1))
    k.array("y", np.zeros(96, np.int32))
    for change in ({"grid": (2, 1, 1)}, {"threads": 64}, {"arguments": {}}):
        from ladder.emulator import run

        arguments = change.get("arguments", k.arguments)
        with pytest.raises(Fault) as caught:
            run(k.listing(), arguments, change.get("grid", k.grid), change.get("threads", 32))
        assert caught.value.kind == "arguments"


def test_what_has_no_translation_is_refused(hand):
    k = hand(32)
    k.add(["eval", ["call", "cuda.unheard_of", ""]])
    with pytest.raises(Fault) as caught:
        translate(k.listing())
    assert caught.value.kind == "unsupported"
    with pytest.raises(Fault):
        translate({**k.listing(), "format": "ladder.listing/0"})


def test_faults_survive_pickling():
    import pickle

    fault = Fault("race: x", at=Site(1, "ld", "s", "load"), hint="h")
    again = pickle.loads(pickle.dumps(fault))
    assert (again.kind, str(again)) == ("race", str(fault))
