"""Atomics and what CTAs may know of each other: split-K with and without its counter, flags, fences."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.emulator import Fault

SYNC = ["eval", ["call", "cuda.cta_sync", ""]]
FENCE = ["eval", ["call", "cuda.thread_fence", ""]]
SCHEDULES = [("random", seed) for seed in range(6)] + [("eager", 0), ("lazy", 0)]
SLICES = 4


def u32(value):
    return ["int", value, "uint32"]


def kinds(kernel):
    found = set()
    for schedule, seed in SCHEDULES:
        for name in ("count", "y", "part"):
            if name in kernel.arguments:
                kernel.arguments[name][:] = 0
        try:
            kernel.run(schedule=schedule, seed=seed)
            found.add("")
        except Fault as fault:
            found.add(fault.kind)
    return found


def split_k(hand, address, *, fence=True, atom="atom.acq_rel", counter=True, barrier=True):
    """Each CTA writes its part; the one that counts last adds the parts up."""
    y, part, count = (
        np.zeros(64, np.float32),
        np.zeros(64 * SLICES, np.float32),
        np.zeros(1, np.uint32),
    )
    k = hand(64, grid=(SLICES, 1, 1))
    out, parts, counts = k.array("y", y), k.array("part", part), k.array("count", count)
    last, old, total = (
        k.shared("last", "uint32", 1),
        k.registers("old", "uint32", 1),
        k.registers("sum", "float32", 1),
    )
    own = ["cast", "float32", ["add", ["mul", k.block, 100], k.tid]]
    k.add(k.store(parts, ["add", ["mul", k.block, 64], k.tid], own))
    if barrier:
        k.add(SYNC)
    text = f"{atom}.gpu.global.add.u32"
    leader = [FENCE] if fence else []
    leader += [
        k.ptx(text, ["load", old, 0], address(counts, 0), u32(1)),
        k.store(last, 0, ["load", old, 0]),
    ]
    if fence:
        leader.append(FENCE)
    k.add(["if", ["eq", k.tid, 0], ["seq", *leader], None], SYNC)
    add = [k.store(total, 0, ["float", "0x0p+0", "float32"])]
    add += [
        k.store(total, 0, ["add", ["load", total, 0], ["load", parts, ["add", 64 * s, k.tid]]])
        for s in range(SLICES)
    ]
    add.append(k.store(out, k.tid, ["load", total, 0]))
    condition = (
        ["eq", ["load", last, 0], u32(SLICES - 1)] if counter else ["eq", k.block, SLICES - 1]
    )
    k.add(["if", condition, ["seq", *add], None])
    return k, y


@pytest.mark.parametrize(
    "how", [{}, {"atom": "atom.relaxed"}, {"fence": False, "atom": "atom.acq_rel"}], ids=str
)
def test_the_last_cta_may_add_up(hand, address, how):
    k, y = split_k(hand, address, **how)
    assert kinds(k) == {""}
    assert (y == sum(100 * s for s in range(SLICES)) + SLICES * np.arange(64)).all()


@pytest.mark.parametrize(
    "fault",
    [
        {"fence": False, "atom": "atom.relaxed"},
        {"fence": False, "atom": "atom.release"},
        {"barrier": False},
    ],
    ids=str,
)
def test_a_split_without_its_counter_or_fence_is_caught(hand, address, fault):
    k, _ = split_k(hand, address, **fault)
    assert kinds(k) == {"race"}


def test_adding_up_without_looking_at_the_counter_is_caught(hand, address):
    """Where the schedule lets that CTA come last, the counter does order it; elsewhere it races."""
    k, _ = split_k(hand, address, counter=False)
    assert "race" in kinds(k)


def test_two_ctas_writing_one_place_race(hand):
    k = hand(32, grid=(2, 1, 1))
    y = k.array("y", np.zeros(32, np.int32))
    k.add(k.store(y, k.tid, k.block))
    assert kinds(k) == {"race"}


def test_reductions_do_not_race_with_each_other(hand, address):
    y = np.zeros(4, np.float32)
    k = hand(32, grid=(3, 1, 1))
    out = k.array("y", y)
    one = ["float", "0x1p+0", "float32"]
    k.add(k.ptx("red.relaxed.gpu.global.add.f32", address(out, ["bitand", k.tid, 3]), one))
    assert kinds(k) == {""}
    assert y.tolist() == [24.0] * 4


def test_a_plain_read_of_what_others_reduce_into_races(hand, address):
    k = hand(32, grid=(2, 1, 1))
    out, copy = k.array("y", np.zeros(1, np.float32)), k.array("part", np.zeros(64, np.float32))
    k.add(k.ptx("red.relaxed.gpu.global.add.f32", address(out, 0), ["float", "0x1p+0", "float32"]))
    k.add(k.store(copy, ["add", ["mul", k.block, 32], k.tid], ["load", out, 0]))
    assert "race" in kinds(k)


def flag(hand, address, store, load):
    """CTA 0 writes data and raises a flag, CTA 1 spins on it and reads the data."""
    y, part, count = np.zeros(32, np.uint32), np.zeros(32, np.uint32), np.zeros(1, np.uint32)
    k = hand(32, grid=(2, 1, 1))
    out, data, flags = k.array("y", y), k.array("part", part), k.array("count", count)
    r = k.registers("seen", "uint32", 1)
    give = [
        k.store(data, k.tid, ["cast", "uint32", k.tid]),
        ["eval", ["call", "cuda.warp_sync", ""]],
    ]
    give.append(["if", ["eq", k.tid, 0], k.ptx(store, address(flags, 0), u32(1)), None])
    take = [k.store(r, 0, u32(0))]
    take.append(
        ["while", ["eq", ["load", r, 0], u32(0)], k.ptx(load, ["load", r, 0], address(flags, 0))]
    )
    take.append(k.store(out, k.tid, ["load", data, ["sub", 31, k.tid]]))
    k.add(["if", ["eq", k.block, 0], ["seq", *give], ["seq", *take]])
    return k, y


def test_a_flag_with_release_and_acquire_hands_data_over(hand, address):
    k, y = flag(hand, address, "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32")
    assert kinds(k) == {""}
    assert (y == np.arange(32)[::-1]).all()


@pytest.mark.parametrize(
    "store, load",
    [
        ("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32"),
        ("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32"),
    ],
)
def test_a_relaxed_flag_hands_nothing_over(hand, address, store, load):
    k, _ = flag(hand, address, store, load)
    assert kinds(k) == {"race"}


def test_wait_until_acquires(hand, address):
    y, part, count = np.zeros(32, np.uint32), np.zeros(32, np.uint32), np.zeros(1, np.uint32)
    k = hand(32, grid=(2, 1, 1))
    out, data, flags = k.array("y", y), k.array("part", part), k.array("count", count)
    r = k.registers("seen", "uint32", 1)
    give = [
        k.store(data, k.tid, ["cast", "uint32", k.tid]),
        ["eval", ["call", "cuda.warp_sync", ""]],
    ]
    give.append(
        [
            "if",
            ["eq", k.tid, 0],
            k.ptx("red.release.gpu.global.add.u32", address(flags, 0), u32(3)),
            None,
        ]
    )
    seen = ["load", r, 0]
    wait = [
        "call",
        "cuda.wait_until",
        "",
        seen,
        address(flags, 0),
        ["ge", seen, u32(3)],
        ["str", "gpu"],
    ]
    take = [["eval", wait], k.store(out, k.tid, ["load", data, ["sub", 31, k.tid]])]
    k.add(["if", ["eq", k.block, 0], ["seq", *give], ["seq", *take]])
    assert kinds(k) == {""}
    assert (y == np.arange(32)[::-1]).all()


def test_compare_and_swap_gives_one_winner(hand, address):
    y, count = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    k = hand(64)
    out, lock, r = k.array("y", y), k.array("count", count), k.registers("r", "uint32", 1)
    k.add(
        k.ptx("atom.relaxed.gpu.global.cas.b32", ["load", r, 0], address(lock, 0), u32(0), u32(7))
    )
    k.add(k.store(out, k.tid, ["load", r, 0]))
    assert kinds(k) == {""}
    assert sorted(y.tolist()) == [0] + [7] * 63


def test_shared_atomics_count_without_racing(hand, address):
    y = np.zeros(64, np.uint32)
    k = hand(64)
    out, s, r = k.array("y", y), k.shared("s", "uint32", 1), k.registers("r", "uint32", 1)
    k.add(["if", ["eq", k.tid, 0], k.store(s, 0, u32(0)), None], SYNC)
    k.add(k.ptx("atom.shared.add.u32", ["load", r, 0], address(s, 0), u32(1)), SYNC)
    k.add(k.store(out, k.tid, ["add", ["mul", ["load", r, 0], u32(100)], ["load", s, 0]]))
    assert kinds(k) == {""}
    assert sorted(y.tolist()) == [100 * i + 64 for i in range(64)]


def test_a_shared_atomic_before_the_barrier_races_with_the_store(hand, address):
    k = hand(64)
    s, r = k.shared("s", "uint32", 1), k.registers("r", "uint32", 1)
    k.add(["if", ["eq", k.tid, 0], k.store(s, 0, u32(0)), None])
    k.add(k.ptx("atom.shared.add.u32", ["load", r, 0], address(s, 0), u32(1)))
    assert kinds(k) <= {"race", "uninitialised"}


@pytest.mark.parametrize(
    "text, old, new, expected",
    [
        ("atom.global.inc.u32", 5, 5, 0),
        ("atom.global.inc.u32", 4, 5, 5),
        ("atom.global.dec.u32", 0, 5, 5),
        ("atom.global.dec.u32", 9, 5, 5),
        ("atom.global.dec.u32", 3, 5, 2),
        ("red.global.max.u32", 3, 5, 5),
        ("red.global.min.u32", 3, 5, 3),
        ("atom.global.exch.b32", 3, 5, 5),
        ("red.global.add.noftz.f16x2", 0x3C003C00, 0x3C000000, 0x40003C00),
    ],
)
def test_updates_are_the_isas(text, old, new, expected):
    from ladder.emulator.atomics import operation

    assert int(operation(text)(np.uint32(old), np.uint32(new))) == expected
