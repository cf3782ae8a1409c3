"""Counts of one CTA beside the cost model: what the model says exactly has to be what the kernel does."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

import ladder
from ladder.emulator.beside_cost import beside_cost, record, table

CASES = [
    (1, "int4", {"family": "skinny"}),
    (8, "nf4", {"family": "skinny"}),
    (1, "nf3", {"family": "skinny", "lookup": "shared"}),
    (32, "int4", {"family": "ring", "compute": "mma", "convert": "register"}),
    (32, "int4", {"family": "ring", "compute": "mma", "convert": "shared"}),
    (32, "int4", {"family": "ring", "compute": "mma", "access": "scalar"}),
    (32, "int4", {"family": "ring", "compute": "wgmma"}),
    (32, "int4", {"family": "specialised", "split": 1}),
    (32, "int4", {"family": "specialised", "split": 2}),
]


@pytest.mark.parametrize("m, weight, decisions", CASES)
def test_the_cost_model_counts_what_the_kernel_does(m, weight, decisions):
    op = ladder.matmul(m, 256, 2048, activation="float16", weight=ladder.types[weight].grouped(128))
    plan = ladder.schedule(op, "h200", **decisions)
    lines = {line.quantity: line for line in beside_cost(plan)}
    assert lines["products"].emulated == lines["products"].model
    decode = lines["decode, alu lane instructions per 8 codes"]
    assert 0.9 < decode.emulated / decode.model < 1.5  # a lookup's addresses are not in the model
    if fma := lines.get("decode, fma lane instructions per 8 codes"):
        assert 0.9 < fma.emulated / fma.model < 1.3
    loaded = lines["loaded from L2, bytes"]
    turns = plan.packing.geometry.blocks / plan.tiling.warps_k
    # with lookahead the last block of a slice is copied again for every slot ahead
    ahead = (plan.depth - 1) / turns if plan.lookahead else 0
    if plan.packing.program.table is None and not decisions.get("access"):
        # every lane reads the unit of weights that are scaled in registers
        units = 2 * 4 * plan.tiling.threads if plan.scale == "register" else 0
        # a token alone is loaded one block ahead, the last time for nothing
        block = plan.value_bytes(plan.packing.geometry.block_k)
        beyond = plan.tiling.warps_k * block if plan.access == "column" else 0
        assert loaded.emulated == pytest.approx(loaded.model * (1 + ahead) + units + beyond)
    shared = lines["shared memory, bytes"]
    assert 0.85 < shared.emulated / shared.model < 1.9
    lsu = lines["lsu, lane instructions"]
    # bulk copies are instructions in the model only
    assert (0.7 if plan.load_warps else 1) < lsu.emulated / lsu.model < 3


def test_lookups_meet_in_no_bank():
    """Every lane has a column of its own: the conflicts are those of the same kernel that looks codes up in registers."""
    wt = ladder.types["nf3"].grouped(128)
    op = ladder.matmul(1, 256, 2048, activation="float16", weight=wt)
    shared = ladder.schedule(op, "h200", family="skinny", lookup="shared", access="vector")
    counts = []
    for plan in (shared, shared.with_(lookup="register")):
        lines = {line.quantity: line for line in beside_cost(plan)}
        counts.append(lines)
        assert (plan.program.table is None) == (plan.lookup == "register")
    conflicts = [lines["bank conflicts of shared load, wavefronts"].emulated for lines in counts]
    assert conflicts[0] == conflicts[1]
    loads = [lines["lsu, lane instructions"].emulated for lines in counts]
    assert loads[0] - loads[1] >= 3 * 256 * 2048 / 8 / (256 / shared.tiling.channels)


def test_lines_for_people_and_for_json():
    op = ladder.matmul(3, 40, 200, activation="bfloat16", weight=ladder.types["int4"], bias=True)
    lines = beside_cost(ladder.schedule(op, "h200"))
    assert table(lines)[0].startswith("one CTA")
    assert len(table(lines)) == len(record(lines)) + 1
    assert record(lines)[0]["quantity"] == "products"
