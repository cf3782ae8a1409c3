"""Knowledge of epochs: what a barrier unites, what grows, what the async proxy sees."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.emulator import Fault
from ladder.emulator.order import Order, including, united
from ladder.emulator.race import Shadow
from ladder.emulator.report import Site

LANES, PLACE = np.arange(4), np.arange(4, dtype=np.uint32) * 4


def shadow(warps=2, granules=4096):
    made = Shadow(Order(warps), granules, 2)
    made.allocate(0, 4 * granules)
    return made


def test_a_granule_is_ordered_by_what_was_handed_over():
    s = shadow()
    s.write(0, Site(0, "st"), PLACE, LANES, 4)
    with pytest.raises(Fault):
        s.read(1, Site(1, "ld"), PLACE, LANES, 4)
    s.order.acquire(1, s.order.release(0))
    s.read(1, Site(1, "ld"), PLACE, LANES, 4)
    with pytest.raises(Fault):
        s.write(0, Site(2, "st"), PLACE, LANES, 4)


def test_many_epochs_keep_their_order():
    s = shadow()
    lane = np.arange(1)
    for turn in range(3000):
        s.write(turn % 2, Site(turn, "st"), np.array([4 * (turn % 100)], np.uint32), lane, 4)
        s.order.acquire(1 - turn % 2, s.order.release(turn % 2))
    assert len(s.order.epochs) > 3000
    s.write(1, Site(9999, "st"), np.array([0], np.uint32), lane, 4)


def test_a_floor_leaves_out_only_what_everyone_knows():
    order = Order(2)
    flying = order.new_epoch("copy", 0, Site(0, "cp"))
    order.writing(0, Site(1, "st"))
    union = united([order.release(0), order.release(1)])
    order.acquire(0, union)
    order.acquire(1, union)
    order.everyone_met()
    assert order.floor == flying
    order.learn(0, [flying])
    order.acquire(1, order.release(0))
    order.everyone_met()
    assert order.floor == len(order.epochs)


def test_the_async_proxy_sees_generic_writes_after_a_fence():
    order = Order(2)
    wrote = order.writing(0, Site(0, "st"))
    order.acquire(1, order.release(0))
    assert order.known[:, 1, wrote].tolist() == [True, False]
    order.fence_proxy(0)
    order.acquire(1, order.release(0))
    assert order.known[:, 1, wrote].tolist() == [True, True]


def test_writes_of_the_async_proxy_are_visible_to_it():
    order = Order(1)
    copies = [order.new_epoch("bulk copy", 0, Site(0, "cp"), proxy=True) for _ in range(3)]
    order.acquire(0, including(order.release(0), copies[:2]))
    assert order.known[:, 0, copies].tolist() == [[True, True, False]] * 2


def test_fresh_warps_know_nothing_of_earlier_ones():
    order = Order(1)
    wrote = order.writing(0, Site(0, "st"))
    order.warp_sync(0)
    order.forget()
    assert not order.known[0, 0, wrote]
    assert order.writing(0, Site(0, "st")) != wrote
