"""Candidates: what is tried, what is refused, and that nothing is lost between."""

from __future__ import annotations

from math import prod

import pytest

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Tiling, choose_packing
from ladder.scheduler.candidates import (
    SPECIALISED_SHAPES,
    SPECIALISED_SPLITS,
    WARPGROUP_DEPTHS,
    WARPGROUP_SHAPES,
    WARPGROUP_WARPS_K,
    arrangements,
    default_access,
    enumerate_plans,
)

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
    blocks = PACKING.geometry.blocks
    # a warp's own ring has no more slots than blocks to put there
    arranged = [
        (family, tiling, depth)
        for family, tiling, depth in arrangements((0, 8))
        if family != "skinny" or depth <= max(2, -(-blocks // tiling.warps_k))
    ]
    assert len(arranged) < len(list(arrangements((0, 8))))
    # rings that are deep enough are tried with lookahead, too; warpgroups walk with lookahead only
    ahead = [depth for family, _, depth in arranged if family == "ring" and depth >= 3]
    # CTAs of more than 16 tokens would be mostly empty for M up to 8
    narrow = [(n, tiles) for n, tiles in WARPGROUP_SHAPES if tiles <= 2]
    assert narrow and all(tiling.tokens <= 16 for _, tiling, _ in arranged)
    warpgroups = prod(map(len, (narrow, WARPGROUP_WARPS_K, WARPGROUP_DEPTHS)))
    specialised = [p for p in found.legal if p.family == "specialised"]
    refused = [r for r in found.rejected if r.plan.startswith("specialised")]
    others = len(found.legal) + len(found.rejected) - len(specialised) - len(refused)
    assert others == len(arranged) + len(ahead) + warpgroups
    # rings that fill half an SM and a whole one
    clusters = [
        (shape, split)
        for shape in SPECIALISED_SHAPES
        for split in SPECIALISED_SPLITS
        if shape[2] <= 2 and shape[2] % split == 0
    ]
    assert len(clusters) <= len(specialised) + len(refused) <= 2 * len(clusters)
    tried = {
        ((p.tiling.warps_k, p.tiling.warps_n, p.tiling.token_tiles), p.split) for p in specialised
    }
    assert tried <= set(clusters)
    assert len(tried) > len(clusters) / 2
    assert len({plan.brief for plan in found.legal}) == len(found.legal)
    assert found.rejected
    assert all(r.reason and r.plan for r in found.rejected)
    assert str(found.rejected[0]) == f"{found.rejected[0].plan}: {found.rejected[0].reason}"
    assert all(not plan.check() for plan in found.legal)


def tried(device, op=OP, **fixed) -> tuple[list[tuple[str, str, bool]], list[str]]:
    """(family, product, lookahead) of the legal plans, and the refused ones in words."""
    packing = choose_packing(op, device.features)
    found = enumerate_plans(op, device, packing, (0, 8), fixed)
    return [(p.family, p.compute, p.lookahead) for p in found.legal], [
        refused.plan for refused in found.rejected
    ]


def test_lookahead_of_mma_is_not_tried_over_long_atoms():
    one_bit = matmul(8, 1024, 1024, activation="float16", weight=types["int1"].grouped(128))
    legal = tried(H200, one_bit, compute="mma")[0]
    assert legal and not any(ahead for _, _, ahead in legal)


def test_fixed_tiling_is_tried_once_a_family_product_and_walk():
    fixed = {"depth": 3, "zero": "register"}
    legal, refused = tried(H200, tiling=Tiling(2, 1, 1, 1, 2), **fixed)
    assert legal == [("skinny", "mma", False), ("ring", "mma", False), ("ring", "mma", True)]
    # by warpgroups, and by those that a warp loads for: alone, and as a cluster of two
    assert len(refused) == 3 and all("wgmma products" in plan for plan in refused)
    legal, refused = tried(H200, tiling=Tiling(2, 4, 1, 1, 2), **{**fixed, "depth": 4})
    assert legal == [
        ("ring", "mma", False),
        ("ring", "mma", True),
        ("ring", "wgmma", True),
        *[("specialised", "wgmma", False)] * 2,
    ]
    assert len(refused) == 1 and refused[0].startswith("skinny")


def test_fixed_product_is_kept():
    assert {compute for _, compute, _ in tried(H200, compute="mma")[0]} == {"mma"}
    assert set(tried(H200, compute="wgmma")[0]) == {
        ("ring", "wgmma", True),
        ("specialised", "wgmma", False),
    }


def test_lookahead_is_tried_where_warps_share_a_deep_ring_and_convert_in_registers():
    legal = set(tried(H200, compute="mma")[0])
    assert legal == {("skinny", "mma", False), ("ring", "mma", False), ("ring", "mma", True)}
    assert not any(ahead for _, _, ahead in tried(H200, compute="mma", depth=2)[0])
    assert not any(ahead for _, _, ahead in tried(H200, convert="shared")[0])
    assert not any(ahead for _, _, ahead in tried(H200, compute="mma", access="scalar")[0])
    # a hand that asks for it gets it
    assert all(ahead for _, _, ahead in tried(H200, lookahead=True)[0])


@pytest.mark.parametrize(
    "fixed",
    [
        {"family": "skinny"},
        {"convert": "shared"},
        {"lookahead": False, "access": "vector"},
        {"compute": "mma"},
    ],
)
def test_decisions_that_rule_warpgroups_out(fixed):
    legal, refused = tried(H200, **fixed)
    assert legal and not any(compute == "wgmma" for _, compute, _ in legal)
    assert not any("wgmma" in plan for plan in refused)


@pytest.mark.parametrize(
    "fixed", [{"lookahead": True}, {"access": "vector"}, {"access": "scalar"}, {"family": "ring"}]
)
def test_decisions_that_rule_the_specialised_family_out(fixed):
    legal, refused = tried(H200, **fixed)
    assert legal and not any(family == "specialised" for family, _, _ in legal)
    assert not any(plan.startswith("specialised") for plan in refused)


@pytest.mark.parametrize("zero", [None, "integer", "float", "rescaled"])
@pytest.mark.parametrize("name", ["int4", "nf4", "int8", "fp8_e4m3fn", "int3"])
def test_weights_with_any_zeros_are_scaled_in_registers(name, zero):
    """Where nothing comes off exactly in registers, too: scaling rounds anyway, and no sums are kept."""
    op = matmul(None, 1024, 1024, activation="float16", weight=types[name].grouped(128, zero=zero))
    packing = choose_packing(op, H200.features)
    found = enumerate_plans(op, H200, packing, (65, 128), {"family": "specialised"}).legal
    assert {plan.scale for plan in found} == {"register"}
    assert {plan.split for plan in found} == {1, 2, 4}


@pytest.mark.parametrize("fixed", [{"split": 0}, {"tiling": Tiling(1, 0, 1, 1, 0)}])
def test_what_makes_no_plan_is_refused_with_a_reason(fixed):
    found = enumerate_plans(OP, H200, PACKING, (65, 128), {"family": "specialised", **fixed})
    assert not found.legal
    assert all(
        "at least one CTA" in r.reason or "integers >= 1" in r.reason for r in found.rejected
    )


def test_a_ring_that_a_warp_fills_is_one_for_all_slices():
    found = enumerate_plans(OP, H200, PACKING, (65, 128), {"family": "specialised"}).legal
    assert {plan.load_ring.rings for plan in found} == {1}
    two = next(plan for plan in found if plan.tiling.warps_k == 2)
    assert two.load_ring.warps == two.tiling.threads // 32
    assert two.load_ring.shared_bytes == two.depth * two.load_ring.slot_bytes


@pytest.mark.parametrize("name", ["a100", "rtx3090", "rtx4090", "orin"])
def test_devices_without_wgmma_never_get_it(name):
    legal, refused = tried(devices[name])
    assert {compute for _, compute, _ in legal} == {"mma"}
    assert not any("wgmma" in plan for plan in refused)  # not even tried
    assert tried(devices[name], compute="wgmma")[0] == []


@pytest.mark.parametrize("name", ["int2", "uint2", "ternary", "uint1", "uint3"])
def test_warpgroups_are_tried_where_the_cheapest_program_has_two_classes(name):
    op = matmul(8, 1024, 1024, activation="float16", weight=types[name].grouped(128))
    assert choose_packing(op, H200.features).program.classes == 2
    assert ("ring", "wgmma", True) in tried(H200, op)[0]


def test_devices_with_wgmma_try_it():
    for name in ("h100", "h200"):
        assert ("ring", "wgmma", True) in tried(devices[name])[0]


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
    found = enumerate_plans(plain, H200, packing, (0, 8), {}).legal
    assert {p.zero for p in found if p.family != "specialised"} == {"sums"}


@pytest.mark.parametrize(
    "name, skinny, others",
    [
        ("nf3", {"shared", "register"}, {"register"}),
        ("nf4", {"shared"}, {"shared"}),
        ("int4", {"shared"}, {"shared"}),
    ],
)
def test_codes_are_looked_up_in_shared_memory_where_it_has_time_for_that(name, skinny, others):
    op = matmul(16, 1024, 1024, activation="float16", weight=types[name].grouped(128))
    packing = choose_packing(op, H200.features)
    legal = enumerate_plans(op, H200, packing, (16, 16), {}).legal
    assert {p.lookup for p in legal if p.family == "skinny"} == skinny
    assert {p.lookup for p in legal if p.family != "skinny"} == others
    tables = {(p.lookup, p.program.table is None) for p in legal}
    assert tables == {
        (lookup, name == "int4" or lookup == "register") for lookup in skinny | others
    }
    fixed = enumerate_plans(op, H200, packing, (16, 16), {"lookup": "shared"}).legal
    assert {p.lookup for p in fixed} == {"shared"}


def test_access_follows_alignment():
    def access(k: int, activation: str = "float16", *, contiguous: bool = True) -> str:
        op = matmul(1, 64, k, activation=activation, weight="int4")
        return default_access(op, contiguous=contiguous)

    assert access(1024) == access(8) == access(16, "int8") == "vector"
    assert access(1023) == access(8, "int8") == "scalar"
    assert access(1024, contiguous=False) == "scalar"
