"""A plan's NumPy meaning against the operator's: every type, odd shapes, every convention."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.program import Affine
from ladder.decode.reference import decode_atom
from ladder.errors import LosslessError, ShapeError
from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Tiling, schedule
from ladder.scheduler.interpret import load_activations, run_packed
from ladder.ttype import Quantized, quantize

INT4 = types["int4"]


def compare(op, plan, weights, bound_of, *, seed: int = 0) -> None:
    """Run a plan and compare each output with the operator in float64."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((op.m, op.k)).astype(op.activation.dtype)
    bias = rng.standard_normal(op.n).astype(op.out.dtype) if op.bias else None
    got = plan.run(x, weights, bias)
    want = op.reference(x, weights, bias)
    assert got.dtype == op.out.dtype
    assert got.shape == (op.m, op.n)
    error = np.abs(got.astype(np.float64) - want)
    bound = bound_of(plan, x, weights, want)
    assert (error <= bound).all(), float((error / bound).max())


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_every_element_means_what_the_operator_means(element, activation, weights_of, bound_of):
    op = matmul(3, 21, 300, activation=activation, weight=element, out="float32")
    try:
        plan = schedule(op)
    except LosslessError:
        assert (element, activation) == ("e8m0", "float16")
        return
    if element == "e8m0":
        codes = np.random.default_rng(0).integers(120, 134, (21, 300))
        weights = Quantized(op.weight, codes)
    else:
        undefined = plan.packing.program.undefined
        weights = weights_of(op.weight, op.n, op.k, undefined=undefined)
    compare(op, plan, weights, bound_of)


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_every_grouped_type_of_the_catalogue(grouped, activation, weights_of, bound_of):
    op = matmul(5, 33, 200, activation=activation, weight=grouped, out="float32", bias=True)
    plan = schedule(op)
    undefined = plan.packing.program.undefined
    compare(op, plan, weights_of(op.weight, op.n, op.k, undefined=undefined), bound_of)


operators = st.fixed_dictionaries(
    {
        "m": st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 31, 65]),
        "n": st.sampled_from([1, 2, 15, 16, 17, 31, 48, 67]),
        "k": st.sampled_from([1, 2, 7, 16, 31, 64, 97, 128, 200, 257, 384]),
        "activation": st.sampled_from(["float16", "bfloat16"]),
        "out": st.sampled_from(["float16", "bfloat16", "float32"]),
        "bias": st.booleans(),
    }
)
formats = st.builds(
    lambda name, group, scale, zero: types[name].grouped(group, scale=scale, zero=zero),
    st.sampled_from(["int4", "uint4", "nf4", "int8", "fp4_e2m1", "int3", "uint2", "bipolar1"]),
    st.sampled_from(["tensor", "channel", 5, 16, 32, 33, 64, 100, 128, 256, (3, 48), (None, 64)]),
    st.sampled_from(["float16", "bfloat16", "float32"]),
    st.sampled_from([None, "integer", "float", "rescaled"]),
)
decisions = st.sampled_from(
    [
        {},
        {"placement": "shared"},
        {"family": "ring"},
        {"access": "scalar"},
        {"zero": "sums"},
        {"tiling": Tiling(2, 2, 1, 1, 2), "depth": 2},
    ]
)


@given(shape=operators, weight=formats, fixed=decisions, seed=st.integers(0, 1000))
def test_plan_is_operator_for_random_shapes_groups_and_conventions(
    shape, weight, fixed, seed, bound_of, weights_of
):
    op = matmul(weight=weight, **shape)
    plan = schedule(op, **fixed)
    weights = weights_of(op.weight, op.n, op.k, seed=seed, undefined=plan.packing.program.undefined)
    assert plan.packing.unpack(plan.packing.pack(weights)) == weights
    compare(op, plan, weights, bound_of, seed=seed)


@pytest.mark.parametrize("group, want", [(32, 16896.0), (64, 8704.0), (128, 4608.0), (256, 2560.0)])
def test_scale_of_group_g_meets_the_columns_of_group_g(group, want):
    """C33: scale g+1 on group g, everything else 1; and the same row at M=2."""
    op = matmul(1, 16, 1024, activation="float16", weight=INT4.grouped(group), out="float32")
    scales = np.tile(np.arange(1, 1024 // group + 1, dtype=np.float16), (16, 1))
    weights = Quantized(op.weight, np.ones((16, 1024), np.uint8), scales=scales)
    one = schedule(op).run(np.ones((1, 1024), np.float16), weights)
    assert one.tolist() == [[want] * 16]
    op2 = matmul(2, 16, 1024, activation="float16", weight=op.weight, out="float32")
    two = schedule(op2).run(np.ones((2, 1024), np.float16), weights)
    assert (two == one).all()


@pytest.mark.parametrize("k", [8, 16, 24, 32, 40, 48])
@pytest.mark.parametrize("m", [1, 2, 5, 7])
@pytest.mark.parametrize("n", [16, 33, 64])
def test_k_below_and_between_the_steps_of_the_instruction(m, n, k):
    """C36: ones times ones is exactly K."""
    op = matmul(m, n, k, activation="float16", weight=INT4)
    weights = Quantized(op.weight, np.ones((n, k), np.uint8))
    y = schedule(op).run(np.ones((m, k), np.float16), weights)
    assert (y == k).all()


@pytest.mark.parametrize("m", [1, 2])
def test_short_last_group_with_zeros(m, weights_of, bound_of):
    """C38: K=4304 in blocks of 32 leaves half a block; rows are distinct, padding must not count."""
    op = matmul(
        m,
        1152,
        4304,
        activation="float16",
        weight=INT4.grouped(32, zero="integer"),
        out="float32",
    )
    weights = weights_of(op.weight, op.n, op.k)
    assert weights.scales.shape == (1152, 135)
    compare(op, schedule(op), weights, bound_of)


@pytest.mark.parametrize("k, group, scales", [(4304, 32, 135), (768, 512, 2)])
def test_groups_that_do_not_divide_k(k, group, scales, weights_of, bound_of):
    """C40: a short last group is done right."""
    op = matmul(2, 40, k, activation="float16", weight=INT4.grouped(group), out="float32")
    weights = weights_of(op.weight, op.n, op.k)
    assert weights.scales.shape[1] == scales
    compare(op, schedule(op), weights, bound_of)


@pytest.mark.parametrize("k", [7392, 2880])
@pytest.mark.parametrize("n", [24, 33, 48, 96])
def test_small_and_odd_n_with_k_that_no_block_divides(n, k, weights_of, bound_of):
    """C42: padding is never visible in the output shape."""
    op = matmul(
        1, n, k, activation="float16", weight=INT4.grouped(128, zero="integer"), out="float32"
    )
    compare(op, schedule(op), weights_of(op.weight, op.n, op.k), bound_of)


@pytest.mark.parametrize("k", [1664, 1824, 1856])
def test_mxfp4_k_that_no_block_divides(k, weights_of, bound_of):
    """C43: one padded stride, data and scales of the padding finite."""
    op = matmul(64, 64, k, activation="float16", weight="mxfp4", out="float32")
    plan, weights = schedule(op), weights_of(op.weight, op.n, op.k)
    packed = plan.packing.pack(weights)
    assert np.isfinite(packed["scales"].astype(np.float32)).all()
    compare(op, plan, weights, bound_of)


def test_one_hot_activations_pick_the_weights_out(weights_of):
    """Bit-exact: a scale of 1 and one activation of 1 give each weight back, so no code is out of place."""
    op = matmul(70, 37, 70, activation="float16", weight=INT4.grouped(32), out="float32")
    weights = weights_of(op.weight, 37, 70)
    weights = Quantized(op.weight, weights.codes, scales=np.ones(weights.scales.shape))
    y = schedule(op).run(np.eye(70, dtype=np.float16), weights)
    assert np.array_equal(y, weights.dequantize().T.astype(np.float32))


def test_zeros_in_registers_and_by_sums_agree(weights_of, bound_of):
    weight = INT4.grouped(64, zero="integer")
    op = matmul(4, 48, 320, activation="float16", weight=weight, out="float32")
    weights = weights_of(op.weight, op.n, op.k)
    for zero in ("register", "sums"):
        compare(op, schedule(op, zero=zero), weights, bound_of)


@pytest.mark.parametrize("group", ["channel", 16, 64])
@pytest.mark.parametrize("zero", ["float", "rescaled"])
@pytest.mark.parametrize("warps_k", [1, 3])
def test_classes_with_factors_and_zeros_of_their_own(group, zero, warps_k, weights_of):
    """Steps and row halves whose lane values mean different things: what the decoder's reference says, scaled by hand."""
    weight = INT4.grouped(group, zero=zero)
    op = matmul(5, 40, 330, activation="float16", weight=weight, out="float32")
    plan = schedule(op, family="ring", tiling=Tiling(warps_k, 1, 1, 2, 2), depth=2, zero="sums")
    unit = plan.packing.program.affine[0][0].alpha
    program = replace(
        plan.packing.program,
        step_class=(0, 1, 2, 1),
        affine=(
            (Affine(unit, Fraction(3)), Affine(unit / 2, Fraction(-1))),
            (Affine(unit / 4, Fraction(3)), Affine(unit, Fraction(5))),
            (Affine(unit, Fraction(3)), Affine(unit / 8, Fraction(-1))),
        ),
    )
    plan = replace(plan, packing=replace(plan.packing, program=program))
    assert len(plan.sum_sets) == 2
    weights = weights_of(weight, 40, 330)
    packing = plan.packing
    words = packing.words_of(packing.weight_by_tile(packing.pack(weights)["weight"]))
    decoded = decode_atom(program, words).transpose(0, 2, 1, 3).reshape(64, -1)
    x = np.random.default_rng(0).standard_normal((5, 330)).astype(np.float16)
    loaded = load_activations(plan, x).astype(np.float64)
    cut = plan.packing.geometry
    want = np.zeros((5, 40))
    for index in range(cut.groups):
        k = slice(index * cut.padded_group, min((index + 1) * cut.padded_group, cut.padded_k))
        s = weights.scales[:, index].astype(np.float64)[:, None]
        z = weights.zeros[:, index].astype(np.float64)[:, None]
        part = decoded[:40, k]
        meant = s * part - z if zero == "rescaled" else s * (part - z)
        want += loaded[:, k] @ meant.T
    got = plan.run(x, weights)
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_leading_axes_are_kept_and_no_rows_give_no_rows(weights_of):
    op = matmul(None, 20, 64, activation="float16", weight=INT4)
    plans, weights = schedule(op), weights_of(INT4, 20, 64)
    x = np.ones((2, 3, 64), np.float16)
    assert plans.run(x, weights).shape == (2, 3, 20)
    assert plans.run(x[:, :0], weights).shape == (2, 0, 20)
    assert plans.run(x[0, 0], weights).shape == (20,)


def test_overflow_follows_ieee(weights_of):
    op = matmul(1, 16, 64, activation="float16", weight=INT4)
    weights = Quantized(op.weight, np.full((16, 64), 7, np.uint8))
    y = schedule(op).run(np.full((1, 64), 6e4, np.float16), weights)
    assert np.isinf(y).all()


def test_padding_of_activations_is_zero_at_every_group():
    op = matmul(1, 16, 70, activation="float16", weight=INT4.grouped(20))
    plan = schedule(op)
    loaded = load_activations(plan, np.arange(1, 71, dtype=np.float16)[None])
    width = plan.packing.geometry.padded_group
    groups = loaded[0, : 4 * width].reshape(4, width)
    assert groups[:, :20].reshape(-1)[:70].tolist() == list(range(1, 71))
    assert not groups[:, 20:].any()
    assert not loaded[0, 4 * width :].any()


def test_packed_weights_run_as_unpacked_ones(weights_of):
    op = matmul(2, 20, 64, activation="float16", weight=INT4)
    plan, weights = schedule(op), weights_of(INT4, 20, 64)
    x = np.ones((2, 64), np.float16)
    assert np.array_equal(run_packed(plan, x, plan.packing.pack(weights)), plan.run(x, weights))


@pytest.mark.parametrize(
    "x, bias, text",
    [
        (np.ones((1, 63), np.float16), None, "x is float16[1, 63], the operator reads"),
        (np.ones((1, 64), np.float32), None, "x is float32[1, 64], the operator reads"),
        (np.ones((2, 64), np.float16), None, "x has 2 rows, the plan takes 1"),
        (np.ones((1, 64), np.float16), np.ones(20, np.float16), "a bias is given"),
    ],
)
def test_wrong_operands_are_named(x, bias, text, weights_of):
    op = matmul(1, 20, 64, activation="float16", weight=INT4)
    with pytest.raises(ShapeError) as caught:
        schedule(op).run(x, weights_of(INT4, 20, 64), bias)
    assert caught.value.what.startswith(text)


@pytest.mark.parametrize(
    "bias, text",
    [
        (None, "the bias is missing"),
        (np.ones(19, np.float16), "bias is float16[19], expected float16[20]"),
        (np.ones(20, np.float32), "bias is float32[20], expected float16[20]"),
    ],
)
def test_wrong_bias_is_named(bias, text, weights_of):
    op = matmul(1, 20, 64, activation="float16", weight=INT4, bias=True)
    with pytest.raises(ShapeError) as caught:
        schedule(op).run(np.ones((1, 64), np.float16), weights_of(INT4, 20, 64), bias)
    assert caught.value.what == text


def test_real_size_runs_in_time(weights_of):
    """N=K=4096 at M=1, a quarter of the largest output projection, in well under a quarter of a minute."""
    op = matmul(1, 4096, 4096, activation="float16", weight=INT4.grouped(128, zero="integer"))
    rng = np.random.default_rng(0)
    weights = quantize(rng.standard_normal((4096, 4096)), op.weight)
    x = rng.standard_normal((1, 4096)).astype(np.float16)
    begin = time.perf_counter()
    y = schedule(op).run(x, weights)
    assert time.perf_counter() - begin < 15
    want = op.reference(x, weights)
    assert np.linalg.norm(y - want) <= 5e-4 * np.linalg.norm(want)


def test_operands_are_arrays_of_numpy():
    op = matmul(2, 16, 64, activation="float16", weight=types["int4"], bias=True)
    plan = schedule(op)
    q = Quantized(op.weight, np.zeros((16, 64), np.uint8))
    x, bias = np.zeros((2, 64), np.float16), np.zeros(16, np.float16)
    assert plan.run(x, q, bias).shape == (2, 16)
    for arrays, what in (
        ((x, q, [1, 2, 3]), "bias is a list [1, 2, 3], not a NumPy array"),
        (([[0.0]], q, bias), "x is a list [[0.0]], not a NumPy array"),
        ((x, q, bias.astype(np.float32)), "bias is float32[16], expected float16[16]"),
    ):
        with pytest.raises(ShapeError) as caught:
            plan.run(*arrays)
        assert caught.value.what == what
        assert caught.value.hint
