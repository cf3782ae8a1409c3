"""Times beside the estimates: only where a measurer answered and the numbers were right; a note says why not."""

from __future__ import annotations

import math

import pytest

import ladder
from ladder.experiments import Sweep, kernels_of, rows
from ladder.experiments.lowering import Kernel
from ladder.experiments.measured import Measure
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.problem import Candidate
from ladder.runtime.tuning.worker import Failed
from ladder.scheduler.dequantize_plan import DequantizePlan

INT4 = ladder.types["int4"].grouped(64)
DECODE_US = 7.0


def sweep(**other) -> Sweep:
    return Sweep(**{"shapes": [(128, 256)], "weights": [INT4], "ms": [2], **other})


def product(candidate: Candidate) -> Measured:
    assert candidate.plan.op.m == 2
    assert candidate.estimate_us == candidate.plan.cost().us
    return Measured(2 * candidate.estimate_us, 2e-4)


def decode(kernel: Kernel) -> Measured:
    assert isinstance(kernel.plan, DequantizePlan)
    return Measured(DECODE_US, 3e-4)


def by_placement(found):
    return {row.placement: row for row in found}


def test_a_measurer_fills_the_times_of_all_placements() -> None:
    found = by_placement(rows(sweep(), Measure(product, {"dequantize": decode})))
    plain = by_placement(rows(sweep()))
    for placement in ("offline", "shared", "register"):
        row = found[placement]
        assert row.measured_us == pytest.approx(2 * row.modelled_us, abs=2e-3)
        assert (row.measured_error, row.note) == (2e-4, "")
    both = found["global"]
    expected = DECODE_US + found["offline"].measured_us
    assert both.measured_us == pytest.approx(expected, abs=2e-3)
    assert both.measured_error == 3e-4
    assert "one by one" in both.note
    assert {row.measured_us for row in plain.values()} == {None}


@pytest.mark.parametrize(
    "answer, why",
    [
        (Failed("SIGSEGV"), "SIGSEGV"),
        (Measured(math.nan, 0.5), "relative error 0.5"),
        (Measured(3.0, math.nan), "relative error nan"),
        (Measured(math.nan, 1e-4), "a launch took nan us"),
        (Measured(0.0, 1e-4), "a launch took 0.0 us"),
    ],
)
def test_what_is_no_measurement_leaves_a_note_and_no_time(answer, why) -> None:
    measure = Measure(lambda _: answer, {"dequantize": decode})
    for row in rows(sweep(), measure):
        assert row.measured_us is None
        assert row.measured_error is None
        assert row.note.startswith("matmul not measured")
        assert why in row.note


def test_a_kernel_without_a_measurer_leaves_a_note() -> None:
    found = by_placement(rows(sweep(), Measure(product)))
    assert found["global"].measured_us is None
    assert found["global"].note == "dequantize not measured: there is no measurer for it"
    assert found["offline"].measured_us is not None


def test_other_devices_and_seeds_are_not_measured() -> None:
    measure = Measure(product, device=ladder.devices["h200"])
    found = list(rows(sweep(devices=["a100", "h200"], placements=["register"]), measure))
    assert [row.measured_us is None for row in found] == [True, False]
    assert "no a100" in found[0].note
    (row,) = rows(sweep(seed=3, placements=["register"]), Measure(product))
    assert "seed 0" in row.note
    assert row.measured_us is None


class Some:
    """Kernels of which one is missing."""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    def announce(self, wanted) -> None: ...

    def missing(self, wanted) -> Failed | None:
        found = wanted.digest == self._missing
        return Failed("its kernel is not in kernels", lasting=False) if found else None

    def close(self) -> None: ...


def test_a_kernel_is_measured_once_and_rows_share_its_time() -> None:
    asked: list[str] = []

    def counted(candidate: Candidate) -> Measured:
        asked.append(candidate.digest)
        return Measured(1.0 + len(asked), 1e-4)

    two = sweep(weights=["int4", "nf4"], groups=[64])
    found = list(rows(two, Measure(counted, {"dequantize": decode})))
    dense = {row.measured_us for row in found if row.placement == "offline"}
    assert dense == {2.0}  # of both weights, and of the products behind "global"
    assert {row.measured_us for row in found if row.placement == "global"} == {2.0 + DECODE_US}
    assert len(set(asked)) == len(asked) == 5
    products = {kernel.digest for kernel in kernels_of(two) if kernel.name == "matmul"}
    assert products == set(asked)


def test_what_may_work_another_time_is_asked_again() -> None:
    answers = iter([Failed("memory", lasting=False), Measured(3.0, 1e-4)])
    measure = Measure(lambda _: next(answers))
    twice = sweep(placements=["register"], ms=[2], weights=[INT4])
    assert [next(iter(rows(twice, measure))).measured_us for _ in range(3)] == [None, 3.0, 3.0]


def test_a_kernel_that_is_missing_leaves_a_note_and_is_not_measured() -> None:
    (shared,) = kernels_of(sweep(placements=["shared"]))
    measure = Measure(product, {"dequantize": decode}, kernels=Some(shared.digest))
    found = by_placement(rows(sweep(), measure))
    assert found["shared"].measured_us is None
    assert found["shared"].note == "matmul not measured: its kernel is not in kernels"
    assert all(row.measured_us for name, row in found.items() if name != "shared")


def test_a_remark_stands_in_rows_that_have_a_time() -> None:
    found = by_placement(rows(sweep(), Measure(product, remark="kernels of build old")))
    assert found["register"].note == "kernels of build old"
    assert found["global"].note == "dequantize not measured: there is no measurer for it"
    both = by_placement(rows(sweep(), Measure(product, {"dequantize": decode}, remark="old")))
    assert both["global"].note == "sum of kernels that were measured one by one; old"
