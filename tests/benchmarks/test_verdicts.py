"""A bar is met, not met or open by the rows that it looks at, and by no others."""

from __future__ import annotations

import pytest

from benchmarks.grid import Case
from benchmarks.verdicts import (
    Bar,
    Pick,
    Table,
    against,
    geometric_mean,
    judge,
    name_of,
    over_floor,
    ratio,
    share,
    step,
    study_read_us,
    time_of,
    time_of_larger,
    time_us,
)

SQUARE, TALL = (8192, 8192), (28672, 8192)
BOTH = Pick(("int4",), (SQUARE, TALL), (1,))
CUBLAS = against("cublas_fp16")


def case(m: int = 1, weight: str = "int4", shape: tuple[int, int] = SQUARE, **other) -> Case:
    return Case(weight, *shape, m, other.pop("activation", "float16"), **other)


def bar(pick, value, limit, **other) -> Bar:
    return Bar("B", "what", pick, value, limit, **other)


def test_the_slowest_row_decides(made):
    rows = [
        made(case(), 10.0, cublas_fp16=30.0),
        made(case(shape=TALL), 40.0, cublas_fp16=112.0),
        made(case(8), 1e3, cublas_fp16=1.0),  # another M is not looked at
    ]
    met = judge(bar(BOTH, CUBLAS, 2.8), Table(rows))
    assert (met.met, met.measured, met.wanted) == (True, 2, 2)
    missed = judge(bar(BOTH, CUBLAS, 2.9), Table(rows))
    assert missed.met is False
    assert missed.found == pytest.approx(2.8)
    assert missed.at == "int4 28672x8192 M=1 float16 plain"


def test_a_row_that_is_missing_keeps_a_bar_open_and_one_that_misses_decides_it(made):
    rows = [made(case(), 10.0, cublas_fp16=30.0)]
    assert judge(bar(BOTH, CUBLAS, 2.9), Table(rows)).met is None
    assert judge(bar(BOTH, CUBLAS, 3.1), Table(rows)).met is False
    assert judge(bar(BOTH, CUBLAS, 2.9, needed=False), Table(rows)).met is None
    both = [*rows, made(case(shape=TALL), 40.0)]  # measured, without the peer
    assert judge(bar(BOTH, CUBLAS, 2.9), Table(both)).met is None
    assert judge(bar(BOTH, CUBLAS, 2.9, needed=False), Table(both)).met is True
    assert judge(bar(BOTH, CUBLAS, 3.1, mean=True), Table(rows)).met is None
    nothing = judge(bar(BOTH, against("humming"), 1.0, needed=False), Table(rows))
    assert (nothing.met, nothing.found, nothing.measured) == (None, None, 0)


def test_a_failed_row_is_none(made):
    broken = {**made(case(), 10.0), "failure": "no kernel", "us": None}
    assert judge(bar(BOTH, time_us, 20.0, at_most=True), Table([broken])).measured == 0


def test_a_mean_is_geometric(made):
    rows = [
        made(case(), 10.0, cublas_fp16=20.0),
        made(case(shape=TALL), 10.0, cublas_fp16=5.0),
    ]
    found = judge(bar(BOTH, CUBLAS, 1.0, mean=True), Table(rows))
    assert found.found == pytest.approx(1.0)
    assert geometric_mean([2.0, 4.0, 8.0]) == pytest.approx(4.0)


def test_the_better_launch_counts_where_any_may(made):
    rows = [made(case(), 12.0), made(case(launch="pdl"), 10.0)]
    one = Pick(("int4",), (SQUARE,), (1,), launch="best")
    assert judge(bar(one, time_us, 11.0, at_most=True), Table(rows)).met is True
    plain = Pick(("int4",), (SQUARE,), (1,))
    assert judge(bar(plain, time_us, 11.0, at_most=True), Table(rows)).met is False


def test_microseconds_scale_by_the_floor_of_the_run(made):
    one = Pick(("int4",), (SQUARE,), (1,))
    floor = study_read_us(8192 * 8192 / 2 + 8192 * 64 * 4)
    (slow,) = [made(case(), 10.9, read_us=1.1 * floor)]
    found = judge(bar(one, time_us, 10.0, at_most=True), Table([slow]))
    assert found.met is False
    assert found.scaled == pytest.approx(11.0, rel=1e-3)
    assert judge(bar(one, share, 0.5), Table([slow])).scaled is None
    assert judge(bar(one, time_us, 1.0, at_most=True), Table([made(case(), 2.0)])).scaled is None


def test_the_floor_of_the_study_is_read_between_its_sizes():
    assert study_read_us(4.2e6) == pytest.approx(2.6)
    assert study_read_us(117.4e6) == pytest.approx(28.0)
    assert study_read_us((29.4e6 + 33.6e6) / 2) == pytest.approx((8.1 + 9.3) / 2)
    assert study_read_us(1e6) < 2.6
    assert 50 < study_read_us(234.8e6) < 60


def test_time_is_compared_with_the_row_that_differs_in_one_field(made):
    rows = [
        made(case(), 10.0),
        made(case(activation="bfloat16"), 11.0),
        made(case(weight="int4_g32"), 12.0),
    ]
    table = Table(rows)
    assert time_of(activation="float16")(table, rows[1]) == pytest.approx(1.1)
    assert time_of(weight="mxfp4")(table, rows[0]) is None
    bits, bits_g32 = 4 + 2 * 16 / 128, 4 + 2 * 16 / 32
    explained = time_of(explained=True, weight="int4")(table, rows[2])
    assert explained == pytest.approx(1.2 * bits / bits_g32, rel=1e-3)


def test_a_sweep_finds_points_slower_than_a_larger_m_and_cliffs(made):
    times = {48: 10.0, 56: 14.0, 64: 12.0, 72: 13.0}
    rows = {m: made(case(m, any_m=True), us) for m, us in times.items()}
    table = Table([*rows.values(), made(case(80), 1.0)])
    assert time_of_larger(table, rows[56]) == pytest.approx(14 / 12)
    assert time_of_larger(table, rows[72]) == 1.0
    assert step(8)(table, rows[56]) == pytest.approx(1.4)
    assert step(8)(table, rows[48]) == 1.0


def test_ratios_are_none_without_both_times(made):
    found = made(case(), 10.0, read_us=8.0, cublas_fp16=39.0)
    assert ratio(found, "cublas_fp16") == pytest.approx(3.9)
    assert ratio(found, "humming") is None
    assert over_floor(found) == pytest.approx(1.25)
    assert over_floor({**found, "read_us": None}) is None
    assert name_of(made(case(3, any_m=True), 1.0)).endswith("M=3 float16 plain any M")
