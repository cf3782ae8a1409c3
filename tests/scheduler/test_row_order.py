"""Orders of rows: gates beside what they gate, and everything back where it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import PackingError, PlanError
from ladder.graph.dequantize import dequantize
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Packing, choose_packing, schedule
from ladder.scheduler.row_order import places, sources
from ladder.scheduler.steps import pack_steps
from ladder.ttype import Quantized, quantize

H200 = devices["h200"]
INT4 = types["int4"]


def gated(n, k, weight=INT4, activation="float16"):
    op = matmul(None, n, k, activation=activation, weight=weight, epilogue=("silu_gate",))
    return choose_packing(op, H200.features)


def test_rows_by_hand():
    assert places("natural", 3) == slice(0, 3)
    assert places("paired", 6).tolist() == [0, 1, 2, 8, 9, 10]
    whole = places("paired", 32)
    assert whole[:16].tolist() == [*range(8), *range(16, 24)]
    assert (whole[16:] - whole[:16] == 8).all()
    assert sources(places("paired", 4), 16)[[0, 1, 8, 9]].tolist() == [0, 1, 2, 3]


@given(st.integers(1, 200))
def test_sources_are_the_inverse(half):
    stored = places("paired", 2 * half)
    count = 16 * -(-half // 8)
    assert len(set(stored.tolist())) == 2 * half
    assert stored.max() < count
    inverse = sources(stored, count)
    assert sorted(inverse.tolist()) == list(range(count))
    assert (inverse[stored] == np.arange(2 * half)).all()


def test_what_is_no_order():
    with pytest.raises(PackingError, match="rows in the order 'odd'"):
        places("odd", 4)
    with pytest.raises(PackingError, match="5 rows in pairs"):
        places("paired", 5)


@pytest.mark.parametrize("n", [2, 30, 64, 72])
@pytest.mark.parametrize(
    "weight",
    [INT4.grouped(32, zero="integer"), types["nf4"].grouped((16, 64)), types["mxfp4"]],
    ids=str,
)
def test_packing_in_pairs_and_back(n, weight, weights_of):
    packing = gated(n, 128, weight, "bfloat16")
    q = weights_of(weight, n, 128)
    arrays = packing.pack(q)
    again = packing.unpack(arrays)
    for name in ("codes", "scales", "zeros"):
        if (part := getattr(q, name)) is not None:
            np.testing.assert_array_equal(getattr(again, name), part)
    given_ = {name: getattr(q, name) for name in ("scales", "zeros")}
    other = packing.pack_arrays(q.codes, **{n: v for n, v in given_.items() if v is not None})
    for name, array in arrays.items():
        assert np.asarray(other[name]).tobytes() == array.tobytes(), name
    parts = packing.unpack_arrays(other)
    np.testing.assert_array_equal(parts["codes"], q.codes)


def test_a_pair_stands_in_rows_g_and_g_plus_8_of_a_tile():
    packing = gated(48, 64)
    codes = np.repeat(np.arange(48) % 16, 64).reshape(48, 64).astype(np.uint8)
    arrays = packing.pack(Quantized(packing.weight, codes))
    natural = replace(packing, order="natural")
    stored = natural.unpack(arrays).codes[:, 0]
    for tile in range(3):
        gates = np.arange(8 * tile, 8 * tile + 8)
        wanted = np.concatenate([gates, 24 + gates]) % 16
        assert stored[16 * tile : 16 * tile + 16].tolist() == wanted.tolist()


@pytest.mark.parametrize("n", [30, 64])
def test_the_printed_steps_are_what_the_packer_does(n):
    op = matmul(1, n, 128, activation="float16", weight=INT4, epilogue=("silu_gate",))
    plan = schedule(op)
    codes = np.random.default_rng(0).integers(0, 16, (n, 128)).astype(np.uint8)
    moved = codes
    for step in pack_steps(plan).steps:
        moved = step.primitive.evaluate(moved)
    natural = replace(plan.packing, n=16 * plan.packing.row_tiles, order="natural")
    padded = np.full((natural.n, 128), plan.packing.pad_code, np.uint8)
    padded[plan.packing.row_places] = codes
    by_hand = codes_in_order(natural, padded, plan)
    np.testing.assert_array_equal(moved, by_hand)


def codes_in_order(packing, codes, plan):
    """The same steps on rows that are in their places already."""
    other = replace(plan, op=matmul(1, packing.n, 128, activation="float16", weight=INT4))
    other = replace(other, packing=packing)
    for step in pack_steps(other).steps:
        codes = step.primitive.evaluate(codes)
    return codes


def test_a_packing_says_its_order_and_travels():
    packing = gated(64, 128)
    assert "paired: row g of a tile is the gate of row g + 8" in str(packing)
    assert Packing.from_json(packing.to_json()) == packing
    assert '"order"' not in replace(packing, order="natural").to_json()
    plan = schedule(matmul(1, 64, 128, activation="float16", weight=INT4, epilogue=("silu_gate",)))
    with pytest.raises(PlanError, match="the packing holds rows in natural order"):
        plan.with_(packing=replace(packing, order="natural"))


def test_a_weight_in_pairs_is_decoded_in_pairs():
    weight = INT4.grouped(32)
    packing = gated(48, 128, weight)
    plan = schedule(dequantize(48, 128, weight=weight), packing=packing)
    assert plan.target.order == "paired"
    rng = np.random.default_rng(0)
    q = quantize(rng.normal(size=(48, 128)), weight)
    np.testing.assert_allclose(plan.run(q), q.dequantize(), rtol=1e-3)
    with pytest.raises(PlanError, match="target in the natural one"):
        replace(plan, target=replace(plan.target, order="natural")).verify()
