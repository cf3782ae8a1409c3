"""Faults of hand-written kernels: each is caught on every schedule, and its repaired twin runs."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.emulator import Fault

SYNC = ["eval", ["call", "cuda.cta_sync", ""]]
WARP_SYNC = ["eval", ["call", "cuda.warp_sync", ""]]
SCHEDULES = [("random", seed) for seed in range(5)] + [("eager", 0), ("lazy", 0)]


def kinds(kernel):
    """Kinds of fault over the schedules, '' where a run went through."""
    found = set()
    for schedule, seed in SCHEDULES:
        try:
            kernel.run(schedule=schedule, seed=seed)
            found.add("")
        except Fault as fault:
            found.add(fault.kind)
    return found


def exchange(hand, *, threads, barrier, reverse=True):
    """Store x to shared memory, read the mirrored place, store it."""
    x = np.arange(threads, dtype=np.uint32)
    y = np.zeros(threads, np.uint32)
    k = hand(threads)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("s", "uint32", threads)
    other = ["sub", threads - 1, k.tid] if reverse else k.tid
    k.add(k.store(s, k.tid, ["load", a, k.tid]), *barrier, k.store(b, k.tid, ["load", s, other]))
    return k, x, y


def test_a_barrier_orders_warps(hand):
    k, x, y = exchange(hand, threads=96, barrier=[SYNC])
    assert kinds(k) == {""}
    assert (y == x[::-1]).all()


def test_a_missing_barrier_between_warps_is_caught(hand):
    k, _, _ = exchange(hand, threads=96, barrier=[])
    assert kinds(k) <= {"race", "uninitialised"}


def test_a_warp_barrier_does_not_order_warps(hand):
    k, _, _ = exchange(hand, threads=64, barrier=[WARP_SYNC])
    assert kinds(k) <= {"race", "uninitialised"}


def test_a_warp_barrier_orders_lanes(hand):
    k, x, y = exchange(hand, threads=32, barrier=[WARP_SYNC])
    assert kinds(k) == {""}
    assert (y == x[::-1]).all()


def test_lanes_without_a_warp_barrier_race(hand):
    k, _, _ = exchange(hand, threads=32, barrier=[])
    assert kinds(k) == {"race"}


def test_a_lane_reads_what_it_wrote(hand):
    k, x, y = exchange(hand, threads=64, barrier=[], reverse=False)
    assert kinds(k) == {""}
    assert (y == x).all()


def test_the_report_names_stage_buffer_and_both_accesses(hand):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    k = hand(64)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("tile", "uint32", 64)
    k.add(["stage", "load", k.store(s, k.tid, ["load", a, k.tid])])
    k.add(["stage", "mirror", k.store(b, k.tid, ["load", s, ["bitxor", k.tid, 1]])])
    with pytest.raises(Fault) as caught:
        k.run()
    text = str(caught.value)
    assert "race: lane" in text
    assert "tile+" in text
    assert "load of tile in stage mirror" in text
    assert "store of tile in stage load" in text


def write_after_read(hand, barrier):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    k = hand(64)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("s", "uint32", 64)
    r = k.registers("r", "uint32", 1)
    k.add(k.store(s, k.tid, ["load", a, k.tid]), SYNC)
    k.add(k.store(r, 0, ["load", s, ["sub", 63, k.tid]]), *barrier)
    k.add(k.store(s, k.tid, ["int", 7, "uint32"]), k.store(b, k.tid, ["load", r, 0]))
    return k


def test_overwriting_what_another_warp_still_reads_is_caught(hand):
    assert kinds(write_after_read(hand, [])) == {"race"}
    assert kinds(write_after_read(hand, [SYNC])) == {""}


def test_two_lanes_storing_different_values_to_one_place_race(hand):
    k = hand(32)
    s = k.shared("s", "int32", 32)
    k.add(k.store(s, ["shr", k.tid, 1], k.tid))
    assert kinds(k) == {"race"}


def test_two_lanes_may_store_one_value_to_one_place(hand):
    k = hand(32)
    s = k.shared("s", "int32", 32)
    k.add(k.store(s, ["shr", k.tid, 1], ["shr", k.tid, 1]))
    assert kinds(k) == {""}


def copy_kernel(hand, address, *, commit=True, wait=0, barrier=(SYNC,), reverse=False, early=False):
    """Copy 16 bytes a lane into shared memory and read them back."""
    x, y = np.arange(64 * 4, dtype=np.uint32), np.zeros(64, np.uint32)
    k = hand(64)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("s", "uint32", 256)
    place = ["mul", k.tid, 4]
    k.add(k.ptx("cp.async.cg.shared.global", address(s, place), address(a, place), 16))
    if commit:
        k.add(k.ptx("cp.async.commit_group"))
    if early:
        k.add(*barrier)
    if wait is not None:
        k.add(k.ptx("cp.async.wait_group", wait))
    if not early:
        k.add(*barrier)
    k.add(k.store(b, k.tid, ["load", s, ["sub", 252, place] if reverse else place]))
    return k, x, y


@pytest.mark.parametrize("reverse", [False, True])
def test_a_waited_copy_may_be_read_after_a_barrier(hand, address, reverse):
    k, x, y = copy_kernel(hand, address, reverse=reverse)
    assert kinds(k) == {""}
    assert (y == (x[::4][::-1] if reverse else x[::4])).all()


def test_a_lane_may_read_its_own_copy_after_the_wait(hand, address):
    k, x, y = copy_kernel(hand, address, barrier=())
    assert kinds(k) == {""}
    assert (y == x[::4]).all()


@pytest.mark.parametrize(
    "fault",
    [
        {"wait": None},
        {"wait": 1},
        {"commit": False},
        {"barrier": (), "reverse": True},
        {"barrier": (WARP_SYNC,), "reverse": True},
        {"early": True, "reverse": True},
    ],
    ids=str,
)
def test_a_copy_read_too_early_is_caught(hand, address, fault):
    k, _, _ = copy_kernel(hand, address, **fault)
    found = kinds(k)
    assert "race" in found
    assert found <= {"race", "uninitialised"}  # another warp's copy may not even be issued


def test_a_copy_over_data_that_another_warp_reads_is_caught(hand, address):
    x, y = np.arange(256, dtype=np.uint32), np.zeros(64, np.uint32)
    k = hand(64)
    a, b, s = k.array("x", x), k.array("y", y), k.shared("s", "uint32", 256)
    place = ["mul", k.tid, 4]
    k.add(k.store(s, place, ["load", a, place]), SYNC)
    k.add(k.store(b, k.tid, ["load", s, ["sub", 252, place]]))
    k.add(k.ptx("cp.async.cg.shared.global", address(s, place), address(a, place), 16))
    k.add(k.ptx("cp.async.commit_group"), k.ptx("cp.async.wait_group", 0))
    assert kinds(k) == {"race"}


def test_reading_shared_memory_that_nobody_wrote_is_caught(hand):
    k = hand(32)
    b, s = k.array("y", np.zeros(32, np.uint32)), k.shared("s", "uint32", 64)
    k.add(
        k.store(s, k.tid, ["int", 1, "uint32"]),
        SYNC,
        k.store(b, k.tid, ["load", s, ["add", k.tid, 1]]),
    )
    assert kinds(k) == {"uninitialised"}


@pytest.mark.parametrize("index", [-1, -40, 64, 5000, 10**8])
@pytest.mark.parametrize("detect", [True, False])
def test_leaving_shared_memory_is_caught(hand, index, detect):
    k = hand(32)
    s = k.shared("s", "uint32", 64)
    k.add(k.store(s, ["add", k.tid, index - 31 if index > 0 else index], ["int", 1, "uint32"]))
    with pytest.raises(Fault) as caught:
        k.run(detect=detect)
    assert caught.value.kind == "bounds"


@pytest.mark.parametrize("index", [-1, 1])
def test_leaving_global_memory_is_caught(hand, index):
    k = hand(32)
    b = k.array("y", np.zeros(32, np.uint32))
    k.add(k.store(b, ["add", k.tid, index], ["int", 1, "uint32"]))
    assert kinds(k) == {"bounds"}


def test_a_misaligned_copy_is_caught(hand, address):
    k = hand(32)
    a, s = k.array("x", np.zeros(256, np.uint32)), k.shared("s", "uint32", 256)
    place = ["add", ["mul", k.tid, 4], 1]
    k.add(k.ptx("cp.async.cg.shared.global", address(s, place), address(a, ["mul", k.tid, 4]), 16))
    assert kinds(k) == {"misaligned"}


def test_an_unset_register_is_caught_lane_by_lane(hand):
    for setter, expected in ((31, {"uninitialised"}), (32, {""})):
        k = hand(32)
        b, r = k.array("y", np.zeros(32, np.int32)), k.registers("r", "int32", 2)
        k.add(["if", ["lt", k.tid, setter], k.store(r, 1, k.tid), None])
        k.add(k.store(b, k.tid, ["load", r, 1]))
        assert kinds(k) == expected


def test_a_register_set_on_both_branches_is_set(hand):
    y = np.zeros(32, np.int32)
    k = hand(32)
    b, r = k.array("y", y), k.registers("r", "int32", 1)
    k.add(["if", ["lt", k.tid, 5], k.store(r, 0, 1), k.store(r, 0, 2)])
    k.add(k.store(b, k.tid, ["load", r, 0]))
    assert kinds(k) == {""}
    assert y.tolist() == [1] * 5 + [2] * 27
