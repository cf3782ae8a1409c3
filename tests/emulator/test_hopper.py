"""The Hopper path: TMA, mbarriers and wgmma in one kernel; right on every schedule, and no planted bug passes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from ladder.emulator import Fault, TensorMap, run
from ladder.emulator.mutate import mutants

_SPEC = importlib.util.spec_from_file_location(
    "hopper_kernel", Path(__file__).with_name("hopper.py")
)
hopper = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hopper)

M, N, K = 32, 64, 512
SCHEDULES = [("random", 0), ("random", 1), ("eager", 0), ("lazy", 0)]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, K)).astype(np.float16)
    codes = rng.integers(0, 16, (N, K))
    return x, hopper.pack(codes), x.astype(np.float64) @ (codes - 8).T


@pytest.fixture(scope="module")
def good(lower):
    return lower(hopper.build(M, N, K))


def call(listing, x, words, swizzle="128B", **options):
    c = np.full((M, N), np.nan, np.float32)
    x_map = TensorMap(x, (K, M), (2 * K,), (hopper.BK, hopper.BM), swizzle)
    grid = (N // hopper.BN, M // hopper.BM, 1)
    run(listing, {"X_map": x_map, "W": words, "C": c}, grid, hopper.THREADS, **options)
    return c


def close(c, exact):
    return np.allclose(c, exact, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("schedule, seed", [*SCHEDULES, *[("random", s) for s in range(2, 8)]])
def test_the_kernel_is_right_on_every_schedule(good, problem, schedule, seed):
    x, words, exact = problem
    assert close(call(good, x, words, schedule=schedule, seed=seed), exact)


def test_without_detection_the_numbers_are_the_same(good, problem):
    x, words, _ = problem
    np.testing.assert_array_equal(call(good, x, words, detect=False), call(good, x, words))


@pytest.mark.parametrize(
    "fault, kinds",
    [
        ("no proxy fence", {"proxy"}),
        ("no barrier after initialisation", {"barrier", "race"}),
        ("no full wait", {"uninitialised", "race"}),
        ("no empty wait", {"race", "barrier"}),
        ("wrong parity", {"race", "deadlock", "barrier"}),
        ("too many bytes expected", {"deadlock"}),
        ("too few arrivals", {"barrier", "race"}),
        ("too many arrivals", {"deadlock"}),
        ("no wgmma fence", {"hazard"}),
        ("no wgmma wait", {"hazard", "race"}),
    ],
)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_planted_bugs_are_caught_on_every_schedule(lower, problem, fault, kinds, schedule, seed):
    x, words, _ = problem
    listing = lower(hopper.build(M, N, K, fault))
    with pytest.raises(Fault) as caught:
        call(listing, x, words, schedule=schedule, seed=seed)
    assert caught.value.kind in kinds


@pytest.mark.parametrize("fault", ["wrong stride", "wrong layout"])
def test_wrong_descriptors_give_wrong_numbers_or_faults(lower, problem, fault):
    x, words, exact = problem
    listing = lower(hopper.build(M, N, K, fault))
    try:
        c = call(listing, x, words)
    except Fault:
        return
    assert not close(c, exact)


def test_a_tensor_map_without_the_swizzle_gives_wrong_numbers(good, problem):
    x, words, exact = problem
    assert not close(call(good, x, words, swizzle="none"), exact)


def test_no_dropped_synchronisation_passes(good, problem):
    x, words, exact = problem
    survivors = []
    for mutant in mutants(good):
        try:
            c = call(mutant.listing, x, words)
        except Fault:
            continue
        if close(c, exact):
            survivors.append(mutant.dropped)
    assert survivors == []
