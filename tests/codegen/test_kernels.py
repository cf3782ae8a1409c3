"""operator = plan = emulated kernel: every arrangement, placement and access, on odd and even shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladder
from ladder.scheduler import Plan, Tiling
from ladder.scheduler.residency import grid_tiles
from ladder.scheduler.verify import verify
from tests.codegen.conftest import DTYPES, Emulated

TYPES = {
    "int4 asymmetric": ladder.types["int4"].grouped(64, scale="float16", zero="integer"),
    "int4 short groups": ladder.types["int4"].grouped(16, scale="bfloat16", zero="float"),
    "int4 odd groups": ladder.types["int4"].grouped(33, scale="float32", zero="rescaled"),
    "int4 channel": ladder.types["int4"].grouped("channel"),
    "int8 tensor": ladder.types["int8"].grouped("tensor", scale="float32"),
    "int8 bare": ladder.types["int8"],
    "nf4": ladder.types["nf4"].grouped(64),
    "mxfp4": ladder.types["mxfp4"],
    "nvfp4": ladder.types["nvfp4"],
    "blocks": ladder.types["int4"].grouped((32, 32)),
}

#: relative error of a float16 output: its own rounding is 2^-11 at most, 2.1e-4 in the mean; products and sums are float32
FLOAT16_ERROR = 4e-4
#: bfloat16 rounds outputs by 2^-9 at most, and tables of real numbers as well
BFLOAT16_ERROR = 4e-3
#: weights scaled in registers are rounded once more, and so are what they are multiplied by and what is added
SCALED = 1.6


def relative(y: NDArray[Any], reference: NDArray[np.float64]) -> float:
    size = np.linalg.norm(reference)
    assert size > 0
    return float(np.linalg.norm(y.astype(np.float64) - reference) / size)


def check(plan: Plan, emulated: Emulated, m: int, seed: int = 0) -> None:
    """Compare the kernel with the operator in float64 and with the plan in NumPy."""
    rng = np.random.default_rng(seed)
    op = plan.op
    weights = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
    x = rng.standard_normal((m, op.k)).astype(DTYPES[op.activation.name])
    bias = rng.standard_normal(op.n).astype(DTYPES[op.out.name]) if op.bias else None
    y = emulated(plan, x, weights, bias)
    bar = BFLOAT16_ERROR if "bfloat16" in (op.activation.name, op.out.name) else FLOAT16_ERROR
    bar *= SCALED if plan.scale == "register" else 1
    assert relative(y, op.reference(x, weights, bias)) <= bar
    assert relative(y, plan.run(x, weights, bias).astype(np.float64)) <= bar


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("m", [1, 9, 40])
def test_every_kind_of_group_and_zero(name: str, m: int, emulated: Emulated) -> None:
    op = ladder.matmul(m=m, n=40, k=200, activation="float16", weight=TYPES[name])
    check(ladder.schedule(op, "h200"), emulated, m)


ARRANGEMENTS = {
    "one warp": Tiling(1, 1, 1, 1, 1),
    "slices": Tiling(3, 1, 1, 2, 2),
    "channels": Tiling(1, 4, 1, 2, 1),
    "tokens": Tiling(1, 1, 2, 1, 4),
    "all": Tiling(2, 2, 2, 2, 3),
}


@pytest.mark.parametrize("tiling", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
@pytest.mark.parametrize(
    "decisions",
    [
        {"convert": "register", "depth": 2},
        {"convert": "shared", "depth": 3},
        {"access": "scalar", "depth": 4},
        {"zero": "sums", "depth": 3},
        {"zero": "register", "depth": 3},
        {"lookahead": True, "depth": 3},
    ],
    ids=lambda d: "-".join(f"{k}={v}" for k, v in d.items()),
)
def test_every_arrangement(tiling: Tiling, decisions: dict[str, Any], emulated: Emulated) -> None:
    weight = ladder.types["int4"].grouped(64, zero="integer")
    op = ladder.matmul(m=None, n=72, k=456, activation="float16", weight=weight, bias=True)
    family = "skinny" if tiling.ring_warps == 1 and tiling.tokens <= 16 else "ring"
    most = tiling.tokens if family == "skinny" else None
    plan = ladder.schedule(op, "h200").plan_for(8)
    plan = plan.with_(**{"family": family, "tiling": tiling, "m_range": (0, most), **decisions})
    check(plan, emulated, m=min(11, most or 11))


WARPGROUPS = {
    "one": Tiling(1, 4, 1, 1, 2),
    "two": Tiling(1, 8, 1, 1, 4),
    "slices": Tiling(2, 4, 1, 1, 8),
}


@pytest.mark.parametrize("tiling", WARPGROUPS.values(), ids=WARPGROUPS)
@pytest.mark.parametrize("name", ["int4 asymmetric", "int4 channel", "int8 tensor", "nf4", "mxfp4"])
def test_warpgroup_products(name: str, tiling: Tiling, emulated: Emulated) -> None:
    op = ladder.matmul(m=None, n=72, k=456, activation="float16", weight=TYPES[name])
    plan = ladder.schedule(
        op, "h200", family="ring", compute="wgmma", tiling=tiling, depth=3, m_range=(0, None)
    ).plan_for(20)
    assert plan.compute == "wgmma"
    check(plan, emulated, m=20)
    check(replace(plan, depth=4, access="scalar"), emulated, m=3)


@pytest.mark.parametrize("zero", [None, "integer"])
@pytest.mark.parametrize("name", ["int2", "uint2", "ternary", "uint1", "uint3", "bipolar2"])
def test_warpgroups_read_what_is_packed_for_several_classes(
    name: str, zero: str | None, emulated: Emulated
) -> None:
    """float16 programs of these types have two classes; warpgroups take another one over the same words."""
    weight = ladder.types[name].grouped(128, zero=zero)
    op = ladder.matmul(m=None, n=72, k=456, activation="float16", weight=weight)
    plans = ladder.schedule(op, "h200")
    plan = replace(
        plans.plan_for(20), compute="wgmma", zero="register", tiling=WARPGROUPS["two"], depth=3,
        family="ring", convert="register", lookahead=True, m_range=(0, None), scale="accumulator",
        access="vector", split=1, persistent=False,
    )  # fmt: skip
    verify(plan)
    assert plan.packing.program.classes == 2
    assert plan.program.classes == 1
    assert plan.packing == plans.packing
    check(plan, emulated, m=20)


@pytest.mark.parametrize("m", [1, 70])
@pytest.mark.parametrize("name", ["int4 asymmetric", "nf4", "int4 odd groups"])
def test_programmatic_launch_fills_its_rings_in_two_parts(
    name: str, m: int, emulated: Emulated
) -> None:
    op = ladder.matmul(m=m, n=40, k=520, activation="float16", weight=TYPES[name])
    check(ladder.schedule(op, "h200", launch="pdl"), emulated, m)


@pytest.mark.parametrize("access", ["vector", "column"])
@pytest.mark.parametrize("name", ["int4 asymmetric", "nf4", "int4 channel"])
def test_ctas_that_repeat_a_tile_store_nothing(name: str, access: str, emulated: Emulated) -> None:
    """Every SM has a CTA where two launches share it; y is poisoned, and a second store of an output would be a race."""
    op = ladder.matmul(m=1, n=104, k=520, activation="float16", weight=TYPES[name], out="float16")
    plan = ladder.schedule(
        op, replace(ladder.devices["h200"], sms=5), launch="pdl", family="skinny",
        access=access, tiling=Tiling(2, 1, 1, 2, 1), depth=3,
    )  # fmt: skip
    assert (plan.channel_tiles, grid_tiles(plan)) == (4, 5)
    check(plan, emulated, m=1)


@pytest.mark.parametrize(
    "m, decisions",
    [
        (1, {"family": "skinny", "access": "vector"}),
        (1, {"family": "skinny", "access": "column"}),
        (9, {"family": "ring", "compute": "mma"}),
        (9, {"family": "ring", "compute": "wgmma"}),
        (9, {"family": "specialised"}),
    ],
)
def test_blocks_that_only_pad_a_group_read_no_activations(
    m: int, decisions: dict[str, Any], emulated: Emulated
) -> None:
    """K fills whole blocks, its last group does not: the blocks that pad it lie beyond x."""
    weight = ladder.types["int4"].grouped(256, zero="integer")
    op = ladder.matmul(m=m, n=40, k=640, activation="float16", weight=weight)
    plan = ladder.schedule(op, "h200", **decisions)
    cut = plan.packing.geometry
    assert (cut.k % cut.block_k, cut.padded_k - cut.k) == (0, cut.block_k)
    check(plan, emulated, m)


@pytest.mark.parametrize("out", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_every_output_type(out: str, activation: str, emulated: Emulated) -> None:
    weight = ladder.types["int4"].grouped(32)
    op = ladder.matmul(m=3, n=33, k=96, activation=activation, weight=weight, out=out, bias=True)
    check(ladder.schedule(op, "h200"), emulated, m=3)


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 70),
    k=st.integers(1, 300),
    name=st.sampled_from(sorted(TYPES)),
    activation=st.sampled_from(["float16", "bfloat16"]),
    seed=st.integers(0, 2**16),
)
@example(m=1, n=1, k=1, name="int4 channel", activation="float16", seed=0)
@example(m=17, n=31, k=257, name="nf4", activation="float16", seed=1)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(
    emulated: Emulated, m: int, n: int, k: int, name: str, activation: str, seed: int
) -> None:
    op = ladder.matmul(m=m, n=n, k=k, activation=activation, weight=TYPES[name], out="float32")
    check(ladder.schedule(op, "h200"), emulated, m, seed)


def test_strided_activations_are_read_where_they_lie(emulated: Emulated) -> None:
    """Cases C47: rows with a gap, columns of a transposed array, one row for all."""
    rng = np.random.default_rng(5)
    op = ladder.matmul(m=4, n=32, k=64, activation="float16", weight=ladder.types["int8"])
    weights = ladder.quantize(rng.standard_normal((32, 64)), op.weight)
    plan = ladder.schedule(op, "h200", access="scalar")
    wide = rng.standard_normal((8, 200)).astype(np.float16)
    views = {
        "row gap": wide[:4, :64],
        "offset": wide[1:5, 3:67],
        "transposed": wide[:, :4].repeat(8, axis=0).T,
        "every other": wide[::2, :128:2],
        "one row": np.broadcast_to(wide[0, :64], (4, 64)),
    }
    for name, x in views.items():
        y = emulated(plan, x, weights)
        assert relative(y, op.reference(np.ascontiguousarray(x), weights)) <= FLOAT16_ERROR, name


def test_rows_of_one_call_do_not_depend_on_m(emulated: Emulated) -> None:
    """Case C33: scales differ per group; the row of a call with M = 1 equals the same row with M = 2."""
    for group in (32, 64, 128, 256):
        weight = ladder.types["int4"].grouped(group)
        groups = 1024 // group
        weights = ladder.Quantized(
            weight,
            codes=np.ones((16, 1024), np.uint8),
            scales=np.tile(np.arange(1, groups + 1, dtype=np.float16), (16, 1)),
        )
        op = ladder.matmul(m=None, n=16, k=1024, activation="float16", weight=weight, out="float32")
        plans = ladder.schedule(op, "h200")
        x = np.ones((2, 1024), np.float16)
        expected = group * groups * (groups + 1) / 2
        assert np.all(emulated(plans.plan_for(1), x[:1], weights) == expected)
        assert np.all(emulated(plans.plan_for(2), x, weights) == expected)


def test_k_below_one_mma_step(emulated: Emulated) -> None:
    """Case C36: ones times ones with K = 16 is 16, whatever M and N."""
    for m in range(1, 8):
        for n in (16, 24, 33):
            op = ladder.matmul(m=m, n=n, k=16, activation="float16", weight="int4")
            weights = ladder.Quantized(op.weight, codes=np.ones((n, 16), np.uint8))
            y = emulated(ladder.schedule(op, "h200"), np.ones((m, 16), np.float16), weights)
            assert np.all(y == 16)
