"""Lowering: golden CUDA text, determinism, parameters and launch geometry."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import ladder
from ladder.codegen.kernel import CeilDiv
from ladder.codegen.lower import kernel_name, lower
from ladder.errors import PlanError
from ladder.scheduler import Plan, Tiling
from tests.codegen.conftest import body

INT4 = ladder.types["int4"].grouped(128, scale="float16", zero="integer")


def skinny(weight: ladder.GroupedType = INT4, **fixed: object) -> Plan:
    op = ladder.matmul(m=1, n=64, k=512, activation="float16", weight=weight)
    return ladder.schedule(op, "h200", tiling=Tiling(2, 1, 1, 1, 1), depth=3, **fixed)


def ring(weight: ladder.GroupedType = INT4, **fixed: object) -> Plan:
    op = ladder.matmul(m=None, n=64, k=512, activation="bfloat16", weight=weight, bias=True)
    plan = ladder.schedule(op, "h200", family="ring").plan_for(64)
    return plan.with_(
        **{"tiling": Tiling(1, 2, 1, 1, 2), "depth": 3, "m_range": (0, None), **fixed}
    )


def specialised(weight: ladder.GroupedType = INT4, **fixed: object) -> Plan:
    op = ladder.matmul(m=None, n=72, k=640, activation="float16", weight=weight, bias=True)
    decisions = {"tiling": Tiling(1, 4, 1, 1, 2), "depth": 3, "split": 2, **fixed}
    plans = ladder.schedule(op, "h200", family="specialised", m_range=(0, None), **decisions)
    return plans.plan_for(64)


def test_the_skinny_family_prints_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("cuda/skinny_int4.cu", body(lower(skinny()).source))


def test_the_ring_family_prints_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("cuda/ring_int4_bfloat16.cu", body(lower(ring()).source))


def test_a_codebook_prints_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("cuda/skinny_nf4.cu", body(lower(skinny(ladder.types["nf4"].grouped(64))).source))


def test_the_specialised_family_prints_as_agreed(golden: Callable[[str, str], None]) -> None:
    plan = specialised()
    golden("plans/specialised_int4.txt", f"{plan}\n")
    golden("cuda/specialised_int4.cu", body(lower(plan).source))


def test_a_specialised_kernel_takes_a_tensor_map_a_unit_and_a_cluster() -> None:
    lowered = lower(specialised())
    roles = {parameter.role: parameter for parameter in lowered.parameters}
    assert roles["x_map"].kind == "tensor map"
    assert roles["x_map"].box == (16, 64)
    assert roles["unit"].dtype == "float32"
    assert "y_pieces" in roles and "x" not in roles
    assert lowered.launch.cluster == (2, 1, 1)
    assert lower(specialised(split=1)).launch.cluster is None
    assert lowered.launch.block == (160, 1, 1)


def test_equal_plans_give_equal_source_and_listing() -> None:
    first, second = lower(skinny()), lower(Plan.from_json(skinny().to_json()))
    assert first.source == second.source
    assert first.listing == second.listing
    assert first == second


def test_the_name_tells_the_plan_apart() -> None:
    names = {kernel_name(plan) for plan in (skinny(), skinny(zero="sums"), ring())}
    assert len(names) == 3
    assert all(re.fullmatch(r"ladder_(skinny|ring)_b?float16_int4_[0-9a-f]{12}", n) for n in names)


def test_parameters_carry_their_roles_in_the_order_of_the_signature() -> None:
    lowered = lower(ring())
    signature = re.search(rf"{lowered.name}\((.*?)\)", lowered.source)
    assert signature is not None
    written = [part.split()[-1] for part in signature.group(1).split(",")]
    assert written == [parameter.name for parameter in lowered.parameters]
    roles = {parameter.role: parameter for parameter in lowered.parameters}
    assert set(roles) == {
        *("x", "weight", "scales", "zeros", "bias", "y"),
        *("m", "x_stride_m", "y_stride_m"),
    }
    assert roles["x"].dtype == "bfloat16"
    assert roles["scales"].dtype == "float16"


def test_a_lookup_table_is_an_argument() -> None:
    roles = [p.role for p in lower(skinny(ladder.types["nf4"].grouped(64))).parameters]
    assert "table" in roles


def test_a_lookup_table_is_copied_before_the_kernel_before_has_ended() -> None:
    text = body(lower(skinny(ladder.types["nf4"].grouped(64), launch="pdl")).source)
    wait = text.index("griddepcontrol_wait(")
    assert "table_ptr[" in text[:wait]
    assert "table_ptr[" not in text[wait:]
    assert "cta_sync" not in text[:wait]  # that of the table, which all warps read after it


def test_codes_that_are_looked_up_in_registers_need_no_table() -> None:
    nf3 = ladder.types["nf3"].grouped(128)
    shared, alone = (skinny(nf3, lookup=lookup) for lookup in ("shared", "register"))
    assert "table_ptr[" in body(lower(shared).source)
    assert "table_ptr[" not in body(lower(alone).source)
    assert shared.shared_bytes - alone.shared_bytes == shared.program.table.nbytes
    assert shared.packing == alone.packing


def test_the_grid_follows_m_only_where_m_may_exceed_a_tile() -> None:
    assert lower(skinny()).launch.grid == (4, 1, 1)
    assert lower(ring()).launch.grid == (2, CeilDiv(16), 1)


def test_shared_memory_is_what_the_plan_says() -> None:
    plan = ring()
    assert lower(plan).launch.shared_bytes == plan.shared_bytes
    assert lower(replace(plan, depth=4)).launch.shared_bytes > plan.shared_bytes


def test_an_illegal_plan_is_refused_before_tvm_sees_it() -> None:
    with pytest.raises(PlanError):
        lower(replace(skinny(), depth=1))


@pytest.mark.parametrize("access", ["vector", "scalar"])
@pytest.mark.parametrize("make", [skinny, ring])
def test_programmatic_launch_waits_before_all_but_constants(
    make: Callable[..., Plan], access: str
) -> None:
    text = body(lower(make(access=access, launch="pdl")).source)
    wait = text.index("griddepcontrol_wait(")
    before = text[text.index("griddepcontrol_launch_dependents(") : wait]
    after = text[wait:]
    assert "weight_ptr" in before
    assert "x_ptr" not in before and "y_ptr" not in before
    assert "x_ptr" in after and "y_ptr" in after
    assert "griddepcontrol" not in body(lower(make(access=access)).source)
