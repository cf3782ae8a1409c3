"""Each rule of a plan, broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.decode.program import Table
from ladder.errors import PlanError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Plan, Tiling, check, choose_packing, schedule, verify
from ladder.scheduler.epilogue import AddBias, default_epilogue
from ladder.scheduler.verify import FIRST, RULES

H200 = devices["h200"]
INT4 = types["int4"]
W4 = INT4.grouped(128, zero="integer")


def a_plan(m=2, n=512, k=1024, weight=W4, **decisions) -> Plan:
    activation = decisions.pop("activation", "float16")
    op = matmul(m, n, k, activation=activation, weight=weight)
    plan = schedule(op)
    assert isinstance(plan, Plan)
    return replace(plan, **decisions)


@pytest.mark.parametrize(
    "decisions, words",
    [
        ({"tiling": Tiling(0, 1, 1, 1, 1)}, "a tiling holds integers >= 1, not [0, 1, 1, 1, 1]"),
        ({"family": "wide"}, "family = 'wide' is not offered"),
        ({"convert": "global"}, "convert = 'global' is not offered"),
        ({"lookup": "memory"}, "lookup = 'memory' is not offered"),
        ({"lookup": "register"}, "no program looks int4 up in registers instead of shared memory"),
        ({"zero": "nowhere"}, "zero = 'nowhere' is not offered"),
        ({"access": "fast"}, "access = 'fast' is not offered"),
        ({"launch": "later"}, "launch = 'later' is not offered"),
        ({"compute": "fma"}, "compute = 'fma' is not offered"),
        ({"depth": 1}, "a ring of 1 slots cannot load ahead"),
        ({"family": "ring", "tiling": Tiling(8, 4, 2, 1, 1)}, "2048 threads > 1024 of a block"),
        ({"family": "skinny", "tiling": Tiling(4, 2, 1, 1, 1)}, "skinny rings belong to one warp"),
        ({"family": "skinny", "tiling": Tiling(4, 1, 1, 1, 3)}, "skinny takes at most 16 tokens"),
        (
            {"family": "ring", "tiling": Tiling(16, 2, 1, 1, 1), "depth": 2},
            "16 K slices of several",
        ),
        ({"m_range": (5, 3)}, "M from 5 to 3 is no range"),
        ({"m_range": (-1, 3)}, "M from -1 to 3 is no range"),
        ({"m_range": (3, 8)}, "M = 2 of the operator is outside 3 .. 8"),
        ({"family": "skinny", "m_range": (0, 9)}, "skinny covers M with one CTA of 8 tokens"),
        ({"family": "skinny", "m_range": (0, None)}, "skinny covers M with one CTA of 8 tokens"),
        ({"tiling": Tiling(8, 1, 1, 4, 1), "depth": 20}, "shared "),
        (
            {"family": "ring", "tiling": Tiling(1, 4, 2, 4, 8), "depth": 2},
            "registers a thread > 255",
        ),
        ({"family": "ring", "tiling": Tiling(2, 4, 2, 2, 8), "depth": 2}, "128 of 512 threads"),
    ],
)
def test_broken_rule_is_named(decisions, words):
    plan = a_plan(**decisions)
    assert any(words in text for text in check(plan)), check(plan)
    with pytest.raises(PlanError) as caught:
        verify(plan)
    assert words in caught.value.what
    assert caught.value.at == plan.title


def test_vector_access_needs_k_in_pieces_and_groups_without_padding():
    plan = a_plan(k=1001)
    assert plan.access == "scalar"
    assert "multiple of 8, not 1001" in check(replace(plan, access="vector"))[0]
    plan = a_plan(k=1000, weight=INT4.grouped(40))
    assert plan.access == "scalar"
    assert "40 is padded to 64" in check(replace(plan, access="vector"))[0]


def test_lookahead_needs_three_slots_and_registers():
    plan = a_plan(depth=3, lookahead=True)
    assert check(plan) == ()
    assert "2 are too few" in check(replace(plan, depth=2))[0]
    assert "convert is in shared" in check(replace(plan, convert="shared"))[0]


def test_lookahead_needs_a_block_for_each_slice():
    plan = a_plan(k=512, depth=3, lookahead=True, tiling=Tiling(4, 1, 1, 1, 1))
    assert plan.packing.geometry.blocks == 4
    assert check(plan) == ()
    more = replace(plan, tiling=Tiling(8, 1, 1, 1, 1))
    assert "a first block in each of 8 K slices, there are 4" in check(more)[0]
    assert check(replace(more, lookahead=False)) == ()


def by_warpgroups(weight=W4, **decisions) -> Plan:
    fixed = {"family": "ring", "compute": "wgmma", "lookahead": True, "zero": "register"}
    fixed |= {"scale": "accumulator", "split": 1}
    tiling = Tiling(1, 4, 1, 1, 8)
    return a_plan(
        m=64,
        weight=weight,
        **{**fixed, "tiling": tiling, "depth": 3, "access": "vector", **decisions},
    )


def test_warpgroups_of_every_size_are_legal():
    for tiling in (Tiling(1, 4, 1, 1, 2), Tiling(2, 4, 1, 1, 4), Tiling(1, 8, 1, 1, 16)):
        assert check(by_warpgroups(tiling=tiling)) == ()
    plan = by_warpgroups(access="scalar", launch="pdl")
    assert check(plan) == ()
    assert plan.instruction == "wgmma.m64n64k16.float16.rs"


@pytest.mark.parametrize(
    "tiling, words",
    [
        (Tiling(1, 2, 1, 1, 8), "not n2 m1 with 1"),
        (Tiling(1, 6, 1, 1, 8), "not n6 m1 with 1"),
        (Tiling(1, 4, 2, 1, 8), "not n4 m2 with 1"),
        (Tiling(1, 4, 1, 2, 8), "not n4 m1 with 2"),
    ],
)
def test_a_warpgroup_is_four_warps_along_the_channels(tiling, words):
    plan = by_warpgroups(tiling=tiling)
    assert f"a warpgroup is four warps along n with one row tile each, {words}" in check(plan)[0]
    assert check(replace(plan, compute="mma")) == ()


def test_wgmma_takes_the_tokens_that_the_device_has_it_for():
    (found,) = check(by_warpgroups(tiling=Tiling(1, 4, 1, 1, 3)))
    assert found == (
        "h200 has no instruction wgmma.m64n24k16.float16.rs"
        ' (compute="mma", or other token_tiles where the device has wgmma)'
    )
    most = check(by_warpgroups(tiling=Tiling(1, 4, 1, 1, 33)))
    assert any("wgmma takes at most 256 tokens, not 264" in text for text in most)


def test_wgmma_keeps_one_set_of_accumulators():
    plan = by_warpgroups(zero="sums")
    assert check(plan)[0] == (
        "wgmma keeps one set of accumulators, not 1 classes and 1 activation sums"
        ' (zero="register", or compute="mma")'
    )
    assert check(replace(plan, compute="mma")) == ()
    split = replace(plan.packing.program, affine=plan.packing.program.affine * 2)
    split = replace(split, step_class=(0, 1) * (split.steps // 2))
    assert split.classes == 2
    found = check(replace(plan, zero="register", packing=replace(plan.packing, program=split)))
    assert not any("classes" in text for text in found)  # another program reads the same words
    split = replace(split, table=Table((0,)))  # of programs with a table there is none
    plan = replace(plan, packing=replace(plan.packing, program=split))
    assert any("not 2 classes" in text for text in check(plan))


def test_wgmma_reads_tiles_of_64_k():
    # no type of the catalogue has such short blocks, so cut K by hand
    plan = by_warpgroups()
    packing = replace(plan.packing)
    vars(packing)["geometry"] = replace(packing.geometry, block_k=32)
    found = check(replace(plan, packing=packing))
    assert any("lie in tiles of 64 k, a block has 32" in text for text in found)


def test_wgmma_walks_with_lookahead_and_converts_in_registers():
    plan = by_warpgroups()
    assert check(replace(plan, lookahead=False)) == (
        "products of wgmma run ahead of the ring barrier (lookahead=True)",
    )
    assert "2 are too few" in check(replace(plan, depth=2))[0]
    assert "convert is in shared" in check(replace(plan, convert="shared"))[0]


@pytest.mark.parametrize("name", ["a100", "rtx3090", "rtx4090", "orin"])
def test_wgmma_is_refused_where_the_device_lacks_it(name):
    found = check(by_warpgroups(device=devices[name]))
    assert f"{name} has no instruction wgmma.m64n64k16.float16.rs" in found[0]


def test_packing_of_another_operator_or_type():
    plan = a_plan()
    other = choose_packing(matmul(1, 256, 1024, activation="float16", weight=INT4), H200.features)
    assert "the packing holds int4[256, 1024]" in check(replace(plan, packing=other))[0]
    bfloat = matmul(1, 512, 1024, activation="bfloat16", weight=plan.op.weight)
    wrong = replace(plan, packing=choose_packing(bfloat, H200.features))
    assert "weights decode to bfloat16, activations are float16" in check(wrong)[0]


def test_device_without_the_instruction_or_a_feature():
    plan = a_plan()
    less = tuple(i for i in H200.instruction_set if i.name != "mma.m16n8k16.float16")
    assert check(replace(plan, device=H200.with_(instruction_set=less))) == (
        "h200 has no instruction mma.m16n8k16.float16 (choose another activation type)",
    )
    a100 = devices["a100"]
    assert "a100 lacks pdl" in check(replace(plan, device=a100, launch="pdl"))[0]
    kept = tuple(i for i in a100.instruction_set if "cp.async" not in i.needs)
    old = a100.with_(features=a100.features - {"cp.async"}, instruction_set=kept)
    assert any("lacks cp.async" in text for text in check(replace(plan, device=old)))


def test_epilogue_holds_what_the_operator_asks_for_once():
    op = matmul(1, 64, 64, activation="float16", weight="nvfp4", bias=True)
    plan = schedule(op)
    assert [step.name for step in plan.epilogue] == ["global scale", "bias"]
    assert "the epilogue holds bias 0 times" in check(replace(plan, epilogue=plan.epilogue[:1]))[0]
    twice = (*default_epilogue(op, plan.packing), AddBias())
    assert "the epilogue holds bias 2 times" in check(replace(plan, epilogue=twice))[0]


def test_columns_that_are_steps_need_one_token_and_a_ring_of_its_own():
    plan = a_plan(m=1, family="skinny", access="column")
    assert check(plan) == ()
    for decisions in (
        {"m_range": (0, 2)},
        {"convert": "shared"},
        {"lookahead": True, "depth": 3},
        {"family": "ring", "tiling": Tiling(4, 2, 1, 1, 1)},
        {"tiling": Tiling(4, 1, 1, 1, 2)},
    ):
        assert "columns are the steps of one token" in check(replace(plan, **decisions))[0]
    assert (
        "K to be a multiple of 8, not 1001"
        in check(replace(a_plan(k=1001, m=1), access="column"))[0]
    )


def test_groups_of_a_long_block_do_not_fit_the_columns():
    weight = types["int1"].grouped(32) if "int1" in types else types["uint1"].grouped(32)
    plan = a_plan(m=1, weight=weight)
    assert plan.block_steps > 8
    assert plan.access == "vector"
    (problem,) = check(replace(plan, access="column"))
    assert "does not fit 8 columns" in problem


def test_zeros_that_registers_cannot_take_off_exactly():
    plan = a_plan(weight=INT4.grouped(128, zero="float"))
    assert plan.zero == "sums"
    assert "cannot be taken off exactly" in check(replace(plan, zero="register"))[0]


def test_all_broken_rules_are_named_at_once():
    plan = a_plan(tiling=Tiling(4, 2, 1, 1, 3), family="skinny")
    assert len(check(plan)) == 2


def test_legal_plan_breaks_none():
    assert check(a_plan()) == ()
    verify(a_plan())


def test_every_rule_says_what_it_asks_for():
    assert all(rule.__doc__ for rule in (*FIRST, *RULES))


def test_text_of_the_error_in_full():
    plan = a_plan(m=2, n=64, k=128, weight=INT4)
    with pytest.raises(PlanError) as caught:
        plan.with_(depth=1)
    assert str(caught.value) == (
        "a ring of 1 slots cannot load ahead\n"
        f"  at: {replace(plan, depth=1).title}\n"
        "  hint: depth >= 2"
    )


def test_more_rows_than_a_grid_covers_are_refused_before_a_launch():
    tiling = Tiling(1, 2, 1, 1, 2)
    fits = a_plan(family="ring", tiling=tiling, depth=2, m_range=(0, 65535 * 16))
    assert not check(fits)
    (problem,) = check(replace(fits, m_range=(0, 65535 * 16 + 1)))
    assert problem.startswith("M = 1048561 takes more than 65535 CTAs of 16 tokens")
    assert "at most 1048560 rows a launch" in problem
    # without an upper limit a plan is legal: what it is called with is checked then
    assert not check(replace(fits, m_range=(0, None)))


def test_a_type_of_one_value_is_not_multiplied_by_warpgroups():
    """ptxas would make its constant registers anew between products, and run those one by one."""
    op = matmul(m=512, n=256, k=1024, activation="float16", weight=types["signmag1"].grouped(128))
    plan = schedule(op, device="h200")
    assert plan.compute == "mma"
    assert any("decode to one value" in text for text in check(replace(plan, compute="wgmma")))
