"""The plan that is found without building the others is the first of all of them; floors are below the estimates they stand for."""

from __future__ import annotations

import pytest

from ladder.errors import ScheduleError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Tiling, choose_packing, estimate
from ladder.scheduler import ranking as module
from ladder.scheduler.candidates import enumerate_plans, refusal, shapes
from ladder.scheduler.cost import floor_us
from ladder.scheduler.ranking import ROUNDING, cheapest, rank

WEIGHTS = {
    "int4": types["int4"].grouped(128, zero="integer"),
    "mxfp4": "mxfp4",
    "uint1": types["uint1"].grouped(128, zero="integer"),
    "int8": types["int8"].grouped("channel"),
}

#: weight, device, M of the operator, N, K, range of M
PROBLEMS = [
    ("int4", "h200", 1, 8192, 8192, (1, 1)),
    ("int4", "h200", 16, 28672, 8192, (16, 16)),
    ("int4", "h200", 1000, 4096, 14336, (1000, 1000)),
    ("int4", "h200", None, 4096, 4096, (0, 1)),
    ("int4", "h200", None, 4096, 4096, (33, 64)),
    ("int4", "h200", None, 8192, 28672, (1025, None)),
    ("int4", "a100", 64, 4096, 4096, (64, 64)),
    ("mxfp4", "h200", 8, 200, 1024, (8, 8)),
    ("uint1", "h200", 32, 4096, 1000, (32, 32)),
    ("int8", "rtx4090", 256, 4096, 4096, (256, 256)),
]
FIXED = [{}, {"family": "ring"}]


def problem(weight: str, device: str, m: int | None, n: int, k: int):
    op = matmul(m, n, k, activation="float16", weight=WEIGHTS[weight])
    target = devices[device]
    return op, target, choose_packing(op, target.features)


@pytest.mark.parametrize("fixed", FIXED, ids=str)
@pytest.mark.parametrize("weight, device, m, n, k, m_range", PROBLEMS)
def test_the_cheapest_plan_is_the_first_of_all(weight, device, m, n, k, m_range, fixed):
    asked = (*problem(weight, device, m, n, k), m_range, fixed)
    assert cheapest(*asked) == rank(*asked).chosen


@pytest.mark.parametrize("n, k", [(8192, 8192), (4096, 4096), (3584, 3584)])
def test_the_cheapest_plan_of_programmatic_launches_is_the_first_of_all(n, k):
    """Small matrices leave room for the next launch with some numbers of slots, and not with others."""
    asked = (*problem("int4", "h200", 1, n, k), (1, 1), {"launch": "pdl"})
    assert cheapest(*asked) == rank(*asked).chosen


@pytest.mark.parametrize(
    "weight, device, m, n, k, m_range", [*PROBLEMS, ("int4", "h200", 1, 4096, 4096, (1, 1))]
)
def test_no_estimate_is_below_the_floor_of_its_siblings(weight, device, m, n, k, m_range):
    fixed = {"convert": "register", "launch": "pdl" if m in (1, 16) else "plain"}
    below = 0
    for shape in shapes(*problem(weight, device, m, n, k), m_range, fixed):
        for siblings in shape:
            plans = [siblings.walking(*walk) for walk in siblings.walks]
            floors = [floor_us(plan) for plan in plans if not refusal(plan, fixed)]
            times = [estimate(plan).us for plan in plans if not refusal(plan, fixed)]
            assert len(set(floors)) <= 1  # depth and lookahead do not change it
            assert all(
                floor <= us * (1 + ROUNDING) for floor, us in zip(floors, times, strict=True)
            )
            below += len(times)
    assert below


def test_few_of_the_candidates_are_built(monkeypatch):
    asked = (*problem("int4", "h200", 64, 4096, 4096), (64, 64), {})
    candidates = len(enumerate_plans(*asked).legal)
    estimated = []
    monkeypatch.setattr(module, "estimate", lambda plan: estimated.append(plan) or estimate(plan))
    cheapest(*asked)
    assert 0 < len(estimated) < candidates / 5


@pytest.mark.parametrize(
    "fixed",
    [
        *({"tiling": Tiling(1, 0, 1, 1, 1)}, {"depth": 1}, {"split": 0}, {"family": "wide"}),
        *({"split": 1000, "persistent": True}, {"multicast": 1000, "persistent": True}),
    ],
)
def test_where_no_plan_is_legal_both_say_why(fixed):
    asked = (*problem("int4", "h200", 1, 4096, 4096), (1, 1), fixed)
    with pytest.raises(ScheduleError, match="no legal plan") as one:
        cheapest(*asked)
    with pytest.raises(ScheduleError) as other:
        rank(*asked)
    assert str(one.value) == str(other.value)


def test_a_product_that_the_device_lacks_is_left_out():
    op, device, packing = problem("int4", "h200", 64, 4096, 4096)
    fewer = device.with_(
        name="fewer",
        instruction_set=tuple(i for i in device.instruction_set if not i.name.startswith("wgmma")),
    )
    assert cheapest(op, fewer, packing, (64, 64)).compute == "mma"
