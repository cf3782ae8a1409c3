"""Kernels of the specialised family with an instruction left out or changed: caught, or shown to be of no use there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from ladder.emulator import Fault, TensorMap, matrix
from ladder.emulator.matrix import Problem
from ladder.graph import matmul
from ladder.registry import types
from ladder.scheduler import Tiling, schedule

W4 = types["int4"].grouped(128)
SCHEDULES = (("random", 0), ("eager", 0), ("lazy", 0))

#: what no schedule misses, and why nothing is missing without it
REDUNDANT = {
    "fence.proxy.async.shared::cta in stage barriers": (
        "the one after the rows that no copy brings are cleared comes later and before any copy; launches that clear none need it"
    ),
    "cuda.warp_sync": (
        "of the load warp before the cluster's barriers: lanes of the emulator meet again after a branch, PTX promises that for"
        " none, and .aligned wants all"
    ),
    "cuda.warp_sync in stage release": (
        "all lanes of the warp met at a wgmma (.sync.aligned) after they read the slot, and a read that came before needs no"
        " fence against a later write"
    ),
    "barrier.cluster.wait.acquire.aligned": (
        "the load warp's second one: it only exits afterwards, and shared memory stays while other warps of the CTA run"
    ),
}


def problem_of(m: int = 9, n: int = 64, k: int = 1024, **decisions: Any) -> Problem:
    op = matmul(m, n, k, activation="float16", weight=W4)
    fixed = {"split": 2, "tiling": Tiling(1, 4, 1, 1, 2), "depth": 2, **decisions}
    return Problem.planned(schedule(op, "h200", family="specialised", **fixed), m)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of()


@pytest.mark.parametrize("family", ["specialised", "scaled"])
def test_dropped_synchronisation_is_caught_or_redundant(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(matrix.DEEP, family, (9, 64, 768))
    monkeypatch.setitem(matrix.GROUPS, family, (128 if family == "scaled" else 768,))
    verdicts = list(matrix.drop(family))
    texts = " ".join(verdict.instruction for verdict in verdicts)
    kinds = [
        "mbarrier.init",
        "mbarrier.arrive.expect_tx",
        "mbarrier.arrive.shared",
        "mbarrier_wait",
    ]
    kinds += ["fence.proxy.async", "cp.async.bulk.shared", "cp.async.bulk.tensor", "wgmma.fence"]
    kinds += ["wgmma.commit_group", "wgmma.wait_group", "cuda.cta_sync", "barrier.cta.sync"]
    kinds += ["barrier.cluster.arrive", "barrier.cluster.wait"] if family == "scaled" else []
    assert all(kind in texts for kind in kinds)
    missed = [v.instruction.partition(" (")[0] for v in verdicts if "unseen" in v.verdicts]
    assert not any("unreached" in v.verdicts for v in verdicts)
    # each at one place only: its twins elsewhere are caught
    assert len(missed) == len(set(missed))
    assert set(missed) <= set(REDUNDANT), missed


def statements(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        yield node
        for child in node:
            yield from statements(child)


def changed(problem: Problem, change: Callable[[Any, Any], int]) -> Any:
    """A copy of the listing after a change, which says how many places it found."""
    listing = copy.deepcopy(dict(problem.lowered.listing))
    assert change(listing["body"], listing["opcodes"]) > 0, "nothing was changed"
    return listing


def caught(problem: Problem, listing: Any) -> set[str]:
    """What the schedules make of a faulty listing: kinds of faults, or "wrong"; an unseen one fails the test."""
    found = set()
    for name, seed in SCHEDULES:
        try:
            y, _ = problem.run(listing, name, seed)
        except Fault as fault:
            found.add(fault.kind)
            continue
        assert not np.array_equal(y, problem.reference), (name, seed)
        found.add("wrong")
    return found


def test_the_kernel_itself_is_right_on_every_schedule(problem: Problem) -> None:
    for name, seed in (*SCHEDULES, ("random", 1), ("random", 2)):
        y, _ = problem.run(problem.lowered.listing, name, seed)
        np.testing.assert_array_equal(y, problem.reference)


def waits(body: Any) -> tuple[list[Any], list[Any]]:
    """Of the load warp for an empty slot, and of the readers for a full one: in a turn of several blocks, and in one."""
    load, *readers = [c for c in statements(body) if c[:2] == ["call", "cuda.mbarrier_wait"]]
    assert len(readers) == 2
    return [load], readers


@pytest.mark.parametrize("place", [0, 1], ids=["load warp", "readers"])
def test_a_wrong_parity_is_caught(problem: Problem, place: int) -> None:
    """Of the phase before: the load warp overwrites what is read, readers read what is not there."""

    def flip(body: Any, _: Any) -> int:
        found = waits(body)[place]
        for call in found:
            call[4] = ["bitxor", call[4], 1]
        return len(found)

    faults = caught(problem, changed(problem, flip))
    assert faults <= {"race", "deadlock", "barrier", "uninitialised"}


def operands(body: Any, opcodes: Any, text: str) -> list[Any]:
    """Operands of every instruction of that text."""
    return [
        node[2]
        for node in statements(body)
        if node and node[0] == "ptx" and opcodes[node[1]]["text"].startswith(text)
    ]


@pytest.mark.parametrize("more", [-16, 16])
def test_wrong_bytes_are_caught(problem: Problem, more: int) -> None:
    def change(body: Any, opcodes: Any) -> int:
        found = operands(body, opcodes, "mbarrier.arrive.expect_tx")
        for given in found:
            given[1] = ["int", given[1][1] + more, "uint32"]
        return len(found)

    assert caught(problem, changed(problem, change)) <= {
        "deadlock",
        "race",
        "uninitialised",
        "barrier",
    }


@pytest.mark.parametrize("arrivals", [1, 3, 5])
def test_a_wrong_number_of_arrivals_is_caught(problem: Problem, arrivals: int) -> None:
    """Four warps free a slot; fewer free it too early, more never do."""

    def change(body: Any, opcodes: Any) -> int:
        found = [g for g in operands(body, opcodes, "mbarrier.init") if g[1][1] == 4]
        for given in found:
            given[1] = ["int", arrivals, "uint32"]
        return len(found)

    assert caught(problem, changed(problem, change)) <= {"deadlock", "race", "barrier"}


@pytest.mark.parametrize("text, place", [("cp.async.bulk.shared", 2), ("cp.async.bulk.tensor", 3)])
def test_a_copy_of_the_wrong_block_gives_wrong_numbers(
    problem: Problem, text: str, place: int
) -> None:
    """Weights of fewer bytes than are waited for hang; activations of other columns are other numbers."""

    def change(body: Any, opcodes: Any) -> int:
        found = operands(body, opcodes, text)
        if place == 2:
            found[0][place] = ["int", 16, "uint32"]
        else:
            found[0][2] = ["add", found[0][2], 16]
        return len(found)

    assert caught(problem, changed(problem, change)) <= {"deadlock", "wrong"}


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B"])
def test_a_map_with_another_swizzle_gives_wrong_numbers(
    problem: Problem, swizzle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(array: Any, shape: Any, strides: Any, box: Any, _: str) -> TensorMap:
        return TensorMap(array, shape, strides, box, swizzle)

    monkeypatch.setattr(matrix, "TensorMap", mapped)
    if swizzle == "none":
        y, _ = problem.run(problem.lowered.listing, "random", 0)
        assert matrix.relative(y, problem.reference) > 0.1
    else:  # its rows are shorter than the boxes
        with pytest.raises(Fault, match="swizzle"):
            problem.run(problem.lowered.listing, "random", 0)


def test_a_missing_proxy_fence_is_caught_on_every_schedule(problem: Problem) -> None:
    def drop(body: Any, opcodes: Any) -> int:
        found = 0
        for node in statements(body):
            if node and node[0] == "ptx" and opcodes[node[1]]["text"].startswith("fence.proxy"):
                node[:] = ["dropped", "fence"]
                found += 1
        return found

    assert caught(problem, changed(problem, drop)) == {"proxy"}
