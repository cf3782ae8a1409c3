"""Candidates: what is tried, what is refused, and that nothing is lost between."""

from __future__ import annotations

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Tiling, choose_packing
from ladder.scheduler.candidates import arrangements, default_access, enumerate_plans

H200 = devices["h200"]
OP = matmul(None, 1024, 1024, activation="float16", weight=types["int4"].grouped(128))
PACKING = choose_packing(OP, H200.features)


def test_skinny_only_where_one_cta_covers_all_m():
    for most, families in ((8, {"skinny", "ring"}), (16, {"skinny", "ring"}), (17, {"ring"})):
        assert {family for family, _, _ in arrangements((0, most))} == families
    assert {family for family, _, _ in arrangements((0, None))} == {"ring"}
    tokens = {t.tokens for family, t, _ in arrangements((0, 9)) if family == "skinny"}
    assert tokens == {16}


def test_arrangements_are_distinct():
    found = list(arrangements((0, 8)))
    assert len(set(found)) == len(found)


def test_every_arrangement_is_legal_or_rejected_with_a_reason():
    found = enumerate_plans(OP, H200, PACKING, (0, 8), {"zero": "sums"})
    assert len(found.legal) + len(found.rejected) == len(list(arrangements((0, 8))))
    assert found.rejected
    assert all(r.reason and r.plan for r in found.rejected)
    assert str(found.rejected[0]) == f"{found.rejected[0].plan}: {found.rejected[0].reason}"
    assert all(not plan.check() for plan in found.legal)


def test_fixed_tiling_is_tried_once_a_family_and_depth():
    tiling = Tiling(4, 1, 1, 1, 1)
    found = enumerate_plans(
        OP, H200, PACKING, (0, 8), {"tiling": tiling, "depth": 3, "zero": "sums"}
    )
    assert [p.family for p in found.legal] == ["skinny", "ring"]


def test_both_places_of_zeros_are_tried_where_there_is_a_choice():
    wt = types["int4"].grouped(128, zero="integer")
    op = matmul(None, 1024, 1024, activation="float16", weight=wt)
    packing = choose_packing(op, H200.features)
    assert {p.zero for p in enumerate_plans(op, H200, packing, (0, 8), {}).legal} == {
        "sums",
        "register",
    }
    plain = matmul(None, 1024, 1024, activation="float16", weight="fp4_e2m1")
    packing = choose_packing(plain, H200.features)
    assert {p.zero for p in enumerate_plans(plain, H200, packing, (0, 8), {}).legal} == {"sums"}


def test_access_follows_alignment():
    assert default_access(1024, contiguous=True) == "vector"
    assert default_access(1023, contiguous=True) == "scalar"
    assert default_access(1024, contiguous=False) == "scalar"
