"""8-bit activations: operator = plan = emulated kernel in every family, at odd shapes; integer sums are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladder
from ladder.codegen.lower import lower
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.emulator import translate
from ladder.emulator.matrix import Problem
from ladder.errors import LadderError, ScheduleError
from ladder.graph.draw import activations, row_scales
from ladder.runtime.error_bar import PROMISED, error_bar
from ladder.scheduler import Plan, Tiling, choose_packing
from ladder.scheduler.epilogue import default_epilogue
from ladder.scheduler.raster import group_of
from ladder.scheduler.tiling import TILE_TOKENS
from tests.codegen.conftest import Emulated

H200 = ladder.devices["h200"]

#: one type for each way to decode to bytes: by moves, by masks of two pieces, by tables, as it is
WEIGHTS = (
    *(("int8", name) for name in ("int1", "uint2", "int3", "int4", "bipolar4", "uint5", "int6")),
    *(("int8", name) for name in ("ternary", "signmag3", "uint7", "int8", "offset8")),
    *(("fp8_e4m3fn", name) for name in ("fp4_e2m1", "int4", "uint3", "fp6_e3m2", "fp8_e4m3fn")),
    *(("fp8_e5m2", name) for name in ("fp4_e2m1", "fp8_e5m2")),
)
SPECIALISED: dict[str, Any] = {"compute": "wgmma", "access": "tensor"}


def operands(op: ladder.MatMul, m: int, seed: int = 0) -> dict[str, Any]:
    """Weights, activations, scales of rows and bias, never zero throughout."""
    rng = np.random.default_rng([seed, m])
    weights = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
    bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
    return {
        "x": activations(op, rng, m),
        "weights": weights,
        "bias": bias,
        "x_scale": row_scales(op, rng, m),
    }


def relative(y: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """Relative error of the whole output; NaN where something was not written."""
    return float(np.linalg.norm(y.astype(np.float64) - exact) / np.linalg.norm(exact))


def check(emulated: Emulated, plans: Plan | ladder.PlanSet, m: int) -> NDArray[Any]:
    """The kernel against the operator and against the plan."""
    plan = plans if isinstance(plans, Plan) else plans.plan_for(m)
    given_ = operands(plan.op, m)
    y, wanted = emulated(plan, **given_), plan.run(**given_)
    exact = plan.op.reference(given_["x"], given_["weights"], given_["bias"], given_["x_scale"])
    assert relative(y, exact) <= error_bar(plan.op)
    # float32 totals are added in one order by both
    assert relative(y, wanted.astype(np.float64)) <= PROMISED
    return y


def specialised(
    op: ladder.MatMul, tiling: tuple[int, int, int], depth: int = 3, **more: Any
) -> Plan:
    """A plan by hand: (warps_k, warps_n, token tiles)."""
    packing = choose_packing(op, H200.features)
    warps_k, warps_n, tiles = tiling
    where = Tiling(warps_k, warps_n, 1, 1, tiles)
    made: dict[str, Any] = {**SPECIALISED, "epilogue": default_epilogue(op, packing), **more}
    plan = Plan(op, H200, packing, "specialised", where, depth, **made)
    plan.verify()
    return plan


def operator(
    activation: str, name: str, n: int, k: int, group: Any = "channel", **more: Any
) -> Any:
    wt: Any = ladder.types[name].grouped(group, scale="float32", zero=more.pop("zero", None))
    scaled = {"activation_scale": True, **more}
    return ladder.matmul(None, n, k, activation=activation, weight=wt, **scaled)


@pytest.mark.parametrize("activation, name", WEIGHTS)
def test_the_specialised_family_decodes_every_kind(
    emulated: Emulated, activation: str, name: str
) -> None:
    check(emulated, specialised(operator(activation, name, 72, 272), (1, 4, 4)), 21)


CUTS: tuple[tuple[tuple[int, int, int], dict[str, Any]], ...] = (
    ((1, 8, 32), {}),
    ((1, 8, 16), {"split": 2}),
    ((1, 8, 32), {"persistent": True}),
    ((1, 8, 16), {"persistent": True, "split": 2}),
    ((2, 4, 4), {"depth": 4}),
    ((1, 8, 8), {"launch": "pdl", "depth": 4}),
)


#: weights that are decoded in every cut; those read as they are, and floats, in every other one
@pytest.mark.parametrize(
    "activation, name, tiling, more",
    [
        *(("int8", "int4", *cut) for cut in CUTS),
        *(("int8", "int8", *cut) for cut in CUTS[1::2]),
        *(("fp8_e4m3fn", "fp4_e2m1", *cut) for cut in CUTS[::2]),
    ],
)
def test_the_specialised_family_splits_and_persists(
    emulated: Emulated,
    activation: str,
    name: str,
    tiling: tuple[int, int, int],
    more: dict[str, Any],
) -> None:
    check(emulated, specialised(operator(activation, name, 136, 1040), tiling, **more), 65)


@pytest.mark.parametrize(
    "activation, name, tiling, more",
    [
        ("int8", "int4", (1, 8, 32), {}),
        ("int8", "int8", (1, 8, 16), {"persistent": True}),
        ("fp8_e4m3fn", "fp4_e2m1", (1, 4, 4), {"launch": "pdl"}),
        ("int8", "int4", (2, 4, 4), {"depth": 4, "out": "float32"}),
        ("float16", "int4", (1, 8, 8), {"persistent": True, "scale": "register"}),
    ],
)
@pytest.mark.parametrize("n", [200, 456])
def test_activations_are_shared_by_pairs_of_ctas(
    emulated: Emulated, activation: str, name: str, tiling: Any, more: dict[str, Any], n: int
) -> None:
    """Pairs of channel tiles of 128 and of 64, the last of them partly empty."""
    decisions = {**more, "multicast": 2, "m_range": (tiling[2] * TILE_TOKENS, None)}
    op = operator(activation, name, n, 528, out=decisions.pop("out", "float16"), bias=True)
    m = 5 * tiling[2] * TILE_TOKENS // 4
    plan = specialised(op, tiling, **decisions)
    assert (plan.cluster, plan.channel_tiles % 2) == (2, 0)
    check(emulated, plan, m)


@pytest.mark.parametrize("persistent", [False, True])
def test_pairs_of_ctas_agree_on_every_schedule(persistent: bool) -> None:
    """Three revolutions of the ring, whose slots two CTAs fill and free together: no order of theirs is a race."""
    op = operator("int8", "int8", 200, 1536)
    plan = specialised(op, (1, 4, 4), multicast=2, m_range=(32, None), persistent=persistent)
    problem = Problem.planned(plan, 40)
    kernel = translate(problem.lowered.listing)
    for schedule, seed in (("eager", 0), ("lazy", 0), ("random", 0), ("random", 1)):
        y, _ = problem.run(kernel, schedule, seed)
        assert relative(y, problem.exact) <= PROMISED


def test_what_pairs_of_ctas_cannot_share_is_refused() -> None:
    op = operator("int8", "int4", 200, 528)
    for more, words in (
        ({"split": 2}, "shares its tokens or its K, not both"),
        ({"multicast": 8}, "4 channel tiles are no multiple of 8"),
        ({"m_range": (15, None)}, "M from 15 on does not fill boxes of 16 tokens"),
    ):
        decisions = {"multicast": 2, "m_range": (64, None), **more}
        with pytest.raises(LadderError, match=words):
            specialised(op, (1, 4, 4), **decisions)
    with pytest.raises(LadderError, match="8 tokens for each of 2 CTAs is no multiple of 8 rows"):
        specialised(op, (1, 4, 1), multicast=2, m_range=(64, None))


@pytest.mark.parametrize(
    "activation, name", [("int8", "int8"), ("fp8_e4m3fn", "fp8_e4m3fn"), ("int8", "int4")]
)
def test_tiles_in_groups_are_each_done_once(emulated: Emulated, activation: str, name: str) -> None:
    """Five token tiles: a group of four, and one that goes channel by channel."""
    op = operator(activation, name, 136, 272)
    plan = replace(specialised(op, (1, 4, 2)), device=replace(H200, sms=4), persistent=True)
    plan.verify()
    assert group_of(plan) == 4
    check(emulated, plan, 77)


@pytest.mark.parametrize("activation, name", [("int8", "int8"), ("int8", "int4")])
def test_many_tiles_of_any_number_spill_nothing(activation: str, name: str) -> None:
    """224 channel tiles: what is made of a tile's number does not wait in registers for the next."""
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    op = replace(operator(activation, name, 28672, 8192), m=4096)
    plan: Any = ladder.schedule(op, "h200")
    assert (plan.persistent, plan.split, group_of(plan)) == (True, 1, 4)
    cubin = compile_kernel(lower(plan).source, "sm_90a")
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)


@pytest.mark.parametrize("out", ["float16", "bfloat16", "float32"])
def test_outputs_of_every_type_with_a_bias(emulated: Emulated, out: str) -> None:
    op = operator("int8", "int4", 72, 272, out=out, bias=True)
    check(emulated, specialised(op, (1, 4, 4)), 21)


#: 77 tokens are for the specialised family, which decodes every kind above
@pytest.mark.parametrize(
    "activation, name, m",
    [
        *((*kind, m) for kind in WEIGHTS for m in (1, 16)),
        *((*kind, 77) for kind in WEIGHTS[::6]),
    ],
)
def test_what_the_search_chooses(emulated: Emulated, activation: str, name: str, m: int) -> None:
    op = operator(activation, name, 75, 333)
    check(emulated, ladder.schedule(replace(op, m=m), "h200"), m)


@pytest.mark.parametrize("group", [16, 32, 64, 100, 128, 192])
@pytest.mark.parametrize(
    "activation, name, decisions",
    [
        ("int8", "int4", {}),
        ("int8", "int8", {"family": "ring", "compute": "mma"}),
        ("int8", "int3", {"family": "ring", "compute": "wgmma"}),
        ("fp8_e4m3fn", "fp4_e2m1", {}),
    ],
)
def test_scales_that_change_along_k(
    emulated: Emulated, activation: str, name: str, decisions: dict[str, Any], group: int
) -> None:
    op = operator(activation, name, 72, 400, group)
    check(emulated, ladder.schedule(op, "h200", m_range=(21, 21), **decisions), 21)


@pytest.mark.parametrize(
    "name, zero", [("uint4", "integer"), ("uint4", "float"), ("int8", "rescaled")]
)
@pytest.mark.parametrize("m", [3, 40])
def test_zero_points_come_off_by_sums_of_activations(
    emulated: Emulated, name: str, zero: str, m: int
) -> None:
    op = operator("int8", name, 72, 272, 64, zero=zero)
    check(emulated, ladder.schedule(op, "h200", m_range=(m, m)), m)


@pytest.mark.parametrize("placement", ["register", "shared"])
@pytest.mark.parametrize("family", ["skinny", "ring"])
def test_weights_are_converted_in_either_place(
    emulated: Emulated, family: str, placement: str
) -> None:
    op = operator("int8", "int5", 72, 272)
    plan = ladder.schedule(op, "h200", m_range=(11, 11), family=family, placement=placement)
    check(emulated, plan, 11)


@pytest.mark.parametrize("device", ["a100", "rtx4090"])
def test_devices_with_mma_alone(emulated: Emulated, device: str) -> None:
    check(
        emulated, ladder.schedule(operator("int8", "int4", 72, 272), device, m_range=(21, 21)), 21
    )


def test_fp8_products_are_the_devices_own(emulated: Emulated) -> None:
    op = operator("fp8_e4m3fn", "fp4_e2m1", 72, 272)
    check(emulated, ladder.schedule(op, "rtx4090", m_range=(21, 21)), 21)
    with pytest.raises(ScheduleError, match=r"a100 has no instruction mma\.m16n8k32\.fp8_e4m3fn"):
        ladder.schedule(op, "a100", m_range=(21, 21))


def test_no_rows_and_one_row(emulated: Emulated) -> None:
    op = operator("int8", "int4", 40, 64)
    plans = ladder.schedule(op, "h200")
    assert emulated(plans.plan_for(1), **operands(op, 1)).shape == (1, 40)
    empty = operands(op, 0)
    assert emulated(plans.plan_for(0), **empty).shape == (0, 40)
    assert plans.run(**empty).shape == (0, 40)


@pytest.mark.parametrize("name", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("m", [8, 32])
def test_integer_products_are_exact_for_every_code(emulated: Emulated, name: str, m: int) -> None:
    """C09: int8 times 4 bits equals NumPy's integers, whatever the code; int4 is two's complement."""
    element = ladder.types[name]
    n, k = 32, 64
    codes = (np.arange(n * k) % (1 << element.bits)).reshape(n, k).astype(np.uint8)
    op = ladder.matmul(m, n, k, activation="int8", weight=element, out="float32")
    x = np.random.default_rng(0).integers(-128, 128, (m, k)).astype(np.int8)
    values = codes.astype(np.int64)
    if name.startswith("int"):
        half = 1 << (element.bits - 1)
        values = (values + half) % (2 * half) - half
    want = x.astype(np.int64) @ values.T
    y = emulated(ladder.schedule(op, "h200"), x, ladder.Quantized(op.weight, codes))
    np.testing.assert_array_equal(y.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("k", [1, 8, 16, 24, 32, 40, 48])
@pytest.mark.parametrize("m, n", [(1, 16), (2, 32), (7, 64)])
def test_k_below_and_between_the_steps_of_integer_products(
    emulated: Emulated, m: int, n: int, k: int
) -> None:
    """C36: ones times ones is K exactly, where K is below the 32 columns of a step and between its multiples."""
    op = ladder.matmul(m, n, k, activation="int8", weight="int4")
    x = np.ones((m, k), np.int8)
    weights = ladder.Quantized(op.weight, np.ones((n, k), np.uint8))
    y = emulated(ladder.schedule(op, "h200"), x, weights)
    np.testing.assert_array_equal(y, np.full((m, n), k, np.float16))


def test_the_largest_sums_stay_within_int32(emulated: Emulated) -> None:
    k = 2**13
    op = ladder.matmul(8, 16, k, activation="int8", weight="int8", out="float32")
    x = np.full((8, k), -128, np.int8)
    weights = ladder.Quantized(op.weight, np.full((16, k), 128, np.uint8))
    y = emulated(ladder.schedule(op, "h200"), x, weights)
    np.testing.assert_array_equal(y, np.full((8, 16), 2.0**14 * k, np.float32))


@settings(max_examples=25)
@given(
    st.sampled_from(WEIGHTS),
    st.sampled_from(["channel", 32, 64, 128, None]),
    st.integers(1, 40),
    st.integers(1, 80),
    st.integers(1, 300),
    st.booleans(),
)
def test_every_shape_has_a_right_plan(
    kind: tuple[str, str], group: Any, m: int, n: int, k: int, scaled: bool
) -> None:
    """The plan's meaning alone, which is quick: the kernels of the families are compared with it above."""
    activation, name = kind
    wt: Any = ladder.types[name]
    wt = wt if group is None else wt.grouped(group, scale="float32")
    op = ladder.matmul(
        m, n, k, activation=activation, weight=wt, out="float32", activation_scale=scaled
    )
    given_ = operands(op, m)
    exact = op.reference(given_["x"], given_["weights"], x_scale=given_["x_scale"])
    plan = ladder.schedule(op, "h200")
    np.testing.assert_allclose(
        plan.run(**given_), exact, rtol=1e-5, atol=1e-4 * np.abs(exact).max()
    )


def test_row_scales_are_asked_for_and_refused() -> None:
    op = operator("int8", "int4", 32, 64)
    plan = ladder.schedule(op, "h200", m_range=(1, 8))
    given_ = operands(op, 3)
    with pytest.raises(LadderError, match="the x_scale is missing"):
        plan.run(given_["x"], given_["weights"])
    with pytest.raises(LadderError, match=r"x_scale is float32\[2\], expected float32\[3\]"):
        plan.run(given_["x"], given_["weights"], x_scale=given_["x_scale"][:2])
