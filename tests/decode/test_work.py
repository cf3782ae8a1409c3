from __future__ import annotations

from ladder.decode.work import Work


def test_steps_are_counted_and_saying_no_is_remembered():
    work = Work(3)
    work.spend(2)
    assert (work.left, work.spent, work.goes_on(), work.cut) == (1, 2, True, False)
    work.spend(1)
    assert not work.cut
    assert not work.goes_on()
    assert work.cut


def test_a_part_takes_half_and_is_settled():
    work = Work(10)
    part = work.half()
    part.spend(7)
    assert not part.goes_on()
    work.settle(part)
    assert (work.left, work.cut) == (3, True)
    assert work.goes_on()
