"""wgmma, clusters, multicast and reductions against NumPy written for the test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ladder.emulator import Fault, run
from ladder.emulator.mutate import mutants

_SPEC = importlib.util.spec_from_file_location(
    "emulator_probes_hopper", Path(__file__).with_name("probes_hopper.py")
)
probes = importlib.util.module_from_spec(_SPEC)
sys.modules["emulator_probes_hopper"] = probes
_SPEC.loader.exec_module(probes)

SCHEDULES = [("random", 0), ("random", 1), ("eager", 0), ("lazy", 0)]


@pytest.mark.parametrize("registers", [True, False], ids=["RS", "SS"])
@pytest.mark.parametrize("swizzle", probes.ROWS)
@pytest.mark.parametrize("kind", probes.WGMMA)
def test_warpgroup_products(lower, kind, swizzle, registers):
    arguments = probes.operands(kind, swizzle, np.random.default_rng(0))
    listing = lower(probes.products(kind, swizzle, registers=registers)())
    a, b = (probes.numbers(kind, arguments[name]) for name in "AB")
    d = a @ b.T
    want = np.zeros_like(arguments["O"])
    for thread in range(128):
        warp, g, t = thread // 32, thread % 32 // 4, thread % 4
        for i in range(probes.COLUMNS // 2):
            row, column = 16 * warp + g + 8 * (i >> 1 & 1), 8 * (i // 4) + 2 * t + (i & 1)
            value = d[row, column] + i + thread % 3
            want[thread, i] = np.int64(value).astype(want.dtype) if kind in ("s8", "b1") else value
    for schedule, seed in SCHEDULES[1:]:
        run(listing, arguments, (1, 1, 1), 128, schedule=schedule, seed=seed)
        np.testing.assert_array_equal(arguments["O"], want)


def test_neighbours_in_a_cluster(lower):
    listing = lower(probes.neighbours())
    tid = np.arange(64)
    for schedule, seed in SCHEDULES:
        o = np.zeros((4, 64, 4), np.uint32)
        run(listing, {"O": o}, (4, 1, 1), 64, schedule=schedule, seed=seed, cluster=(2, 1, 1))
        for bx in range(4):
            peer = bx ^ 1
            np.testing.assert_array_equal(o[bx, :, 0], tid + 1000 * peer + 100000 * (peer % 2))
            np.testing.assert_array_equal(o[bx, :, 1], tid + 1000 * bx + 100000 * (bx % 2))
            np.testing.assert_array_equal(o[bx, :, 2], tid * 3)
            np.testing.assert_array_equal(o[bx, :, 3], np.where(tid < 4, 16, 0))


def test_multicast_reaches_both(lower):
    arguments = probes.multicast_arguments(np.random.default_rng(1))
    listing = lower(probes.multicast())
    x = arguments["X_map"].array
    rows, columns = np.arange(64)[:, None], np.arange(64)
    place = rows * 64 + ((columns // 8) ^ (rows % 8)) * 8 + columns % 8
    for schedule, seed in SCHEDULES:
        arguments["O"][:] = 0
        run(listing, arguments, (2, 1, 1), 128, schedule=schedule, seed=seed, cluster=(2, 1, 1))
        for rank in range(2):
            np.testing.assert_array_equal(arguments["O"][rank][place], x)


def dropped_unseen(listing, arguments, grid, threads):
    """Texts of the instructions that may be dropped from a kernel of pairs without fault or change."""
    good = {**arguments(), "O": np.zeros_like(arguments()["O"])}
    run(listing, good, grid, threads, cluster=(2, 1, 1))
    unseen = []
    for mutant in mutants(listing):
        given = arguments()
        try:
            run(mutant.listing, given, grid, threads, cluster=(2, 1, 1))
        except Fault:
            continue
        if np.array_equal(good["O"], given["O"]):
            unseen.append(mutant.text)
    return unseen


def test_what_may_be_dropped_between_neighbours(lower):
    """The initialisation fence: cluster_sync releases, and a proxy fence follows before the first copy. The CTA barrier: every
    warp has waited for the stores itself."""
    arguments = lambda: {"O": np.zeros((4, 64, 4), np.uint32)}  # noqa: E731
    unseen = dropped_unseen(lower(probes.neighbours()), arguments, (4, 1, 1), 64)
    assert unseen == ["fence.mbarrier_init.release.cluster", "cuda.cta_sync"]


def test_what_may_be_dropped_from_a_multicast(lower):
    """The last barrier: each CTA waits for both halves before it ends, and nobody reads its memory."""
    arguments = lambda: probes.multicast_arguments(np.random.default_rng(1))  # noqa: E731
    unseen = dropped_unseen(lower(probes.multicast()), arguments, (2, 1, 1), 128)
    assert unseen == ["cuda.cluster_sync"]


def test_reductions_add_up(lower):
    listing = lower(probes.reductions())
    for schedule, seed in SCHEDULES:
        c, h, n = (
            np.zeros((32, 4), np.float32),
            np.zeros((32, 8), np.float16),
            np.zeros(4, np.uint32),
        )
        run(listing, {"C": c, "H": h, "N": n}, (8, 1, 1), 32, schedule=schedule, seed=seed)
        np.testing.assert_array_equal(c, 8.0 * (np.arange(32)[:, None] + np.arange(4)))
        np.testing.assert_array_equal(h, np.tile([4.0, 8.0], (32, 4)))
        assert n[:3].tolist() == [256, 255, 0]
