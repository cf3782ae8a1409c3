"""Programmatic launch of kernels whose warps fill their own rings: every way to ask for blocks early, and to count their groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pytest
from numpy.typing import NDArray

import ladder
from ladder.codegen.lower import lower
from ladder.emulator import Fault
from ladder.emulator.matrix import Problem, relative
from ladder.emulator.mutate import mutants
from ladder.emulator.run import run
from ladder.emulator.translate import translate
from ladder.scheduler import Plan, Tiling
from ladder.scheduler.residency import early_blocks, grid_tiles, is_paced
from ladder.scheduler.walk import blocks_ahead, holds_slice
from tests.codegen.conftest import body

W4 = ladder.types["int4"].grouped(64, zero="integer")
#: a kernel is its plan but for the order of float32 sums, then rounded to float16
SAME = 2e-4
#: copies happen at once, when they are waited for, or at any time between
SCHEDULES = (("eager", 0), ("lazy", 0), ("random", 0))


@dataclass(frozen=True)
class Case:
    """A ring, and how it is to be filled; a CTA has two row tiles of 16 channels.

    Attributes:
        filling: blocks asked for before the wait and before the loop, whether one by one, and whether the ring holds its slice.
        ctas: CTAs of the launch.
    """

    filling: tuple[int, int, bool, bool]
    m: int = 1
    n: int = 72
    k: int = 1160
    slices: int = 2
    depth: int = 3
    access: str = "vector"
    sms: int = 4
    ctas: int = 3

    @property
    def plan(self) -> Plan:
        """Its plan."""
        op = ladder.matmul(
            *(self.m, self.n, self.k),
            activation="float16",
            weight=W4,
            out="float16",
            epilogue=("residual",),
        )
        return ladder.schedule(
            op,
            replace(ladder.devices["h200"], sms=self.sms),
            launch="pdl",
            family="skinny",
            tiling=Tiling(self.slices, 1, 1, 2, -(-self.m // 8)),
            access=self.access,
            depth=self.depth,
        )


#: 1160 columns are ten blocks, of which slices have as many; 1048 are nine
CASES: Mapping[str, Case] = MappingProxyType(
    {
        "room": Case((3, 3, True, True), k=648, sms=3),
        "room, repeated tiles": Case((2, 2, True, True), n=104, k=456, sms=5, ctas=5),
        "room, columns": Case((5, 5, True, True), n=104, depth=5, sms=5, ctas=5, access="column"),
        "room, empty slices": Case((1, 1, True, True), k=520, slices=8, sms=3),
        "held": Case((5, 5, False, True), depth=6),
        "held, uneven": Case((5, 5, False, True), k=1048, depth=5),
        "held, columns": Case((5, 5, False, True), depth=8, access="column"),
        "held, scalar": Case((5, 5, False, True), depth=5, access="scalar"),
        "held, one early": Case((1, 5, True, True), m=16, depth=5),
        "turning": Case((3, 3, False, False), depth=4),
        "turning, columns": Case((2, 2, False, False), access="column"),
        "turning, one by one": Case((2, 2, True, False), sms=1000),
        "turning, one early": Case((1, 3, False, False), m=16, depth=4),
        "turning, two slots": Case((1, 1, False, False), depth=2),
    }
)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_filling_is_right_whenever_copies_happen(case: Case) -> None:
    """y lies over the residual: a CTA that repeats a tile would read what another one has stored."""
    plan = case.plan
    filling = (early_blocks(plan), blocks_ahead(plan), is_paced(plan), holds_slice(plan))
    assert (filling, grid_tiles(plan)) == (case.filling, case.ctas)
    problem = Problem.planned(plan, case.m)
    kernel = translate(problem.lowered.listing)
    for schedule, seed in SCHEDULES:
        assert relative(in_place(problem, kernel, schedule, seed), problem.reference) <= SAME


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_of_the_kernel_before_is_touched_ahead_of_the_wait(case: Case) -> None:
    source = body(lower(case.plan).source)
    early, late = source[source.index("{") :].split("griddepcontrol_wait", maxsplit=1)
    assert "griddepcontrol_launch_dependents" in early
    assert "weight_ptr[" in early
    written = re.compile(r"\b(x|residual|y)_ptr\[")
    assert not written.search(early)
    assert {found[1] for found in written.finditer(late)} == {"x", "residual", "y"}


@pytest.mark.parametrize("name", ["room, columns", "held, columns", "turning, columns"])
def test_beside_a_token_in_registers_each_block_is_a_group(name: str) -> None:
    """So that the first one is waited for alone."""
    plan = CASES[name].plan
    before, _ = lower(plan).source.split("for (int turn = 0", maxsplit=1)
    assert before.count("cp_async_commit_group_async_commit_group();") == blocks_ahead(plan)


@pytest.mark.parametrize(
    "name, harmless",
    [
        # the wait between two blocks that are asked for one by one, and the two groups that it counts
        pytest.param("turning, one by one", 3, id="one by one"),
        pytest.param("held, columns", 0, id="columns"),
        pytest.param("turning, one early", 0, id="one early"),
    ],
)
def test_dropped_synchronisation_is_caught(name: str, harmless: int) -> None:
    """All but the waits that only pace, and the one for the end of copies, of which none is left."""
    case = CASES[name]
    problem = Problem.planned(case.plan, case.m)
    unseen = [
        mutant.text
        for mutant in mutants(problem.lowered.listing)
        if not _is_caught(problem, mutant.listing)
    ]
    assert unseen.count("cp.async.wait_group") == 1 + harmless // 2
    assert len(unseen) == 1 + harmless


def in_place(problem: Problem, listing: Any, schedule: str, seed: int) -> NDArray[Any]:
    """What a kernel makes of a residual that y lies over."""
    y = problem.values["residual"].copy()
    given = replace(problem, values={**problem.values, "residual": y})
    launch = problem.lowered.launch
    grid = launch.grid_for(len(y))
    run(listing, given.arguments(y), grid, launch.block, schedule=schedule, seed=seed)
    return y


def _is_caught(problem: Problem, listing: Any) -> bool:
    for schedule, seed in SCHEDULES:
        try:
            y = in_place(problem, listing, schedule, seed)
        except Fault:
            return True
        if not relative(y, problem.reference) <= SAME:
            return True
    return False
