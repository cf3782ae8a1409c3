"""Plans that decode a weight into memory: their meaning, their rules, what they should cost, their text."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.errors import PackingError, PlanError, ScheduleError
from ladder.scheduler.dequantize_plan import DequantizePlan

#: weight type -> how far the plan may be from float64, in units of the last place
TYPES = {
    "int4": ladder.types["int4"].grouped(32),
    "int3 with zeros": ladder.types["int3"].grouped(32, zero="integer"),
    "uint2 with float zeros": ladder.types["uint2"].grouped(64, zero="float"),
    "int5 rescaled": ladder.types["int5"].grouped(32, zero="rescaled"),
    "bipolar1": ladder.types["bipolar1"].grouped(128),
    "int8 by channel": ladder.types["int8"].grouped("channel"),
    "fp8": ladder.types["fp8_e4m3fn"].grouped(32),
    "nvfp4": ladder.types["nvfp4"],
    "bare int4": ladder.types["int4"],
    "nf4": ladder.types["nf4"].grouped(64),
}


def plan_of(weight, n: int = 50, k: int = 200, compute: str = "float16", **fixed) -> DequantizePlan:
    return ladder.schedule(ladder.dequantize(n, k, weight=weight, compute=compute), **fixed)


@pytest.mark.parametrize("compute", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TYPES)
def test_its_meaning_is_the_operators(name: str, compute: str) -> None:
    plan = plan_of(TYPES[name], compute=compute)
    q = ladder.quantize(np.random.default_rng(1).standard_normal((50, 200)), TYPES[name])
    found, exact = plan.run(q), q.dequantize()
    assert found.dtype == plan.op.compute.dtype
    assert np.linalg.norm(exact) > 1
    # one rounding of the result; where lanes do not hold the element exactly, one of that before
    bound = (1 if name != "nf4" else 2.1) * (2.0**-11 if compute == "float16" else 2.0**-8)
    assert np.all(np.abs(found.astype(np.float64) - exact) <= bound * np.abs(exact) + 2.0**-25)
    if name != "nf4":
        assert np.array_equal(found, plan.op.reference(q))
    dense = plan.dense(q)
    assert np.array_equal(dense.dequantize(), found.astype(np.float64))


def test_a_product_with_the_dense_weight_is_that_of_the_weight() -> None:
    wt = TYPES["nf4"]
    q = ladder.quantize(np.random.default_rng(2).standard_normal((48, 128)), wt)
    x = np.random.default_rng(3).standard_normal((5, 128)).astype(np.float16)
    product = ladder.schedule(
        ladder.matmul(5, 48, 128, activation="float16", weight="float16", out="float32")
    )
    y = product.run(x, plan_of(wt, 48, 128).dense(q))
    exact = x.astype(np.float64) @ q.dequantize().T
    assert np.linalg.norm(y - exact) <= 1e-3 * np.linalg.norm(exact)


def test_codes_are_looked_up_in_registers_where_a_program_does() -> None:
    plan = plan_of(ladder.types["nf3"].grouped(64))
    assert plan.packing.program.table is not None
    assert plan.program.table is None
    assert plan.shared_bytes < plan_of(TYPES["nf4"]).shared_bytes
    q = ladder.quantize(np.random.default_rng(1).standard_normal((50, 200)), plan.op.weight)
    exact = q.dequantize()
    assert np.linalg.norm(plan.run(q) - exact) <= 2.0**-11 * np.linalg.norm(exact)


def test_decisions_by_hand_are_kept_and_checked() -> None:
    plan = plan_of(TYPES["nf4"], 8192, 8192)
    assert (plan.warps, plan.atoms, plan.total_atoms) == (8, 8, 65536)
    assert plan.ctas == 1024
    assert plan.check() == ()
    other = plan.with_(warps=4, atoms=3)
    assert other.ctas == -(-65536 // 12)
    assert DequantizePlan.from_json(other.to_json()) == other
    for broken, what in (
        ({"warps": 0}, "warps is 0"),
        ({"warps": 64}, "warps is 64"),
        ({"depth": 3}, "a plan has no decision depth"),
        ({"target": plan.packing}, "target is of another weight"),
        ({"packing": plan.target}, "packing is of another weight"),
    ):
        with pytest.raises(PlanError, match=what):
            plan.with_(**broken)
    with pytest.raises(ScheduleError, match="a plan has no decision placement"):
        plan_of(TYPES["nf4"], placement="global")
    with pytest.raises(PlanError):
        DequantizePlan.from_json("{}")


def test_groups_that_are_padded_are_refused() -> None:
    with pytest.raises(ScheduleError, match="groups of 20 are padded to 32"):
        plan_of(ladder.types["int4"].grouped(20))


def test_weights_of_another_type_are_refused() -> None:
    q = ladder.quantize(np.ones((50, 200)), TYPES["nf4"])
    with pytest.raises(PackingError):
        plan_of(TYPES["int4"]).run(q)


def test_the_estimate_counts_bytes_read_and_written() -> None:
    plan = plan_of(TYPES["int4"], 8192, 8192)
    cost = plan.cost()
    assert cost.limit.name == "BW dram"
    assert cost.limit.amount == plan.packing.nbytes + 2 * 8192 * 8192
    assert cost.us > cost.limit.amount / plan.device.dram_bytes_per_second * 1e6
    assert str(cost) in plan.explain()
    assert "134217728 B of float16" in str(plan)


def test_the_two_other_placements_name_what_to_do() -> None:
    op = ladder.matmul(1, 64, 64, activation="float16", weight=TYPES["int4"])
    for placement, hint in (("global", "ladder.dequantize"), ("offline", "weight='float16'")):
        with pytest.raises(ScheduleError) as caught:
            ladder.schedule(op, placement=placement)
        assert hint in caught.value.hint
