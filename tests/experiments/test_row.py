"""Rows: a line for every point, also for those that cannot be had, beside what the scheduler would have done."""

from __future__ import annotations

import pytest

import ladder
from ladder.experiments import Row, Sweep, rows
from ladder.experiments.row import COLUMNS, device_digest

INT4 = ladder.types["int4"].grouped(128)


@pytest.fixture(scope="module")
def some() -> list[Row]:
    return list(rows(Sweep(shapes=[(4096, 4096)], weights=[INT4], ms=[1, 4096], name="some")))


def test_a_row_says_what_was_fixed_and_what_the_scheduler_would_do(some) -> None:
    assert [(row.m, row.placement) for row in some[:5]] == [
        (1, "offline"),
        (1, "global"),
        (1, "shared"),
        (1, "register"),
        (4096, "offline"),
    ]
    for row in some:
        op = ladder.matmul(row.m, 4096, 4096, activation="float16", weight=INT4)
        plan = ladder.schedule(op)
        assert row.status == "ok"
        assert row.chosen_us == pytest.approx(plan.cost().us, abs=1e-3)
        assert row.chosen_plan == plan.brief
        assert row.price == pytest.approx(row.modelled_us / row.chosen_us, abs=1e-4)
        assert (row.element, row.bits, row.group) == ("int4", 4, "1x128")
        assert row.bits_per_weight == pytest.approx(4.125)
        assert row.kernel == "plan"
        assert (row.measured_us, row.measured_error, row.note) == (None, None, "")
        assert list(row.as_dict()) == list(COLUMNS)
    register = next(row for row in some if row.placement == "register")
    assert register.price == 1.0
    assert register.plan == register.chosen_plan
    assert register.operand == "exact"
    assert {row.operand for row in some if row.placement == "offline"} == {"may overflow"}


def test_where_a_row_is_from_is_in_it(some) -> None:
    h200 = ladder.devices["h200"]
    for row in some:
        assert row.experiment == "some"
        assert row.ladder == ladder.__version__
        assert row.commit
        assert row.device_table == device_digest(h200)
        assert row.seed == 0
    assert device_digest(h200.with_(sms=h200.sms - 1)) != device_digest(h200)


def test_points_that_cannot_be_had_are_rows_with_the_reason() -> None:
    found = list(
        rows(
            Sweep(
                shapes=[(256, 256)],
                weights=["int4", "mxfp4"],
                groups=[20],
                ms=[4],
                fixed=[{"family": "specialised"}, {}],
                devices=["a100"],
            )
        )
    )
    assert len(found) == 2 * 2 * 4
    refused = [row for row in found if row.status == "refused"]
    assert all(row.reason and row.modelled_us is None and row.price is None for row in refused)
    assert {row.fixed for row in refused} == {"family=specialised", ""}
    by = {(row.element, row.fixed, row.placement): row for row in found}
    assert "groups of 20 are padded" in by["int4", "", "global"].reason
    assert by["int4", "", "register"].status == "ok"
    # what the scheduler would have done stands beside a refused decision, too
    assert by["int4", "family=specialised", "register"].chosen_us is not None


def test_a_type_that_cannot_have_its_groups_is_refused_as_a_row() -> None:
    (row,) = rows(
        Sweep(
            shapes=[(64, 64)],
            weights=["int4"],
            groups=[(1, None)],
            scale="no_such",
            ms=[1],
            placements=["register"],
        )
    )
    assert (row.status, row.weight, row.group) == ("refused", "int4", "1xall")
    assert row.chosen_us is None
    assert row.bits_per_weight is None


def test_activations_that_no_product_takes_yet_are_refused_not_dropped() -> None:
    found = list(
        rows(
            Sweep(
                shapes=[(64, 64)],
                weights=["int4"],
                ms=[1],
                activations=["int8"],
                sources=["global", "source"],
            )
        )
    )
    assert len(found) == 8
    assert {row.source for row in found} == {"global", "source"}
    for row in found:
        assert (row.status == "refused") == (row.modelled_us is None)
        assert bool(row.reason) == (row.status == "refused")
