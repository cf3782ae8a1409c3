"""The explanation: all parts, the arithmetic, the refusals, and plans changed by hand."""

from __future__ import annotations

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, Tiling, schedule

INT4 = types["int4"]
W4 = INT4.grouped(128, zero="integer")


def section(text: str, title: str) -> str:
    """Lines of one part."""
    start = text.index(f"\n{title}\n")
    return text[start:].split("\n\n", maxsplit=1)[0]


def explain(weight=W4, m=1, n=8192, k=8192, activation="float16", **fixed) -> str:
    plan = schedule(matmul(m, n, k, activation=activation, weight=weight), **fixed)
    return plan.explain()


def test_whole_text_of_the_demo(golden):
    golden("plans/explain_int4_g128_m1.txt", explain() + "\n")


def test_every_part_is_there():
    text = explain()
    titles = (
        *("type", "device", "hint (Algorithm 1)", "packing", "decode", "choice"),
        *("cost", "candidates", "rejected"),
    )
    for title in titles:
        assert f"\n{title}\n" in text


def test_losslessness_is_told():
    assert "operand exact" in section(explain(), "decode")
    assert "operand rounds" in section(explain(types["nf4"].grouped(64)), "decode")


def test_odd_shapes_say_why_they_are_read_one_at_a_time():
    choice = section(explain(INT4.grouped(100), k=1000, n=33), "choice")
    assert "read one at a time: groups of 100 are padded to 128" in choice
    assert "N = 33 is padded to 64" in choice
    assert "K = 1000 is padded to 1280" in choice
    assert "K = 1001 is no multiple of 8" in section(explain(INT4, k=1001), "choice")
    assert "fixed by hand" in section(explain(INT4, access="scalar"), "choice")


def test_cost_is_the_plans_own():
    plan = schedule(matmul(1, 8192, 8192, activation="float16", weight=W4))
    cost = section(plan.explain(), "cost")
    assert all(line.strip() in cost for line in str(plan.cost()).splitlines())


def test_rejections_carry_numbers_and_an_example():
    rejected = section(explain(), "rejected")
    assert "B of a block on h200" in rejected
    assert "for example skinny" in rejected


def test_plan_changed_by_hand_is_compared_with_the_choice():
    op = matmul(1, 8192, 8192, activation="float16", weight=W4)
    chosen = schedule(op)
    changed = chosen.with_(tiling=Tiling(1, 1, 1, 1, 1), depth=2)
    text = section(changed.explain(), "candidates")
    assert f"this one {changed.cost().us:.2f} us" in text
    assert f"the search picks {chosen.cost().us:.2f} us" in text
    assert "the search picks" not in chosen.explain()


def test_plan_that_was_read_back_explains_itself_alike():
    plan = schedule(matmul(4, 100, 200, activation="bfloat16", weight="mxfp4"))
    assert Plan.from_json(plan.to_json()).explain() == plan.explain()


def test_zeros_tell_where_they_come_off():
    assert "exact fma a register" in section(explain(zero="register"), "choice")
    assert "activation sums, 1/2 more products" in section(
        explain(zero="sums", tiling=Tiling(8, 1, 1, 2, 1)), "choice"
    )


def test_reasons_of_warpgroups_and_lookahead():
    op = matmul(4096, 8192, 8192, activation="float16", weight=W4)
    plan = schedule(op, family="ring")
    text = plan.explain()
    assert f"four warps multiply 64 channels by all {plan.tiling.tokens} tokens at once" in text
    assert "first fragments are made beside the last products" in text
    text = plan.with_(compute="mma", lookahead=False).explain()
    assert "four warps multiply" not in text
    assert "first fragments" not in text


def test_room_for_the_next_launch_is_told_where_there_is_some():
    room = "an SM has room for a CTA of the next launch"
    assert room in section(explain(n=4096, k=4096, launch="pdl"), "choice")
    assert room not in explain(n=4096, k=4096)
    assert room not in explain(launch="pdl")
