"""CTAs of a cluster that load their tokens for each other: the same sums, on every schedule, and a fault where a step is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.emulator import matrix
from ladder.emulator.matrix import Problem, schedules
from ladder.emulator.mutate import mutants
from ladder.scheduler import Plan, Tiling

W4 = ladder.types["int4"].grouped(128, zero="integer")
#: as many SMs as give each CTA several tiles of a small problem
FEW = replace(ladder.devices["h200"], sms=4)

#: what no schedule misses, and why nothing is missing without it
REDUNDANT = {
    "cuda.warp_sync": "lanes of the emulator meet again after a branch; PTX promises that for none, and .aligned wants all",
    "cuda.warp_sync in stage release": "all lanes of the warp met at a wgmma after they read the slot",
    "barrier.cluster.wait.acquire.aligned": "the last one: the emulator keeps the shared memory of CTAs that ended",
    "wgmma.wait_group.sync.aligned in stage multiply": "registers of words are new ones in every turn of the emulator",
    "barrier.cta.sync.aligned in stage store": "the last of a tile: nothing is staged after it before the next tile's first",
}


def plan_of(weight: Any, shape: tuple[int, int, int], **decisions: Any) -> Plan:
    """A plan of pairs; 64 channels x 32 tokens a CTA, unless something else is asked for."""
    m, n, k = shape
    op = ladder.matmul(m, n, k, activation="float16", weight=weight, bias=True)
    fixed = {"tiling": Tiling(1, 4, 1, 1, 4), "depth": 3, "split": 1, "persistent": False}
    device = decisions.pop("device", "h200")
    return ladder.schedule(
        op, device, family="specialised", **{"multicast": 2, **fixed, **decisions}
    )


CASES: tuple[tuple[Any, tuple[int, int, int], dict[str, Any]], ...] = (
    ("float16", (40, 128, 512), {"depth": 2}),
    (W4, (40, 128, 512), {"depth": 2}),
    (W4, (70, 248, 1000), {"tiling": Tiling(1, 8, 1, 1, 4)}),
    ("float16", (33, 256, 1032), {"tiling": Tiling(2, 4, 1, 1, 2), "launch": "pdl", "depth": 4}),
    (ladder.types["nf4"].grouped(64), (64, 256, 520), {"multicast": 4}),
    ("float16", (70, 256, 512), {"device": FEW, "persistent": True}),
    (W4, (97, 384, 512), {"device": FEW, "persistent": True, "launch": "pdl", "depth": 2}),
)


@pytest.mark.parametrize("weight, shape, decisions", CASES)
def test_pairs_compute_what_single_ctas_do(
    weight: Any, shape: Any, decisions: dict[str, Any]
) -> None:
    plan = plan_of(weight, shape, **decisions)
    alone = replace(plan, multicast=1)
    assert alone.check() == ()
    problem = Problem.planned(plan, shape[0])
    assert matrix.relative(problem.reference, problem.exact) < 1e-3
    single = Problem.planned(alone, shape[0])
    wanted, _ = single.run(single.lowered.listing, "random", 0)
    for kind, seed in schedules(1):
        y, _ = problem.run(problem.lowered.listing, kind, seed)
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    "shape, decisions", [(shape, fixed) for _, shape, fixed in (CASES[0], CASES[5])]
)
def test_dropped_synchronisation_is_caught_or_redundant(
    shape: Any, decisions: dict[str, Any]
) -> None:
    problem = Problem.planned(plan_of("float16", shape, **decisions), shape[0])
    whole, _ = problem.run(problem.lowered.listing, "random", 0)
    missed, texts = set(), ""
    for mutant in mutants(problem.lowered.listing):
        verdicts = set(matrix._verdicts(problem, mutant.listing, whole))
        texts += mutant.dropped
        assert "unreached" not in verdicts, mutant.dropped
        if "unseen" in verdicts:
            missed.add(mutant.dropped.partition(" (")[0])
    for kind in (
        "multicast::cluster",
        "mbarrier.arrive.shared::cluster",
        "fence.mbarrier_init",
    ):
        assert kind in texts
    assert missed <= set(REDUNDANT), missed


def test_every_cta_of_the_cluster_frees_a_slot() -> None:
    plan = plan_of("float16", (40, 128, 512))
    lowered = lower(plan)
    assert lowered.launch.cluster == (2, 1, 1)
    (x_map,) = [p for p in lowered.parameters if p.role == "x_map"]
    assert x_map.box == (16, 64)  # half of the tokens
    assert "release.cluster.shared::cluster" not in lowered.source  # it would fence all memory
    assert "acquire.cluster.shared" not in lowered.source


@pytest.mark.parametrize("weight", ["float16", W4], ids=["float16", "int4"])
def test_large_kernels_multiply_without_spilling(weight: Any) -> None:
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    op = ladder.matmul(4096, 8192, 8192, activation="float16", weight=weight)
    plan: Any = ladder.schedule(op, "h200", multicast=2)
    assert (plan.multicast, plan.persistent, plan.tiling.tokens) == (2, True, 256)
    cubin = compile_kernel(lower(plan).source, "sm_90a")
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)


def test_pairs_are_for_those_who_ask_for_them() -> None:
    op = ladder.matmul(4096, 8192, 4096, activation="float16", weight=W4)
    assert ladder.schedule(op, "h200").multicast == 1
    pairs = ladder.schedule(op, "h200", multicast=2)
    assert (pairs.multicast, pairs.family) == (2, "specialised")
