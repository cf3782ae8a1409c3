"""Barriers, deadlocks and divergence."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.emulator import Fault

SYNC = ["eval", ["call", "cuda.cta_sync", ""]]


def u32(value):
    return ["int", value, "uint32"]


def test_a_barrier_that_one_warp_skips_is_a_deadlock(hand):
    k = hand(96)
    k.add(["if", ["lt", k.tid, 64], SYNC, None])
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "deadlock"
    assert "warp 2 ended" in str(caught.value)
    assert "64 of 96 threads came" in str(caught.value)


def test_a_barrier_in_a_divergent_branch_is_refused(hand):
    k = hand(32)
    k.add(["if", ["lt", k.tid, 16], SYNC, None])
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "divergence"


def test_a_named_barrier_orders_its_warps_only(hand):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    k = hand(128)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("s", "uint32", 64)
    inner = [
        k.store(s, k.tid, ["load", a, k.tid]),
        k.ptx("barrier.cta.sync.aligned", u32(1), u32(64)),
        k.store(b, k.tid, ["load", s, ["sub", 63, k.tid]]),
    ]
    k.add(["if", ["lt", k.tid, 64], ["seq", *inner], None])
    for seed in range(5):
        k.run(seed=seed)
    assert (y == x[::-1]).all()


def test_two_counts_at_one_barrier_are_refused(hand):
    k = hand(96)
    first = k.ptx("barrier.cta.sync.aligned", u32(1), u32(64))
    second = k.ptx("barrier.cta.sync.aligned", u32(1), u32(96))
    k.add(["if", ["lt", k.tid, 32], first, second])
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "barrier"


def test_a_warp_does_not_come_twice_to_one_barrier(hand):
    k = hand(64)
    arrive = k.ptx("barrier.cta.arrive.aligned", u32(3), u32(64))
    k.add(["if", ["lt", k.tid, 32], ["seq", arrive, arrive], None])
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "barrier"


def test_arrivals_release_waiters(hand):
    """A producer that arrives does not wait; its writes are seen by the warp that waits."""
    y = np.zeros(32, np.uint32)
    k = hand(64)
    b, s = k.array("y", y), k.shared("s", "uint32", 32)
    lane = ["bitand", k.tid, 31]
    producer = [k.store(s, lane, u32(5)), k.ptx("barrier.cta.arrive.aligned", u32(2), u32(64))]
    consumer = [
        k.ptx("barrier.cta.sync.aligned", u32(2), u32(64)),
        k.store(b, lane, ["load", s, ["sub", 31, lane]]),
    ]
    k.add(["if", ["lt", k.tid, 32], ["seq", *producer], ["seq", *consumer]])
    for seed in range(5):
        k.run(seed=seed)
    assert (y == 5).all()


def test_a_partial_last_warp_meets_at_barriers(hand):
    y = np.zeros(40, np.uint32)
    k = hand(40)
    b, s = k.array("y", y), k.shared("s", "uint32", 40)
    k.add(k.store(s, k.tid, ["cast", "uint32", k.tid]), SYNC)
    k.add(k.store(b, k.tid, ["load", s, ["sub", 39, k.tid]]))
    k.run()
    assert (y == np.arange(40)[::-1]).all()


def test_an_endless_loop_is_a_livelock(hand):
    k = hand(32)
    s = k.shared("s", "uint32", 32)
    k.add(k.store(s, k.tid, u32(0)), ["while", ["eq", ["load", s, k.tid], u32(0)], ["seq"]])
    with pytest.raises(Fault) as caught:
        k.run()
    assert caught.value.kind == "livelock"
