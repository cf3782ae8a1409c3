"""Plans that quantise activations: chosen so that rows stay in registers, checked, written and read."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.errors import PlanError, ScheduleError, ShapeError
from ladder.scheduler.quantize_plan import MOST_PIECES, QuantizePlan


def plan_of(k: int, m: int | None = None, device: str = "h200", **fixed) -> QuantizePlan:
    return ladder.schedule(
        ladder.quantize_activations(m, k, **fixed.pop("types", {})), device, **fixed
    )


@pytest.mark.parametrize(
    "k, warps, rows, access, pieces",
    [
        (8, 1, 4, "vector", 1),
        (1024, 2, 2, "vector", 2),
        (1032, 3, 1, "vector", 2),
        (4096, 8, 1, "vector", 2),
        (8192, 16, 1, "vector", 2),
        # 16 warps would leave the last of four pieces half empty
        (14336, 14, 1, "vector", 4),
        (28672, 16, 1, "vector", 7),
        (65544, 17, 1, "vector", 16),
        (131072, 32, 1, "vector", 16),
        (131080, 32, 1, "scalar", 17),
        (4097, 9, 1, "scalar", 2),
        (1, 1, 4, "scalar", 1),
    ],
)
def test_rows_are_shared_among_warps(k, warps, rows, access, pieces) -> None:
    plan = plan_of(k)
    assert (plan.warps, plan.rows, plan.access, plan.pieces) == (warps, rows, access, pieces)
    assert plan.threads == 32 * warps * rows
    assert plan.check() == ()
    assert QuantizePlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "k, warps, access, pieces",
    [
        (4, 1, "vector", 1),
        (4096, 16, "vector", 2),
        (8192, 16, "vector", 4),
        (28672, 16, "vector", 14),
        (65536, 32, "vector", 16),
        (65540, 32, "scalar", 17),
        (4098, 11, "scalar", 3),
    ],
)
def test_pieces_of_float32_are_of_four(k, warps, access, pieces) -> None:
    plan = plan_of(k, types={"source": "float32"})
    assert (plan.warps, plan.access, plan.pieces) == (warps, access, pieces)
    assert QuantizePlan.from_json(plan.to_json()) == plan
    with pytest.raises(PlanError, match="of float32 needs K to be a multiple of 4, not 6"):
        plan_of(6, types={"source": "float32"}).with_(access="vector")


def test_decisions_by_hand_are_kept_and_checked() -> None:
    plan = plan_of(8192, warps=np.int64(4), rows=2, launch="pdl")
    assert QuantizePlan.from_json(plan.to_json()) == plan
    assert (plan.warps, plan.rows, plan.launch, plan.pieces) == (4, 2, "pdl", 8)
    assert plan.with_(access="scalar").access == "scalar"
    for broken, what in (
        ({"warps": 1}, f"32 pieces of a thread > {MOST_PIECES}"),
        ({"rows": 32}, "4096 threads > 1024 of a block"),
        ({"access": "tensor"}, "access is 'tensor'"),
        ({"warps": 0}, "warps is 0"),
        ({"m_range": (0,)}, "m_range"),
    ):
        with pytest.raises(PlanError, match=what):
            plan.with_(**broken)
    with pytest.raises(PlanError, match="a plan has no decision depth"):
        plan.with_(depth=3)
    with pytest.raises(ScheduleError, match="a plan has no decision placement"):
        plan_of(64, placement="register")
    with pytest.raises(ScheduleError, match="of float16 needs K to be a multiple of 8, not 77"):
        plan_of(77, access="vector")


def test_a_device_without_the_conversion_is_refused() -> None:
    fp8 = {"types": {"target": "fp8_e4m3fn"}}
    assert plan_of(64, device="rtx4090", **fp8).device.name == "rtx4090"
    with pytest.raises(ScheduleError, match=r"a100 lacks cvt\.e4m3x2"):
        plan_of(64, device="a100", **fp8)
    with pytest.raises(ScheduleError, match="a100 lacks pdl"):
        plan_of(64, device="a100", launch="pdl")


def test_a_plan_for_one_m_takes_that_alone() -> None:
    assert plan_of(64, m=7).m_range == (7, 7)
    with pytest.raises(PlanError, match=r"M = 7 of the operator is outside 0 \.\. 3"):
        plan_of(64, m=7).with_(m_range=(0, 3))
    with pytest.raises(PlanError, match="M from 5 to 1 is no range"):
        plan_of(64).with_(m_range=(5, 1))


def test_the_estimate_counts_bytes_read_and_written() -> None:
    cost = plan_of(8192).cost(4096)
    assert cost.limit.amount == 4096 * (8192 * 3 + 4)
    assert cost.ctas == 4096
    wide = plan_of(8192, types={"source": "float32"}).cost(4096)
    assert wide.limit.amount == 4096 * (8192 * 5 + 4)
    assert str(cost) in plan_of(8192, m=4096).explain()


def test_its_meaning_is_the_operators() -> None:
    plan = plan_of(64)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float16)
    for found, wanted in zip(plan.run(x), plan.op.reference(x), strict=True):
        assert np.array_equal(found, wanted)
    with pytest.raises(ShapeError, match="the operator takes float16"):
        plan.run(x.astype(np.float32))


def test_it_prints() -> None:
    assert "1 x 16 warps, vector access of 2 pieces a thread" in str(plan_of(8192))
    assert "read twice" in str(plan_of(77))
    with pytest.raises(PlanError, match="has format"):
        QuantizePlan.from_json(
            ladder.schedule(ladder.matmul(1, 8, 8, activation="float16", weight="int4")).to_json()
        )
