"""Kernels whose threads have no register to spare: none of the scheduler's choice spills or has its products serialised.

Each stands for what once made ptxas run out of registers, and is the smallest of those that showed it.
"""

from __future__ import annotations

from typing import Any

import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.errors import ScheduleError
from ladder.scheduler import Tiling

#: name -> activation, (element, group, zero), (M, N, K), fixed decisions, what the plan has to be for the test to mean something
CASES: dict[str, tuple[str, tuple[str, int, Any], tuple[int, int, int], dict[str, Any], Any]] = {
    "numbers of tiles wait beside the products of whole tiles": (
        *("float16", ("int8", 64, None), (1500, 28672, 512)),
        {"family": "specialised", "split": 2, "persistent": True},
        lambda plan: plan.tiling.tokens == 256,
    ),
    "a loop of two blocks is unrolled": (
        *("float16", ("int4", 128, "integer"), (2048, 2048, 256), {}),
        lambda plan: plan.tiling.tokens == 256 and plan.packing.geometry.blocks == 2,
    ),
    "a share of K may be empty, for all that the compiler knows": (
        *("float16", ("int4", 128, "integer"), (65, 2056, 640)),
        {"family": "specialised", "split": 2, "tiling": Tiling(1, 4, 1, 1, 4)},
        lambda plan: plan.packing.geometry.blocks % 2 == 1,
    ),
    "scales and zero points change within a block": (
        *("bfloat16", ("int3", 64, "integer"), (4096, 8192, 8192), {}),
        lambda plan: plan.tiling.tokens == 256 and plan.zero == "register",
    ),
    "registers of codes would be scaled by several numbers": (
        *("float16", ("int5", 128, None), (1024, 8192, 8192), {}),
        lambda plan: plan.tiling.tokens == 256 and plan.persistent and plan.scale == "register",
    ),
}


def operator(activation: str, weight: tuple[str, int, Any], shape: tuple[int, int, int]) -> Any:
    element, group, zero = weight
    m, n, k = shape
    grouped = ladder.types[element].grouped(group, scale="float16", zero=zero)
    return ladder.matmul(m, n, k, activation=activation, weight=grouped, out=activation)


@pytest.mark.parametrize("name", CASES)
def test_nothing_spills_where(name: str) -> None:
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    activation, weight, shape, fixed, is_the_case = CASES[name]
    plan: Any = ladder.schedule(operator(activation, weight, shape), "h200", **fixed)
    assert is_the_case(plan), plan.brief
    cubin = compile_kernel(lower(plan).source, "sm_90a")
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)


def test_shared_tiles_of_a_persistent_kernel_have_two_blocks_for_each_cta() -> None:
    fixed: dict[str, Any] = {"family": "specialised", "split": 2, "persistent": True}
    with pytest.raises(ScheduleError, match="less than two each"):
        ladder.schedule(operator("float16", ("uint5", 128, "integer"), (1500, 28672, 256)), **fixed)


@pytest.mark.parametrize("group, tokens", [(128, 256), (64, 128)])
def test_plans_that_would_spill_are_not_chosen(group: int, tokens: int) -> None:
    """bfloat16 and 5 bits without zero points: a second group in a block is one register too many for 256 tokens."""
    plan: Any = ladder.schedule(operator("bfloat16", ("int5", group, None), (4096, 8192, 8192)))
    assert (plan.family, plan.tiling.tokens) == ("specialised", tokens)


@pytest.mark.parametrize("access, row_tiles, warps_k", [("vector", 1, 8), ("column", 3, 4)])
def test_occupancy_is_estimated_with_the_registers_that_the_compiler_takes(
    access: str, row_tiles: int, warps_k: int
) -> None:
    """A short loop whose turns become one, and columns: with too low an estimate the search saw CTAs beside each other that were not."""
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    op = operator("float16", ("int4", 128, "integer"), (1, 6144, 4096))
    tiling = Tiling(warps_k, 1, 1, row_tiles, 1)
    fixed = {"family": "skinny", "zero": "sums", "access": access, "tiling": tiling}
    plan: Any = ladder.schedule(op, "h200", depth=3 if access == "vector" else 2, **fixed)
    cubin = compile_kernel(lower(plan).source, "sm_90a")
    assert abs(cubin.registers - plan.registers) <= 10
