"""Decisions by kind: one table for ``schedule``, ``Plan.with_`` and the plan checker."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from ladder.errors import DeviceError, PlanError
from ladder.graph.matmul import matmul
from ladder.registry import devices
from ladder.scheduler import Plan, Tiling, schedule
from ladder.scheduler.decisions import DECISIONS, decided, misfits
from ladder.scheduler.epilogue import AddBias


def a_plan() -> Plan:
    return schedule(matmul(1, 64, 256, activation="float16", weight="int4"))


def test_every_field_of_a_plan_is_in_the_table():
    assert list(DECISIONS) == [field.name for field in fields(Plan)]


def test_numbers_of_numpy_are_pythons_afterwards():
    one = np.int64(1)
    found = decided(
        {
            "depth": np.int32(3),
            "tiling": Tiling(one, one, one, one, one),
            "lookahead": np.bool_(False),
            "m_range": [np.uint8(0), np.int64(8)],
            "device": "a100",
        },
        "here",
        PlanError,
    )
    assert found == {
        "depth": 3,
        "tiling": Tiling(1, 1, 1, 1, 1),
        "lookahead": False,
        "m_range": (0, 8),
        "device": devices["a100"],
    }
    numbers = (found["depth"], found["tiling"].warps_k, *found["m_range"])
    assert all(type(number) is int for number in numbers)
    plan = a_plan().with_(depth=np.int64(3))
    assert plan == a_plan().with_(depth=3)
    assert Plan.from_json(plan.to_json()) == plan


def test_with_refuses_other_kinds_by_name():
    for decision, what in (
        ({"m_range": None}, "m_range is None, not a pair of integers"),
        ({"tiling": 3}, "tiling is 3, not a Tiling"),
        ({"epilogue": "bias"}, "epilogue is 'bias', not a tuple of epilogue stages"),
        ({"family": ["ring"]}, "family is a list ['ring'], not a text"),
    ):
        with pytest.raises(PlanError) as caught:
            a_plan().with_(**decision)
        assert caught.value.what.startswith(what)
        assert caught.value.at == f"Plan.with_({next(iter(decision))}=...)"
        assert caught.value.hint
    with pytest.raises(DeviceError, match="unknown device 'h2000'"):
        a_plan().with_(device="h2000")


def test_the_checker_names_what_a_plan_made_by_hand_holds():
    assert not list(misfits(a_plan()))
    wrong = replace(a_plan(), tiling=None, depth=np.int64(3), device="h200", epilogue=[])
    assert [what.partition(" ")[0] for what, _ in misfits(wrong)] == [
        "device",
        "tiling",
        "depth",
        "epilogue",
    ]
    with pytest.raises(PlanError, match="tiling is None, not a Tiling of integers"):
        wrong.verify()
    for decision, what in (
        ({"tiling": Tiling(1, 1, 1, 1.0, 1)}, "not a Tiling of integers"),
        ({"epilogue": (AddBias,)}, "not a tuple of epilogue stages"),
    ):
        with pytest.raises(PlanError, match=what) as caught:
            replace(a_plan(), **decision).verify()
        assert caught.value.at == "Plan"
