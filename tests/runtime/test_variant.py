"""Kernels of a set that are compiled when a call needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ladder
from ladder.errors import LoweringError
from ladder.runtime.cache import Cache
from ladder.runtime.variant import Deferred

pytest.importorskip("tvm", reason="kernels are lowered by TVM")


@pytest.fixture(scope="module")
def plans() -> Any:
    """A set with several ranges of M."""
    weight = ladder.types["int4"].grouped(32, scale="float16")
    op = ladder.matmul(None, 64, 64, activation="float16", weight=weight)
    return ladder.schedule(op, "h200")


def counted(asked: list[Any]) -> Any:
    """The package's own lowering, which notes what it is asked for."""
    from ladder.codegen.lower import lower

    def note(plan: Any) -> Any:
        asked.append(plan)
        return lower(plan)

    return note


def test_only_the_kernel_of_a_call_is_compiled(plans: Any) -> None:
    asked: list[Any] = []
    kernel = ladder.compile(plans, ahead=False, lower=counted(asked), cache=Cache(None))
    assert len(plans) > 1
    assert not asked, "nothing is compiled before a call"
    assert "not compiled yet" in repr(kernel)
    first = kernel.variants[0]
    assert repr(first) == str(first) == f"Deferred({first.name})"
    assert not asked, "nor by a look at it"
    rng = np.random.default_rng(0)
    q = ladder.quantize(rng.standard_normal((64, 64)), plans.op.weight)
    packed = kernel.pack(q)
    x = rng.standard_normal((3, 64)).astype(np.float16)
    y = kernel(x, packed, device="emulator")
    want = plans.op.reference(x, q)
    assert np.linalg.norm(y - want) <= 1e-3 * np.linalg.norm(want)
    assert [plan.m_range[0] <= 3 <= (plan.m_range[1] or 3) for plan in asked] == [True]
    again = len(asked)
    kernel(x, packed, device="emulator")
    assert len(asked) == again, "a kernel is compiled once"


def test_text_and_artifact_are_those_of_a_set_compiled_ahead(plans: Any) -> None:
    ahead = ladder.compile(plans)
    later = ladder.compile(plans, ahead=False)
    assert later.source == ahead.source
    assert [part.plan for part in later.artifact().parts] == [
        part.plan for part in ahead.artifact().parts
    ]
    assert repr(later) == repr(ahead)


def test_what_is_wrong_with_a_plan_shows_when_it_is_needed(plans: Any) -> None:
    def refuse(plan: Any) -> Any:
        raise LoweringError("no", at=str(plan))

    kernel = ladder.compile(plans, ahead=False, lower=refuse, cache=Cache(None))
    assert all(isinstance(variant, Deferred) for variant in kernel.variants)
    with pytest.raises(LoweringError, match="no"):
        _ = kernel.source


def test_one_plan_is_compiled_at_once(plans: Any) -> None:
    kernel = ladder.compile(plans.plans[0], ahead=False)
    assert all(variant.is_compiled for variant in kernel.variants)
